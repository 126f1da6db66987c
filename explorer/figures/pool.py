"""Lookahead's n-gram pool in one step: what was looked up, what was verified, what came and what went."""

from __future__ import annotations

from collections.abc import Iterable

from explorer.events import LaneHeader
from explorer.figures.base import Json, View, payload_as, step_name
from explorer.figures.labels import plural, quoted
from explorer.figures.tables import Cell, cell, more_row, token_cell
from explorer.figures.theme import Theme
from explorer.payloads import Guess, LookaheadPayload, NGram
from explorer.trace import Step

MOST = 24
"""Rows shown of each sort of change."""
WIDEST = 40
"""Characters of an n-gram's text."""

COLUMNS = ("what", "n-gram", "result")


def build(header: LaneHeader, step: Step, theme: Theme) -> Json:
    """Verified guesses first, best first; then what was added, seen again and evicted."""
    payload = payload_as(step, LookaheadPayload)
    if payload is None:
        return {"caption": "", "rows": [], "alt": ""}
    rows = [_guess_row(payload, guess) for guess in sorted(payload.guesses, key=lambda guess: -guess.hits)]
    rows += _changes(payload.added, "added", "new")
    rows += _changes(payload.refreshed, "refreshed", "seen again, young again")
    rows += _changes(payload.evicted, "evicted", "oldest of its key, dropped")
    return {"caption": caption(payload), "rows": rows, "alt": f"n-gram pool of {step_name(step)}. {caption(payload)}"}


def caption(payload: LookaheadPayload) -> str:
    """Look-up and size in a sentence or two."""
    if not payload.pool_ngrams and payload.warm_up:
        return "Nothing was looked up: the window is still filling, and the pool is empty."
    size = f"The pool holds {plural(payload.pool_ngrams, 'n-gram')} under {plural(payload.pool_keys, 'key')}."
    if payload.warm_up:
        return f"Nothing was looked up: the window is still filling. {size}"
    if not payload.guesses:
        return f"Looked up {quoted(payload.key_text)}: nothing there. {size}"
    found = plural(len(payload.guesses), "guess", "guesses")
    hits = f"best hit {plural(payload.hit_length, 'token')}" if payload.hit_length else "no hit"
    return f"Looked up {quoted(payload.key_text)}: {found}, {hits}. {size}"


def _guess_row(payload: LookaheadPayload, guess: Guess) -> list[Cell]:
    """A verified n-gram, linked to the deepest of its nodes that was accepted, or to its first; all light it up."""
    nodes = guess.nodes[: guess.hits] or guess.nodes[:1]
    role = "hit" if guess.hits else "rejected"
    length = max(len(guess.rest), 1)
    return [
        cell("verified", role),
        token_cell(
            payload.key_text + guess.text, role, WIDEST, node=nodes[-1] if nodes else None, lit=list(guess.nodes)
        ),
        cell(f"{guess.hits} of {len(guess.rest)}", role, bar=round(guess.hits / length, 3)),
    ]


def _changes(ngrams: Iterable[NGram], kind: str, words: str) -> list[list[Cell]]:
    listed = list(ngrams)
    rows = [[cell(kind, kind), token_cell(ngram.text, kind, WIDEST), cell(words, "soft")] for ngram in listed[:MOST]]
    return rows + ([more_row(len(listed) - MOST, len(COLUMNS))] if len(listed) > MOST else [])


POOL = View(
    name="pool",
    title="n-gram pool",
    label="The n-grams that this step looked up, verified, added and evicted.",
    kind="table",
    applies=lambda step: payload_as(step, LookaheadPayload) is not None,
    build=build,
    columns=lambda header, steps: list(COLUMNS),
)
