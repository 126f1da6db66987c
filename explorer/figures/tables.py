"""Cells and rows of table views, as the player reads them."""

from __future__ import annotations

from typing import Any

from explorer.figures.labels import prob, visible

Cell = dict[str, Any]

TOKEN_LIMIT = 16


def cell(text: str, role: str = "", **more: Any) -> Cell:
    """A plain cell; keys without a value are left out. More: n, bar, node, title, m, lit (other nodes)."""
    made: Cell = {"t": text}
    if role:
        made["k"] = role
    return made | {key: value for key, value in more.items() if value is not None}


def token_cell(text: str, role: str = "", limit: int = TOKEN_LIMIT, **more: Any) -> Cell:
    """A token: monospaced, whitespace drawn, cut with the whole on hover."""
    shown, whole = visible(text, limit), visible(text)
    return cell(shown, role, m=True, title=whole if whole != shown else None, **more)


def prob_cell(value: float | None, role: str = "", **more: Any) -> Cell:
    """A probability with its bar."""
    bar = None if value is None else round(min(value, 1.0), 3)
    return cell(prob(value), role, n=True, bar=bar, **more)


def more_row(left: int, columns: int) -> list[Cell]:
    """Says how many rows were left out."""
    return [cell(f"and {left:,} more", "soft"), *({"t": ""} for _ in range(columns - 1))]
