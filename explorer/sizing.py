"""How large a tree pays: expected tokens against expected time, from measured costs and what was accepted so far.

A step that verifies n drafted nodes, drafted in d passes, takes verify_ms(1 + n) + d draft passes and is expected to
commit 1 + (sum of the n nodes' chances) tokens. A node's chance is its score (the product of draft probabilities
along its path) times a factor learnt from the steps before: accepted drafts over the sum of verified scores.

What is maximised is tokens - rate * time, where rate is the lane's own tokens per millisecond so far, never less than
plain decoding's: the long-run tokens per millisecond are highest where each step does that (Dinkelbach 1967).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

PROBE_EVERY = 16
"""Steps after which drafting is tried again where it did not pay; doubled each time it does not pay again."""
PROBE_AT_MOST_EVERY = 64
PROBE_DEPTH, PROBE_NODES = 2, 3
"""A probe is small: levels that it drafts, and nodes that it verifies at least, or nothing would be learnt."""
FIRST_DEPTH = 3
"""Levels of the first draft; a level more is tried as long as that pays."""
MEMORY = 0.9
"""Share of what was learnt that a step keeps; the last ten steps or so decide."""
PRIOR_SCORE_SUM = 1.0
"""Verified scores that always count as if they had come true: what one knows before, and after a long silence."""


@dataclass(frozen=True)
class Costs:
    """What passes cost on this machine, measured when the model was loaded (medians, milliseconds)."""

    rows: tuple[int, ...]
    """Rows of a target pass, ascending, from 1."""
    verify_ms: tuple[float, ...]
    draft_pass_ms: float = 0.0
    """One pass of the drafter, its head included; 0 where drafting is free or nobody drafts."""
    padded: bool = False
    """Are passes padded to the next of these numbers of rows (explorer/static.py)? Then they cost what that takes."""

    def verify(self, rows: int) -> float:
        """A target pass over so many rows, interpolated; beyond the largest measured it grows as the last piece did."""
        if self.padded:
            rows = next((measured for measured in self.rows if measured >= rows), rows)
        if rows <= self.rows[-1] or len(self.rows) < 2:
            return float(np.interp(rows, self.rows, self.verify_ms))
        slope = (self.verify_ms[-1] - self.verify_ms[-2]) / (self.rows[-1] - self.rows[-2])
        return self.verify_ms[-1] + max(0.0, slope) * (rows - self.rows[-1])


@dataclass(frozen=True)
class Size:
    """How much to draft and to verify in a step, and why."""

    nodes: int
    """The method's own drafts to verify."""
    depth: int
    """Levels to draft; 0: none."""
    branch_tokens: int
    """Tokens of the context branch to verify."""
    expected_tokens: float
    expected_ms: float
    probing: bool = False
    """Drafting did not pay lately, or was not tried yet, and is tried now."""
    declined: Size | None = None
    """Where nothing is verified: the best draft that was seen last, which does not pay."""


