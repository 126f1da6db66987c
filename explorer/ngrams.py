"""Prompt lookup: what followed the last time that the newest tokens stood in the context (Saxena 2023)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

Match = Literal["leftmost", "latest"]


@dataclass(frozen=True)
class Found:
    """A span of the context whose continuation may come again."""

    ngram: int
    """Tokens that matched."""
    start: int
    """Where the matched span begins in the context."""
    tokens: tuple[int, ...]
    """What followed it there."""


def find_continuation(context: Sequence[int], *, max_ngram: int, tokens: int, match: Match) -> Found | None:
    """The newest n-gram elsewhere in the context, the longest n first; up to `tokens` tokens that followed it.

    The trailing n-gram itself does not count. leftmost: the first match, as transformers' prompt lookup takes
    it; latest: the last one. A match near the end may have fewer tokens behind it. None where nothing matches.
    """
    ids = np.asarray(context)
    for ngram in range(min(max_ngram, len(ids) - 1), 0, -1):
        starts = len(ids) - ngram  # a span that begins at 0 .. starts - 1 has something behind it
        hits = np.ones(starts, dtype=bool)
        for place in range(ngram):
            hits &= ids[place : place + starts] == ids[len(ids) - ngram + place]
        where = np.flatnonzero(hits)
        if len(where):
            start = int(where[0] if match == "leftmost" else where[-1])
            behind = start + ngram
            return Found(ngram, start, tuple(int(token) for token in ids[behind : behind + tokens]))
    return None


@dataclass
class CopyChances:
    """How likely copied tokens are to come again, learnt from what followed earlier matches in the same lane.

    Every match teaches something, verified or not: the output says how far the copy would have been right.
    """

    first: dict[int, float] = field(default_factory=dict)
    """Per length of the match: right first tokens, as a share."""
    going_on: float = 0.8
    """Right next tokens after a right one, as a share."""

    def of(self, found: Found | None) -> list[float]:
        """Chance per copied token, falling."""
        if found is None:
            return []
        first = self.first.get(found.ngram, _first_guess(found.ngram))
        return [first * self.going_on**place for place in range(len(found.tokens))]

    def learn(self, found: Found | None, committed: Sequence[int]) -> None:
        """committed: the tokens that really came."""
        if found is None or not committed or not found.tokens:
            return
        pairs = list(zip(found.tokens, committed, strict=False))
        right = next((place for place, (copied, came) in enumerate(pairs) if copied != came), len(pairs))
        old = self.first.get(found.ngram, _first_guess(found.ngram))
        self.first[found.ngram] = _moved(old, right > 0)
        for place in range(1, len(pairs)):
            if place <= right:
                self.going_on = _moved(self.going_on, place < right)


def _first_guess(ngram: int) -> float:
    """Before anything was seen: longer matches are better ones."""
    return min(0.2 * ngram, 0.6)


def _moved(share: float, right: bool, step: float = 0.1) -> float:
    return (1 - step) * share + step * right
