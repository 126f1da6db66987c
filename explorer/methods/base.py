"""What a method says: what it proposes, what it remembers, what it records. The loop is in decode.py."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from explorer.params import Params
from explorer.target import PassOutput, Riders
from explorer.texts import TokenTexts
from explorer.trace import Record
from explorer.tree import CandidateTree


@dataclass(frozen=True)
class Proposal:
    """What the next target pass verifies."""

    tree: CandidateTree
    riders: Riders | None = None


@dataclass(frozen=True)
class Outcome:
    """What the pass gave and what was kept: the method's lesson from a step."""

    tree: CandidateTree
    output: PassOutput
    """Rows of the tree's nodes, then of the riders."""
    accepted: tuple[int, ...]
    """Node ids of the accepted path below the root whose rows are kept: the end of the output may cut it."""
    agreed: tuple[int, ...]
    """The whole path that the target agreed with."""
    context: list[int]
    """All token ids after the step; the last one is the next root, not cached yet."""


@dataclass(frozen=True)
class Setup:
    """What a lane gives its method. Nothing in it is shared with another lane but the drafter's weights."""

    texts: TokenTexts
    generator: random.Random
    """The lane's own, seeded: for methods that guess at random."""
    capacity: int
    """Positions that the lane may reach: prompt, new tokens, and the rows of one pass."""
    drafter: Any = None
    """The loaded module of the kind in `Method.needs`."""


class Method(ABC):
    """One way to draft. A subclass is final, lives in its own file and is listed in METHODS."""

    name: ClassVar[str]
    title: ClassVar[str]
    paper: ClassVar[str]
    """Authors, year, arXiv id."""
    summary: ClassVar[str]
    """One sentence for people."""
    lossless: ClassVar[bool] = True
    """Does its output equal plain decoding's (greedy) or have its distribution (sampling)?"""
    needs: ClassVar[str | None] = None
    """Kind of trained drafter: medusa, eagle; None for none."""
    taps: ClassVar[frozenset[str]] = frozenset()
    """Hidden states of the target that it reads; see explorer/target.py."""
    Params: ClassVar[type[Params]] = Params

    draft_passes: int = 0
    """Forward passes of the drafter so far."""

    @classmethod
    def subtitle(cls, params: Any) -> str:
        """The parameters that matter, in a few words."""
        return ""

    @classmethod
    @abstractmethod
    def max_rows(cls, params: Any) -> int:
        """Most rows that one pass may have, root and riders included: the cache needs room for them."""

    @abstractmethod
    def start(self, context: list[int], taps: dict[str, Tensor]) -> None:
        """Learn the prompt. context: prompt and first output token (the root); taps: per tap (prompt, hidden)."""

    @abstractmethod
    def propose(self, context: list[int]) -> Proposal:
        """Draft below context[-1], the root."""

    @abstractmethod
    def observe(self, outcome: Outcome) -> None:
        """Learn what the step gave."""

    def payload(self) -> Record | None:
        """What only this method knows of the step that `observe` has just seen. Called when recording."""
        return None
