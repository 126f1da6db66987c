"""What the command line prints: progress on stderr, tables on stdout."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from typing import Any

from explorer.errors import ExplorerError
from explorer.events import Ended, LaneEnded, Preparing
from explorer.metrics import baseline_of, is_tie, speedup
from explorer.params import allowed_values
from explorer.requests import CompareRequest
from explorer.session import Studio
from explorer.trace import Comparison, LosslessCheck, Trace


def follow(studio: Studio, request: CompareRequest) -> Comparison:
    """Run a comparison to its end; its record."""
    told = ""
    for event in studio.compare(request, threading.Event()):
        if isinstance(event, Preparing) and event.message != told:
            told = event.message
            note(told)
        if isinstance(event, LaneEnded):
            note(f"{event.trace.lane}: {event.trace.totals.output_tokens} tokens")
        if isinstance(event, Ended):
            if event.comparison is None or event.state == "error":
                raise ExplorerError(event.message or "Nothing was decoded.")
            return event.comparison
    raise ExplorerError("The run ended without a result.")


def note(text: str) -> None:
    """Progress, for somebody who watches: a script that reads stderr finds nothing there but errors."""
    if sys.stderr.isatty():
        print(text, file=sys.stderr)


def print_comparison(comparison: Comparison) -> None:
    """A table, a lane a row."""
    reference = baseline_of(comparison.lanes)
    rows = [["lane", "tokens", "target passes", "tokens/pass", "decode ms", "speed-up", "output"]]
    for trace in comparison.lanes:
        totals = trace.totals
        ratio = speedup(reference, trace) if reference else None
        rows.append(
            [
                trace.lane,
                str(totals.output_tokens),
                str(totals.target_passes),
                f"{totals.tokens_per_target_pass:.2f}",
                f"{totals.decode_ms:.0f}",
                "" if ratio is None else f"{ratio:.2f}x",
                _verdict(trace, comparison.lossless, trace is reference),
            ]
        )
    print_table(rows)


def print_methods(rows: Sequence[dict[str, Any]]) -> None:
    """Methods and their parameters."""
    for row in rows:
        print(f"{row['name']}: {row['summary']} ({row['paper']})")
        for field in row["parameters"]:
            print(f"    {field['name']}={field['default']}  {allowed_values(field)}. {field['description']}")


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Columns side by side; all but the first and last to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [
            cell.ljust(width) if column in (0, len(row) - 1) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())


def write_csv(text: str) -> None:
    """UTF-8 whatever the terminal's encoding is, for it goes into a file or another program."""
    sys.stdout.flush()
    if hasattr(sys.stdout, "buffer"):
        sys.stdout.buffer.write(text.encode())
        sys.stdout.buffer.flush()
    else:  # something that takes text only stands in for it
        sys.stdout.write(text)


def _verdict(trace: Trace, checks: dict[str, LosslessCheck], is_reference: bool) -> str:
    if is_reference:
        return "baseline"
    check = checks.get(trace.lane)
    if check is None:
        return "not compared"
    if check.equal:
        return "same tokens"
    margin = "" if check.margin is None else f", logit margin {check.margin:.2g}"
    tie = "near-tie, " if is_tie(check, trace.model.dtype) else ""
    return f"{tie}differs from token {(check.first_difference or 0) + 1} on{margin}"
