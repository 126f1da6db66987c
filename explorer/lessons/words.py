"""A lesson's text with its facts filled in: {name}, {name:%} a share, {name:M} millions, {name:.2f} and {name:,} as
Python writes them, {name:draft} or {name:pass/passes} a number with its noun."""

from __future__ import annotations

import string

from explorer.errors import ExplorerError
from explorer.figures.labels import plural
from explorer.lessons.facts import Facts, Quoted
from explorer.narrate.words import Piece, share


def fill(text: str, facts: Facts) -> list[Piece]:
    """Pieces [kind, text] for the player; tokens are marked. ExplorerError where a fact is not known of the step."""
    pieces: list[Piece] = []
    for words, name, form, _ in string.Formatter().parse(text):
        _add(pieces, "", words)
        if name is None:
            continue
        if name not in facts:
            raise ExplorerError(f"A lesson says {name}, which its step does not have.")
        value = facts[name]
        _add(pieces, "token" if isinstance(value, Quoted) else "", _written(value, form or ""))
    return pieces


def _add(pieces: list[Piece], kind: str, text: str) -> None:
    if pieces and pieces[-1][0] == kind:
        pieces[-1][1] += text
    elif text:
        pieces.append([kind, text])


def _written(value: int | float | str, form: str) -> str:
    if isinstance(value, str) or not form:
        return str(value)
    if form == "%":
        return share(value)
    if form == "M":
        return f"{value / 1e6:.0f} million" if value >= 1e7 else f"{value / 1e6:.1f} million"
    if form == "," or form.startswith("."):
        return format(value, form)
    one, _, many = form.partition("/")
    return plural(int(value), one, many) if many else plural(int(value), one)
