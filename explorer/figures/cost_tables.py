"""The cost model as words and tables: its formula, and how far it is from what was measured here."""

from __future__ import annotations

from collections.abc import Sequence

from explorer.figures.base import Json
from explorer.figures.tables import Cell, cell
from explorer.fitting import Check, checked, disturbed
from explorer.roofline import FORMULA, SYMBOLS, UNITS, Hardware, is_whole, written
from explorer.trace import Trace

COLUMNS = [
    "lane",
    "target pass, median ms: measured",
    "median by the model",
    "error",
    "draft pass, ms: measured",
    "by the model",
    "error",
    "rest of a step, median ms: measured",
    "speed-up: measured",
    "by the model",
    "error",
]


def formula_of() -> Json:
    """The expressions, for whoever evaluates them, and as lines for people: with overlap, and without."""
    return {
        "formula": [[name, as_json(expression)] for name, expression in FORMULA.items()],
        "units": dict(UNITS),
        "written": {
            "max": [written(name, True) for name in FORMULA],
            "sum": [written(name, False) for name in FORMULA],
        },
        "symbols": [list(pair) for pair in SYMBOLS.values()],
    }


def as_json(expression: object) -> object:
    """Tuples as lists, as a browser gets them."""
    return [as_json(each) for each in expression] if isinstance(expression, tuple) else expression


def check_of(traces: Sequence[Trace], baseline: str, machine: Hardware) -> Json:
    """A table: a row a lane, measured beside predicted."""
    plain = next((trace for trace in traces if trace.method == baseline), None)
    checks = [(trace, checked(trace, plain, machine)) for trace in traces]
    return {
        "title": "The model against this recording",
        "columns": COLUMNS,
        "caption": caption(traces, machine, [check for _, check in checks]),
        "rows": [_row(trace, check) for trace, check in checks],
    }


def caption(traces: Sequence[Trace], machine: Hardware, checks: Sequence[Check]) -> str:
    """What was fitted, what was not, and what is missing."""
    overhead = f", {machine.overhead_us:.0f} µs of overhead a layer" if machine.overhead_us else ""
    fitted = (
        f"Fitted to the target passes of all lanes together: {machine.bandwidth_gb_s:.1f} GB/s, "
        f"{machine.arithmetic_tflop_s * 1e3:,.0f} GFLOP/s{overhead} ({machine.source}). "
        "Draft passes and speed-ups are not fitted: they test the model."
    )
    worst = max((abs(_error(c.speedup, c.said_speedup) or 0.0) for c in checks), default=0.0)
    far = f" The speed-up that is farthest off is off by {worst:.0%}." if worst else ""
    rest = (
        " Target passes here are medians over the steps, the table above has their mean."
        " The rest of a step (acceptance, commit, bookkeeping) is measured and not in the model."
    )
    missing = "" if all(map(is_whole, traces)) else " Cache and attention of this model were not recorded: left out."
    return " ".join(filter(None, [fitted + far + rest + missing, disturbed(traces)]))


def _row(trace: Trace, check: Check) -> list[Cell]:
    title = getattr(trace, "title", None)
    pairs = ((check.target_ms, check.said_target_ms), (check.draft_ms, check.said_draft_ms))
    target, draft = (_pair(measured, said, "") for measured, said in pairs)
    speed = _pair(check.speedup, check.said_speedup if check.speedup else None, "×")
    rest = cell(f"{check.rest_ms:.2f}", n=True)
    return [cell(str(title or trace.lane)[:40]), *target, *draft, rest, *speed]


def _pair(measured: float | None, said: float | None, unit: str) -> list[Cell]:
    error = _error(measured, said)
    shown = [f"{value:.2f}{unit}" if value is not None else "–" for value in (measured, said)]
    return [
        *(cell(text, n=True) for text in shown),
        cell("–" if error is None else f"{error:+.0%}".replace("-0%", "+0%"), n=True),
    ]


def _error(measured: float | None, said: float | None) -> float | None:
    return said / measured - 1.0 if measured and said is not None else None
