"""Prompt lookup: where the newest tokens stood before in the context, and what was copied from behind them."""

from __future__ import annotations

from typing import Any

from explorer.events import LaneHeader
from explorer.figures.base import NEXT, Json, View, next_committed, payload_as, step_name
from explorer.figures.labels import plural, quoted, visible
from explorer.figures.reasons import role_of
from explorer.figures.theme import Theme
from explorer.payloads import PromptLookupPayload
from explorer.trace import Step

Piece = dict[str, Any]
"""{t: text, k: role, node}; role and node where there are any."""

WIDEST = 60
"""Characters of a matched text."""


def build(header: LaneHeader, step: Step, theme: Theme) -> Json:
    """Two lines of text: the place that was found, and the place where the output stands."""
    payload = payload_as(step, PromptLookupPayload)
    if payload is None:
        return {"caption": "", "lines": [], "alt": ""}
    lines = [_now(step, payload)]
    if payload.copied is not None:
        lines.insert(0, _found(step, payload))
    return {"caption": caption(step, payload), "lines": lines, "alt": f"Prompt lookup of {step_name(step)}. "
            f"{caption(step, payload)}"}  # fmt: skip


def piece(text: str, role: str = "", node: int | str | None = None) -> Piece:
    """Readable text; nothing where there is none."""
    made: Piece = {"t": visible(text)}
    return made | ({"k": role} if role else {}) | ({} if node is None else {"node": node})


def _context(text: str) -> list[Piece]:
    """Text around what matters, if it was recorded: running text, so its spaces are left as they are."""
    return [{"t": visible(text).replace("␣", " "), "k": "soft"}] if text else []


def _found(step: Step, payload: PromptLookupPayload) -> Json:
    """The earlier place: what matched, and what was copied from there, linked to the copies."""
    drafted = range(1, len(step.nodes))
    start, end = payload.matched or (0, 0)
    return {
        "name": f"before, {_places(start, end)}",
        "pieces": [
            *_context(payload.before),
            piece(payload.matched_text, "matched"),
            *(
                piece(token.text, "copy", place if place in drafted else None)
                for place, token in enumerate(payload.tokens, start=1)
            ),
            *_context(payload.after),
        ],
    }


def _places(start: int, end: int) -> str:
    """A span [start, end) as people count: from one."""
    return f"token {end}" if end - start == 1 else f"tokens {start + 1} to {end}"


def _now(step: Step, payload: PromptLookupPayload) -> Json:
    """The end of the output, the copied tokens behind it with what became of them, and the target's own."""
    newest = payload.matched_text or step.nodes[0].text
    pieces = [*_context(payload.lead), piece(newest, "matched" if payload.matched else "", 0)]
    own = piece(step.next_token.text, "bonus" if next_committed(step) else "cut", NEXT)
    chain = [_copied(step, place, token.text) for place, token in enumerate(payload.tokens, start=1)]
    kept = len([node for node in step.accepted if node <= len(chain)])
    return {"name": "now", "pieces": [*pieces, *chain[:kept], own, *chain[kept:]]}


def _copied(step: Step, place: int, text: str) -> Piece:
    """A proposed token: the chain's nodes are 1, 2, 3, ..."""
    if place >= len(step.nodes):
        return piece(text, "dropped")
    return piece(text, role_of(step, step.nodes[place]), place)


def caption(step: Step, payload: PromptLookupPayload) -> str:
    """What was looked for and found, in a sentence or two."""
    if not payload.ngram or payload.matched is None:
        return "The newest tokens do not occur earlier in the context: nothing was copied."
    accepted = len([node for node in step.accepted if node <= len(payload.tokens)])
    newest = "The newest token" if payload.ngram == 1 else f"The newest {payload.ngram} tokens"
    stood = "was" if payload.ngram == 1 else "were"
    return (
        f"{newest}, {quoted(payload.matched_text, WIDEST)}, {stood} there before, at {_places(*payload.matched)} of "
        f"prompt and output. {plural(len(payload.tokens), 'token')} copied from behind, {accepted} accepted."
    )


LOOKUP = View(
    name="lookup",
    title="Lookup",
    label="Where the newest tokens stood before in the context, what was copied from there, and what was accepted.",
    kind="text",
    applies=lambda step: payload_as(step, PromptLookupPayload) is not None,
    build=build,
    legend=("matched", "copy", "accepted", "bonus", "rejected", "unreached"),
)
