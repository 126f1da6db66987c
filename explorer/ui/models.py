"""The model in the page's head: which one answers, and the choice of another for everybody."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import gradio as gr

from explorer.errors import ExplorerError
from explorer.events import Preparing, Queued
from explorer.session import Studio

LOG = logging.getLogger(__name__)
INSIDE = "Something went wrong inside; the earlier model goes on answering."

Json = dict[str, Any]


def model_value(studio: Studio, message: str = "", *, share: float | None = None, **flags: bool) -> Json:
    """What the picker shows: the line, the models on offer, and how a switch is going."""
    switching = studio.shelf.settings.switching
    return {
        "line": studio.model_line,
        "switching": switching,
        "models": studio.models() if switching else [],
        "message": message,
        "share": share,
        "busy": flags.get("busy", False),
        "failed": flags.get("failed", False),
    }


def switched(studio: Studio, wanted: Any) -> Iterator[Json]:
    """Put another model in its place; each value says how far that is. A failure is one sentence in the last one."""
    stop = threading.Event()
    base = model_value(studio, "Waiting for the model.", busy=True)
    yield base
    try:
        if not isinstance(wanted, str):
            raise ExplorerError("This choice cannot be read: reload the page and choose again.")
        for event in studio.switch(wanted, stop):
            yield base | _words(event)
        yield model_value(studio, f"{studio.shelf.title} answers now.")
    except ExplorerError as error:
        yield model_value(studio, str(error), failed=True)
    except Exception:
        LOG.exception("a switch failed")
        yield model_value(studio, INSIDE, failed=True)
    finally:
        stop.set()


def _words(event: object) -> Json:
    if isinstance(event, Preparing):
        return {"message": event.message, "share": event.fraction}
    if isinstance(event, Queued):
        runs = "1 run is" if event.place == 1 else f"{event.place} runs are"
        return {"message": f"Waiting: {runs} before you.", "share": None}
    return {}


def picker(studio: Studio, script: str) -> gr.HTML:
    """The component; its event `pick` carries the id of the chosen model."""
    return gr.HTML(
        model_value(studio),
        html_template="",
        js_on_load=script,
        apply_default_css=False,
        elem_id="model",
    )


def wire_picker(studio: Studio, model: gr.HTML, setup: gr.HTML) -> None:
    """A choice loads the model; then the lanes that can run follow from it."""

    def pick(event: gr.EventData) -> Iterator[Json]:
        yield from switched(studio, event._data.get("model") if isinstance(event._data, dict) else None)

    listen: Any = model.pick
    done = listen(
        pick,
        outputs=model,
        show_progress="hidden",
        concurrency_limit=None,
        trigger_mode="once",
        api_visibility="private",
    )
    done.then(lambda: follow(studio), outputs=setup, show_progress="hidden", api_visibility="private")


def follow(studio: Studio) -> gr.HTML:
    """The lane editor with what the present model can run; the lanes in it stay where they can."""
    return gr.HTML(methods=studio.methods())
