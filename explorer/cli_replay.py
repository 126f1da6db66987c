"""python -m explorer replay: a recorded file as one HTML file that plays by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from explorer.cli_lanes import check_out
from explorer.trace_io import read_comparison

File = Annotated[Path, typer.Argument(help="A trace or comparison file.")]
Out = Annotated[Path, typer.Option(help="Where to write the HTML file.")]


def replay(file: File, out: Out) -> None:
    """Make one HTML file of a recording: it plays in a browser with no server and no network."""
    from explorer.figures.labels import plural
    from explorer.replay import replay_html, write_replay
    from explorer.session import recorded_events

    check_out(out)
    comparison = read_comparison(file)
    write_replay(replay_html(comparison, recorded_events), out)
    lanes, steps = len(comparison.lanes), sum(len(trace.steps) for trace in comparison.lanes)
    typer.echo(f"{out}: {out.stat().st_size / 1e6:.1f} MB, {plural(lanes, 'lane')}, {plural(steps, 'step')}")
