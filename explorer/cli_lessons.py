"""python -m explorer lessons: record the prepared lessons anew on the default model."""

from __future__ import annotations

from typing import Annotated

import typer

from explorer.cli_output import follow, note
from explorer.errors import ExplorerError

Names = Annotated[list[str], typer.Argument(help="Lessons to record; all of them where none is named.")]


def lessons(only: Names = []) -> None:  # noqa: B006
    """Record the runs of the prepared lessons again, and check that every stop has its step on them."""
    from explorer.fetch import DEFAULT_MODEL
    from explorer.lessons import build_stops, names, read_lesson, recording_of
    from explorer.requests import CompareRequest, LaneRequest
    from explorer.session import Studio
    from explorer.shelf import ShelfSettings
    from explorer.trace_io import write

    strange = next((name for name in only if name not in names()), None)
    if strange is not None:
        raise ExplorerError(f"There is no lesson {strange[:40]!r}; there are {', '.join(names())}.")
    studio = Studio(ShelfSettings(model=DEFAULT_MODEL.id, dtype="float32"))
    for name in only or names():
        note(name)
        lesson, making = read_lesson(name), read_lesson(name).recording
        lanes = [LaneRequest(method=method) for method in making.lanes]
        request = CompareRequest(prompt=making.prompt, lanes=lanes, max_new_tokens=making.max_new_tokens)
        comparison = follow(studio, request)
        stops = build_stops(name, lesson, comparison)
        path = recording_of(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        write(comparison, path)
        typer.echo(f"{name}: {len(stops)} stops, {path.stat().st_size / 1e3:.0f} kB")
