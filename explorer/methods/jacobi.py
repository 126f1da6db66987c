"""Jacobi: the target itself corrects a block of guesses, all positions at once, until it stands still."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import Field
from torch import Tensor

from explorer.acceptance import BlockRule, Rule
from explorer.events import CodeLine
from explorer.methods._code import said
from explorer.methods.base import Method, Outcome, Proposal, Setup
from explorer.params import Params
from explorer.payloads import JacobiPayload, WindowToken
from explorer.trace import Record
from explorer.tree import Candidate, CandidateTree


class JacobiParams(Params):
    """Size of the block, and when its tokens count."""

    block: int = Field(16, ge=2, le=64, title="block", description="Positions that are corrected in parallel.")
    verification: Literal["prefix", "block"] = Field(
        "prefix",
        title="verification",
        description="prefix: the leading tokens that agree are kept at once, and the block slides on. block: nothing "
        "is kept until the whole block agrees.",
    )


class Jacobi(Method):
    """Parallel fixed-point iteration (Santilli et al., arXiv 2305.10427, section 3; block-wise: GS-Jacobi).

    A block is the root and guesses behind it. Each pass replaces every guess by the target's token after the
    guess before it. Position i is right after i passes at the latest, so a block never takes more passes
    than it has positions. It begins with tokens drawn at random from the context, as in Consistency LLMs
    (Kou et al., arXiv 2403.00835); their blocks shrink to the converged end, while here the block of `prefix`
    slides and is filled up at its end. Under sampling the draw at a position depends on seed and position
    alone: see `accept_block`. A block is no longer than what the output can still take.
    """

    name = "jacobi"
    title = "Jacobi"
    paper = "Santilli et al. 2023, arXiv 2305.10427"
    summary = "No drafter: the target corrects a block of random guesses in parallel until they no longer change."
    Params = JacobiParams

    def __init__(self, params: JacobiParams, setup: Setup) -> None:
        self._params, self._texts, self._random = params, setup.texts, setup.generator
        self._end = setup.capacity - self.max_rows(params)
        self._guesses: list[int] = []
        self._filled = 0
        self._iteration = -1
        self._begin, self._size = 0, 0
        self._position = 0
        self._seen: Outcome | None = None
        self._committed = 0

    @classmethod
    def subtitle(cls, params: Any) -> str:
        """In a few words."""
        return f"block of {params.block}, verified by {params.verification}"

    @classmethod
    def rule(cls, params: Any) -> Rule:
        """By prefix or by block."""
        return BlockRule(params.verification)

    @classmethod
    def pseudocode(cls, params: Mapping[str, Any]) -> tuple[CodeLine, ...]:
        """Guesses that the target corrects."""
        return (
            CodeLine("draft", "guesses ← what the pass before made of them", "old guesses"),
            CodeLine("draft", f"fill the block of {said(params, 'block')} up with random tokens", "payload.random"),
            CodeLine("verify", "p ← target(root and guesses), one pass over the block"),
            CodeLine("commit", "guesses ← want, behind the new root"),
        )

    @classmethod
    def max_rows(cls, params: Any) -> int:
        """The block, root included."""
        return int(params.block)

    def start(self, context: list[int], taps: dict[str, Tensor]) -> None:
        """The first `propose` fills the block."""

    def propose(self, context: list[int]) -> Proposal:
        """The guesses as a chain below the root, filled up at random."""
        size = max(1, min(self._params.block, self._end - len(context)))
        self._position = len(context) - 1
        if self._iteration < 0 or self._position >= self._begin + self._size:
            self._iteration, self._begin, self._size = 0, self._position, size
        else:
            self._iteration += 1
        known = self._guesses[: size - 1]
        self._filled = size - 1 - len(known)
        self._guesses = [*known, *self._random.choices(context, k=self._filled)]
        chain = tuple(Candidate(token, place, "jacobi") for place, token in enumerate(self._guesses))
        return Proposal(CandidateTree(context[-1], chain))

    def observe(self, outcome: Outcome) -> None:
        """The target's tokens are the next guesses: behind the new root, or, where nothing was kept, the old one."""
        self._seen, self._committed = outcome, len(outcome.context) - 1 - self._position
        wanted = list(outcome.wanted)
        self._guesses = wanted[self._committed :] if self._committed else wanted[:-1]

    def payload(self) -> Record | None:
        """The block before the pass, the target's tokens after each position, and how far both agree."""
        if self._seen is None:
            return None
        block, wanted = self._seen.tree.token_ids, self._seen.wanted
        agreed = next((place for place in range(1, len(block)) if block[place] != wanted[place - 1]), len(block))
        return JacobiPayload(
            iteration=self._iteration,
            position=self._position,
            block=self._shown(block),
            outputs=self._shown(wanted),
            random=min(self._filled, len(block) - 1),
            fixed=agreed,
            verification=self._params.verification,
            committed=self._committed,
        )

    def _shown(self, token_ids: Iterable[int]) -> tuple[WindowToken, ...]:
        return tuple(WindowToken(token_id=token, text=self._texts.show(token)) for token in token_ids)
