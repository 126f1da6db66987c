"""Lanes, parameters and models as they are written on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from explorer.errors import ExplorerError
from explorer.methods import find_method
from explorer.requests import LaneRequest
from explorer.shelf import ShelfSettings
from explorer.stock import check_model, check_place


def split_names(text: str) -> list[str]:
    """`a,b` as names."""
    return [name.strip() for name in text.split(",") if name.strip()]


def parse_lane(text: str) -> LaneRequest:
    """`NAME[:key=value,...]`."""
    name, _, rest = text.partition(":")
    return LaneRequest(method=name.strip(), params=parse_params(split_names(rest)))


def parse_params(pairs: Sequence[str]) -> dict[str, Any]:
    """`key=value` pairs; the method's own description turns the texts into values."""
    params = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise ExplorerError(f"{pair!r} is not a parameter; write key=value.")
        if key.strip() in params:
            raise ExplorerError(f"{key.strip()!r} is given twice; give it once.")
        params[key.strip()] = value.strip()
    return params


def check_out(out: Path) -> None:
    """ExplorerError, before anything runs, where the result could not be written afterwards."""
    if out.is_dir() or not out.resolve().parent.is_dir():
        raise ExplorerError(f"{out} cannot be written: name a file in a folder that exists.")


def build_shelf(
    model: str,
    drafters: Sequence[str],
    device: str,
    dtype: str,
    lanes: Sequence[LaneRequest],
    execution: str = "auto",
) -> ShelfSettings:
    """The models that a command asks for. ExplorerError where a folder does not exist."""
    check_model(model)
    needs = {find_method(lane.method).needs for lane in lanes} - {None}
    folders: dict[str, str] = {}
    for text in drafters:
        kind, equals, folder = text.rpartition("=")
        if not equals:
            if len(needs) != 1:
                raise ExplorerError(f"Say which kind of drafter {text} is: --drafter medusa=FOLDER or eagle=FOLDER.")
            kind = str(next(iter(needs)))
        check_place(kind, folder)
        folders[kind] = folder
    return ShelfSettings(model=model, device=device, dtype=dtype, drafters=folders, execution=execution)
