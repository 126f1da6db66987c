"""The key/value cache before, in and after the step: which rows the pass wrote, which of them stay, and where."""

from __future__ import annotations

from collections.abc import Sequence

from explorer.events import LaneHeader
from explorer.figures.base import Json, View, step_name
from explorer.figures.labels import plural
from explorer.figures.reasons import role_of
from explorer.figures.tables import Cell, cell, more_row, token_cell
from explorer.figures.theme import Theme
from explorer.passes import cached_before, kept_nodes, window_rows
from explorer.trace import Step

COLUMNS = ["row", "position", "token", "after the commit"]
MOST = 96


def lengths(step: Step) -> str:
    """Lengths in words: before, of the pass, after. A row is one position's keys and values in every layer."""
    before, window = cached_before(step), window_rows(step)
    written, kept = len(step.nodes) + window, len(kept_nodes(step))
    riders = f" ({plural(window, 'window row')} among them)" if window else ""
    return (
        f"{plural(before, 'row')} before; the pass wrote {written:,} behind them{riders}; "
        f"{kept:,} kept, {written - kept:,} dropped; {plural(before + kept, 'row')} after."
    )


def build(header: LaneHeader, step: Step, theme: Theme) -> Json:
    """A line for what was cached, then one for each row that the pass wrote."""
    before = cached_before(step)
    slots = {node: before + place for place, node in enumerate(kept_nodes(step))}
    rows = [_before(before)] if before else []
    rows += [_row(step, node.id, before, slots) for node in step.nodes[:MOST]]
    if len(step.nodes) > MOST:
        rows.append(more_row(len(step.nodes) - MOST, len(COLUMNS)))
    window = window_rows(step)
    if window:
        rows.append(_window(before + len(step.nodes), window))
    words = lengths(step)
    return {"caption": words, "rows": rows, "alt": f"Key/value cache of {step_name(step)}: {words}"}


def _span(first: int, count: int) -> str:
    return f"{first:,}" if count == 1 else f"{first:,}–{first + count - 1:,}"


def _before(before: int) -> list[Cell]:
    where = cell(_span(0, before), "soft", n=True)
    return [where, where, cell(f"{plural(before, 'position')} cached before", "soft"), cell("stay as they are", "soft")]


def _row(step: Step, node: int, before: int, slots: dict[int, int]) -> list[Cell]:
    record, role = step.nodes[node], role_of(step, step.nodes[node])
    here, now = before + node, slots.get(node)
    fate = "dropped" if now is None else "kept in place" if now == here else f"kept, moved to row {now:,}"
    return [
        cell(f"{here:,}", n=True, node=node),
        cell(f"{before + record.depth:,}", n=True, node=node),
        token_cell(record.text, role, node=node),
        cell(fate, role, node=node),
    ]


def _window(first: int, count: int) -> list[Cell]:
    return [
        cell(_span(first, count), "soft", n=True),
        cell(""),
        cell("lookahead window", "soft"),
        cell("dropped", "soft"),
    ]


def columns(header: LaneHeader, steps: Sequence[Step]) -> list[str]:
    """The same in every step."""
    return list(COLUMNS)


CACHE = View(
    name="cache",
    title="Key/value cache",
    label="Rows of the cache before the pass, the rows that the pass wrote, and those that the commit kept.",
    kind="table",
    applies=lambda step: True,
    build=build,
    columns=columns,
    legend=("root", "accepted", "rejected", "unreached"),
)
