"""Words and half sentences that several tellers need."""

from __future__ import annotations

from explorer.figures.labels import count_word, plural, prob, quoted
from explorer.trace import Step

Piece = list[str]
"""[kind, text]"""


def share(value: float) -> str:
    """A probability in running text."""
    return prob(value).replace("<", "under ")


def token(text: str) -> Piece:
    """A token, quoted."""
    return ["token", quoted(text)]


def tokens(texts: list[str]) -> Piece:
    """Several tokens, one after the other."""
    return ["token", " → ".join(quoted(text) for text in texts)]


def gain(step: Step) -> list[Piece]:
    """The result of a step, to follow the target's own token: how much the output grew, and whether it ended."""
    if not step.committed:
        return [["", "; nothing was added to the output yet."]]
    result = ["strong", f"{plural(len(step.committed), 'token')} from one pass"]
    left = len(step.accepted) + 1 - len(step.committed)
    if left <= 0:
        return [["", ": "], result, ["", "."]]
    rest = "the last one was" if left == 1 else f"the last {count_word(left)} were"
    return [["", ". The output ended here, with "], result, ["", f": {rest} not needed."]]
