"""Plain decoding: the same loop with nothing proposed, so the baseline pays exactly what the others pay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from explorer.acceptance.code import sampled
from explorer.events import CodeLine
from explorer.methods.base import Method, Outcome, Proposal, Setup
from explorer.params import Params
from explorer.tree import CandidateTree


class Autoregressive(Method):
    """One token a target pass."""

    name = "autoregressive"
    title = "Autoregressive"
    paper = "the baseline"
    summary = "One target pass gives one token; nothing is drafted."

    def __init__(self, params: Params, setup: Setup) -> None:
        pass

    @classmethod
    def subtitle(cls, params: Any) -> str:
        """In a few words."""
        return "one token per pass"

    @classmethod
    def pseudocode(cls, params: Mapping[str, Any]) -> tuple[CodeLine, ...]:
        """All of it: nothing is drafted, so nothing is judged."""
        choice = "a token drawn from p" if sampled(params) else "the likeliest token of p"
        return (
            CodeLine("prefill", "read the prompt with the target; root ← its first token"),
            CodeLine("draft", "no drafts"),
            CodeLine("verify", "p ← target(root), one pass"),
            CodeLine("accept", f"next ← {choice}"),
            CodeLine("commit", "output ← output, next"),
            CodeLine("commit", "cache ← with the root's row; root ← next"),
        )

    @classmethod
    def code(cls, params: Mapping[str, Any]) -> tuple[CodeLine, ...]:
        """Nothing of what is said of drafts holds here."""
        return cls.pseudocode(params)

    @classmethod
    def max_rows(cls, params: Any) -> int:
        """The root alone."""
        return 1

    def start(self, context: list[int], taps: dict[str, Tensor]) -> None:
        """Nothing to learn."""

    def propose(self, context: list[int]) -> Proposal:
        """An empty tree."""
        return Proposal(CandidateTree(context[-1]))

    def observe(self, outcome: Outcome) -> None:
        """Nothing to remember."""