@dataclass
class Sizer:
    """Chooses sizes for one lane. Its choices depend on the costs, which are fixed, and on the steps so far alone."""

    costs: Costs
    most_nodes: int
    most_depth: int
    pass_per_depth: bool = True
    """Does every level cost a pass of the drafter (EAGLE), or one pass give all levels (Medusa)?"""
    exact: bool = False
    """Scores are chances already (prompt lookup): nothing to calibrate, and drafting is free."""
    choice: Size = field(init=False)
    """What was chosen last."""
    _branch: tuple[float, ...] = field(default=(), init=False)
    _levels: Sequence[Sequence[float]] = field(default=(), init=False)
    _scores: float = field(default=0.0, init=False)
    _accepted: float = field(default=0.0, init=False)
    _tokens: float = field(default=0.0, init=False)
    _ms: float = field(default=0.0, init=False)
    _gains: list[float] = field(default_factory=list, init=False)
    """Per depth, from 1: what verifying so deep a draft was worth over a plain pass, in tokens; drafting left out."""
    _seen: Size | None = field(default=None, init=False)
    _idle: int = field(default=0, init=False)
    _patience: int = field(default=PROBE_EVERY, init=False)

    def __post_init__(self) -> None:
        self.choice = self._best([], 0)

    @property
    def calibration(self) -> float:
        """Accepted drafts per unit of verified score."""
        return 1.0 if self.exact else (self._accepted + PRIOR_SCORE_SUM) / (self._scores + PRIOR_SCORE_SUM)

    @property
    def rate(self) -> float:
        """Tokens per millisecond that a step has to beat."""
        plain = 1.0 / self.costs.verify(1)
        return max(plain, self._tokens / self._ms) if self._ms else plain

    def draft_ms(self, depth: int) -> float:
        """Passes of the drafter for so many levels."""
        return self.costs.draft_pass_ms * (depth if self.pass_per_depth else min(depth, 1))

    def begin(self, branch: Sequence[float] = ()) -> Size:
        """The depth to draft to, judged by the steps before. branch: chances of the context branch's tokens."""
        self._branch, self._levels = tuple(branch), ()
        plain = self._best([], 0)
        if not self._gains or self._idle >= self._patience:
            depth = self._bounded(PROBE_DEPTH if self._gains else FIRST_DEPTH)
            self.choice = replace(plain, depth=depth, probing=True)
            return self.choice
        surplus = [gain - self.rate * self.draft_ms(depth) for depth, gain in enumerate(self._gains, start=1)]
        best = int(np.argmax(surplus)) + 1
        if surplus[best - 1] > 0.0:
            # one level more than paid: what is not drafted is not learnt either
            self.choice = replace(plain, depth=self._bounded(best + 1))
        else:
            self.choice = replace(plain, declined=self._seen)
        return self.choice

    def keep(self, levels: Sequence[Sequence[float]], *, whole: bool = False) -> int:
        """How many of the drafted nodes, best first, to verify. levels: scores per depth, from 1.

        whole: the drafts were drawn at random. Then all of them are verified: which ones are must not depend on what
        was drawn, or the output's distribution would change.
        """
        depth, scores = len(levels), [score for level in levels for score in level]
        size = self._best(scores, depth)
        if whole:
            size = replace(self._of(scores, depth, len(scores)), branch_tokens=size.branch_tokens)
        elif self.choice.probing and not self.exact and size.nodes < min(PROBE_NODES, len(scores)):
            size = self._of(scores, depth, min(PROBE_NODES, len(scores)))
        if scores:
            self._seen = max((self._of(scores, depth, count) for count in self._counts(scores)), key=self._value)
        declined = self._seen if scores and not size.nodes else None
        self.choice = replace(size, probing=self.choice.probing, declined=declined)
        self._levels = levels
        return size.nodes

    def learn(self, verified: Sequence[float], accepted: int, committed: int) -> None:
        """What the step gave. verified: scores of the method's verified nodes; accepted: how many of them."""
        self._scores = MEMORY * self._scores + sum(verified)
        self._accepted = MEMORY * self._accepted + accepted
        self._note()
        self._tokens = MEMORY * self._tokens + committed
        self._ms = MEMORY * self._ms + self.choice.expected_ms
        if self.choice.depth == 0:
            self._idle += 1
            return
        if self.choice.probing and self._idle:
            self._patience = min(2 * self._patience, PROBE_AT_MOST_EVERY)
        elif not self.choice.probing:
            self._patience = PROBE_EVERY
        self._idle = 0

    def _bounded(self, depth: int) -> int:
        return min(depth, self.most_depth) if self.pass_per_depth else self.most_depth

    def _note(self) -> None:
        """What each depth would have been worth in this step, had it been the last one drafted."""
        levels, plain = self._levels, self._value(self._best([], 0))
        memory = 0.0 if self.choice.probing else MEMORY  # what was known before a long silence is out of date
        for depth in range(1, len(levels) + 1):
            best = self._best([score for level in levels[:depth] for score in level], 0)
            gain = self._value(best) - plain
            if depth > len(self._gains):
                self._gains.append(gain)
            else:
                self._gains[depth - 1] = memory * self._gains[depth - 1] + (1 - memory) * gain

    def _value(self, size: Size) -> float:
        return size.expected_tokens - self.rate * size.expected_ms

    def _counts(self, scores: Sequence[float]) -> range:
        return range(1, min(len(scores), self.most_nodes) + 1)

    def _chances(self, scores: Sequence[float]) -> list[float]:
        ranked = sorted(scores, reverse=True)[: self.most_nodes]
        return [min(score * self.calibration, 1.0) for score in ranked]

    def _of(self, scores: Sequence[float], depth: int, nodes: int) -> Size:
        """The size with so many of the method's nodes and no branch."""
        tokens = 1.0 + sum(self._chances(scores)[:nodes])
        return Size(nodes, depth, 0, tokens, self.costs.verify(1 + nodes) + self.draft_ms(depth))

    def _best(self, scores: Sequence[float], depth: int) -> Size:
        """The best set of rows out of these nodes and the branch; both come in the order of their chances."""
        own = self._chances(scores)
        rows = sorted([(-chance, 0) for chance in own] + [(-chance, 1) for chance in self._branch])
        tokens = 1.0 - np.concatenate([[0.0], np.cumsum([chance for chance, _ in rows])])
        times = np.array([self.costs.verify(1 + count) for count in range(len(tokens))]) + self.draft_ms(depth)
        count = int(np.argmax(tokens - self.rate * times))
        branch = sum(kind for _, kind in rows[:count])
        return Size(count - branch, depth, branch, float(tokens[count]), float(times[count]))
