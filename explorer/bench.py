"""Lanes over a file of prompts. Counts are pooled; times are ratios within one run, never promises."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypedDict

from explorer.errors import ExplorerError
from explorer.events import Ended
from explorer.requests import CompareRequest, LaneRequest
from explorer.session import Studio
from explorer.trace import Comparison, Trace


class Question(TypedDict):
    """A line of the prompts file."""

    category: str
    prompt: str


def read_prompts(path: Path) -> list[Question]:
    """JSON lines with category and prompt. ExplorerError names the line that is wrong."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")  # JSON strings may hold other line ends
    except (OSError, ValueError) as error:
        raise ExplorerError(f"{path} cannot be read: {error}.") from error
    questions: list[Question] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            if not isinstance(row["category"], str) or not isinstance(row["prompt"], str):
                raise TypeError("texts are needed")
            questions.append(Question(category=row["category"], prompt=row["prompt"]))
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ExplorerError(
                f'{path.name}, line {number}: a JSON object with the texts "category" and "prompt" is needed.'
            ) from None
    if not questions:
        raise ExplorerError(f"{path.name} holds no prompts.")
    return questions


def run_bench(
    studio: Studio,
    questions: Sequence[Question],
    lanes: list[LaneRequest],
    settings: dict[str, Any],
    tell: Callable[[str], None] = lambda text: None,
) -> list[dict[str, Any]]:
    """Run all lanes on all prompts; a row a lane and prompt."""
    rows: list[dict[str, Any]] = []
    for number, question in enumerate(questions, start=1):
        request = CompareRequest(prompt=question["prompt"], lanes=lanes, **settings)
        rows += rows_of(_comparison(studio, request), question)
        tell(f"{number}/{len(questions)} {question['category']}")
    return rows


def write_rows(rows: Sequence[dict[str, Any]], out: Path) -> None:
    """{"rows": [...]} as JSON."""
    try:
        out.write_text(json.dumps({"rows": rows}, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise ExplorerError(f"{out} cannot be written: {error.strerror or error}.") from error


def rows_of(comparison: Comparison, question: Question) -> list[dict[str, Any]]:
    """A row a lane."""
    return [
        {
            "lane": trace.lane,
            "category": question["category"],
            "prompt": question["prompt"],
            "tokens": trace.totals.output_tokens,
            "target_passes": trace.totals.target_passes,
            "last_step_tokens": len(trace.steps[-1].committed) if trace.steps else 0,
            "decode_ms": trace.totals.decode_ms,
            "equal_to_autoregressive": _equal(comparison, trace),
        }
        for trace in comparison.lanes
    ]


def pooled(rows: Iterable[dict[str, Any]]) -> float:
    """Tokens per target pass: all tokens over all passes, each run's last step left out (it is cut)."""
    rows = [row for row in rows if row["target_passes"] > 1]
    tokens = sum(row["tokens"] - 1 - row["last_step_tokens"] for row in rows)  # the first is the prefill's
    passes = sum(row["target_passes"] - 1 for row in rows)
    return tokens / passes if passes else 0.0


def table(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Pooled tokens per pass by category, then all; and decode speed against the first lane."""
    lanes = list(dict.fromkeys(row["lane"] for row in rows))
    categories = list(dict.fromkeys(row["category"] for row in rows))
    lines = [["tokens/pass", *categories, "all", f"speed vs {lanes[0]}"]]
    for lane in lanes:
        own = [row for row in rows if row["lane"] == lane]
        cells = [f"{pooled(row for row in own if row['category'] == name):.2f}" for name in categories]
        lines.append([lane, *cells, f"{pooled(own):.2f}", f"{_rate(own) / (_rate(rows, lanes[0]) or 1):.2f}x"])
    return lines


def _rate(rows: Iterable[dict[str, Any]], lane: str | None = None) -> float:
    own = [row for row in rows if lane is None or row["lane"] == lane]
    milliseconds = sum(row["decode_ms"] for row in own)
    return sum(row["tokens"] - 1 for row in own) / milliseconds if milliseconds else 0.0


def _equal(comparison: Comparison, trace: Trace) -> bool | None:
    if trace.method == "autoregressive":
        return True
    check = comparison.lossless.get(trace.lane)
    return None if check is None else check.equal


def _comparison(studio: Studio, request: CompareRequest) -> Comparison:
    for event in studio.compare(request, threading.Event()):
        if isinstance(event, Ended) and event.comparison is not None:
            return event.comparison
    raise ExplorerError("The run ended without a result.")
