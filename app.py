"""Serves the page. Settings come from the environment; this is also what a Gradio Space runs.

GRADIO_SERVER_NAME (127.0.0.1), GRADIO_SERVER_PORT (7860), DECODING_EXPLORER_MODEL (the default model, a pair of the
catalogue, a folder, an id of the hub, or "toy"), DECODING_EXPLORER_DEVICE, DECODING_EXPLORER_DTYPE and
DECODING_EXPLORER_EXECUTION (auto), DECODING_EXPLORER_SWITCH (may viewers choose another model; not on a Space).
"""

from __future__ import annotations

import os
import socket
import sys

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")


def main() -> int:
    """Serve until stopped; 2 where the settings or the port do not allow it."""
    try:
        host, port = address(os.environ)
        may_switch(os.environ)
        check_free(host, port)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    # Imported late: a wrong setting should be told at once, and torch takes seconds to import.
    from explorer.errors import ExplorerError
    from explorer.execution import choose_execution
    from explorer.load import SPREAD, choose_device, choose_dtype
    from explorer.session import Studio
    from explorer.shelf import ShelfSettings, check_model
    from explorer.ui.pages import build, launch_options

    try:
        settings = ShelfSettings(
            model=os.environ.get("DECODING_EXPLORER_MODEL") or ShelfSettings.model,
            device=os.environ.get("DECODING_EXPLORER_DEVICE") or ShelfSettings.device,
            dtype=os.environ.get("DECODING_EXPLORER_DTYPE") or ShelfSettings.dtype,
            switching=may_switch(os.environ),
            execution=os.environ.get("DECODING_EXPLORER_EXECUTION") or ShelfSettings.execution,
        )
        check_model(settings.model)
        choose_dtype(settings.dtype, choose_device(settings.device))
        choose_execution(settings.execution, choose_device(settings.device), spread=settings.device == SPREAD)
    except ExplorerError as error:
        print(error, file=sys.stderr)
        return 2
    studio = Studio(settings)
    page = build(studio)
    try:
        page.launch(server_name=host, server_port=port, prevent_thread_lock=True, quiet=True, **launch_options())
    except OSError as error:  # somebody took the port while we were building the page
        print(error, file=sys.stderr)
        return 2
    print(f"Decoding explorer: http://{host}:{port}/", flush=True)
    studio.shelf.start()  # only now: the page comes first, the model while people look at the example
    page.block_thread()
    return 0


def address(environment: dict[str, str] | os._Environ[str]) -> tuple[str, int]:
    """Where to serve. ValueError says what is wrong."""
    host = environment.get("GRADIO_SERVER_NAME") or "127.0.0.1"
    text = environment.get("GRADIO_SERVER_PORT") or "7860"
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise ValueError(f"GRADIO_SERVER_PORT is {text!r}, but must be a whole number from 1 to 65535.")
    return host, int(text)


def may_switch(environment: dict[str, str] | os._Environ[str]) -> bool:
    """May a viewer choose another model? On a Space, whose viewers are strangers, only where it is said."""
    text = environment.get("DECODING_EXPLORER_SWITCH") or ("0" if environment.get("SPACE_ID") else "1")
    if text not in ("0", "1"):
        raise ValueError(f"DECODING_EXPLORER_SWITCH is {text!r}, but must be 0 or 1.")
    return text == "1"


def check_free(host: str, port: int) -> None:
    """ValueError if nobody can listen there."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            reason = "another program uses it" if error.errno in (98, 48) else error.strerror
            raise ValueError(
                f"Port {port} on {host} cannot be used: {reason}. Set GRADIO_SERVER_PORT to a free one."
            ) from None


if __name__ == "__main__":
    sys.exit(main())
