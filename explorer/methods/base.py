"""What a method says: what it proposes, what it remembers, what it records. The loop is in decode.py."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from pydantic import Field
from torch import Tensor

from explorer.acceptance import Rule, RuleParams, rule_of
from explorer.catalogue import BARELY
from explorer.events import CodeLine
from explorer.methods._code import joined, shared_lines
from explorer.params import Params
from explorer.sampling import Chooser, SamplingSettings
from explorer.sizing import Costs, Sizer
from explorer.target import PassOutput, Riders
from explorer.texts import TokenTexts
from explorer.trace import Decision, Record
from explorer.tree import CandidateTree


@dataclass(frozen=True)
class Proposal:
    """What the next target pass verifies."""

    tree: CandidateTree
    riders: Riders | None = None
    draft_probs: Mapping[int, Tensor] = field(default_factory=dict)
    """Per node whose children were drawn at random: the distribution (V,) that they were drawn from."""

    @property
    def deepest(self) -> int:
        """Positions that the farthest row stands behind the root."""
        return max((*self.tree.depths, *(self.riders.offsets if self.riders else ())))


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
    """All token ids after the step; the last one is the next root, not cached yet. The same as before the step
    where a block method committed nothing."""
    wanted: tuple[int, ...] = ()
    """The target's token after every node, from rules that look at all of them."""
    decisions: Mapping[int, Decision] = field(default_factory=dict)
    """What the acceptance rule saw, per judged node."""


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
    drafts: Chooser = field(default_factory=lambda: Chooser(SamplingSettings()))
    """The lane's sampling settings with a generator for drafts: drafts must come from the same processed
    distribution that their acceptance test uses."""
    vocabulary_tokens: int = 0
    """Logits in a row of the target."""
    num_layers: int = 0
    """Layers of the target."""
    sizer: Sizer | None = None
    """Says how much to draft; None where the parameters do."""


CONTEXT_BRANCH_NGRAM = 3
"""Longest n-gram that a context branch looks for."""


class TreeParams(RuleParams):
    """What every method that drafts a tree can be told besides."""

    context_branch: int = Field(
        0,
        ge=0,
        le=32,
        title="context branch",
        description="Also verify the tokens that prompt lookup proposes, up to this many, in the same pass; 0: none.",
    )


class SizedParams(TreeParams):
    """A tree whose size may follow the machine and the text."""

    size: Literal["fixed", "auto"] = Field(
        "fixed",
        title="size",
        description="fixed: always as large as the fields above say. auto: they are the most, and each step drafts as "
        "much as pays, or nothing, by the measured cost of passes and by what was accepted before.",
    )


class TrainingParams(Params):
    """Parameters of a method whose drafter also comes barely trained."""

    training: Literal["full", "barely"] = Field(
        "full",
        title="training",
        description="full: the drafter as it ships. barely: the same run's earliest useful checkpoint, to see what "
        "training buys.",
    )


class Method(ABC):
    """One way to draft. A subclass is final, lives in its own file and is listed in METHODS."""

    name: ClassVar[str]
    title: ClassVar[str]
    paper: ClassVar[str]
    """Authors, year, arXiv id."""
    summary: ClassVar[str]
    """One sentence for people."""
    needs: ClassVar[str | None] = None
    """Kind of trained drafter: medusa, eagle, eagle3, draft-model; None for none."""
    taps: ClassVar[frozenset[str]] = frozenset()
    """Hidden states of the target that it reads; see explorer/target.py."""
    Params: ClassVar[type[Params]] = Params

    pass_per_depth: ClassVar[bool] = True
    """Does every level of drafts cost a pass of the drafter?"""
    draft_passes: int = 0
    """Forward passes of the drafter so far."""

    @classmethod
    def subtitle(cls, params: Any) -> str:
        """The parameters that matter, in a few words."""
        return ""

    @classmethod
    def pseudocode(cls, params: Mapping[str, Any]) -> tuple[CodeLine, ...]:
        """What it does that others do not, a line each, with the parameters that a trace holds; see `code`."""
        return (CodeLine("draft", "drafts ← a tree of candidate tokens below the root", "drafts"),)

    @classmethod
    def code(cls, params: Mapping[str, Any]) -> tuple[CodeLine, ...]:
        """The whole loop in a few lines, each with its phase: its own ones, and what all methods share."""
        own = cls.pseudocode(params)
        if cls.needs is not None and all(line.phase != "drafter-prefill" for line in own):
            own = (CodeLine("drafter-prefill", "read the prompt with the drafter"), *own)
        return joined(own, shared_lines(params))

    @classmethod
    def rule(cls, params: Any) -> Rule:
        """The acceptance rule that judges its drafts."""
        return rule_of(params)

    @classmethod
    def drafter_kind(cls, params: Any) -> str | None:
        """Which of the loaded drafters these parameters ask for: the kind in `needs`, or its barely trained form."""
        barely = cls.needs is not None and getattr(params, "training", "full") == "barely"
        return f"{cls.needs}{BARELY}" if barely else cls.needs

    @classmethod
    def taps_for(cls, drafter: Any, num_layers: int) -> frozenset[str]:
        """The taps with this drafter on a target of so many layers."""
        return cls.taps

    @classmethod
    def sizer(cls, params: Any, drafter: Any, costs: Costs) -> Sizer | None:
        """Who chooses sizes for a lane with `size: auto`; None: this method's size is always fixed."""
        return None

    @classmethod
    @abstractmethod
    def max_rows(cls, params: Any) -> int:
        """Most rows that one pass may have, root and riders included, a context branch left out."""

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
