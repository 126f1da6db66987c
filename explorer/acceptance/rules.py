"""The rules by name, and the parameters that choose one for a lane."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field
from torch import Tensor

from explorer.acceptance.longest import accept_top_k, accept_typical
from explorer.acceptance.matching import accept_block, accept_matching
from explorer.acceptance.speculative import accept_speculative
from explorer.acceptance.verdict import Verdict
from explorer.params import Params
from explorer.sampling import Chooser
from explorer.tree import CandidateTree

RuleName = Literal["greedy", "speculative", "typical", "top-k"]


class RuleParams(Params):
    """Which acceptance rule judges a method's drafts. The first two are lossless."""

    rule: RuleName = Field(
        "greedy",
        title="acceptance rule",
        description="greedy: a draft must be the token that the target chooses (lossless). speculative: a trial with "
        "probability target / draft, then the residual (lossless; at temperature 0 the same as greedy). typical: "
        "Medusa's threshold (not lossless). top-k: among the target's k best (not lossless).",
        json_schema_extra={
            "group": "acceptance",
            "notes": {
                "greedy": "lossless",
                "speculative": "lossless",
                "typical": "not lossless",
                "top-k": "not lossless",
            },
        },
    )
    epsilon: float = Field(
        0.09,
        ge=0.0,
        le=1.0,
        title="epsilon (typical)",
        description="Typical acceptance: the highest threshold.",
        json_schema_extra={"group": "acceptance", "when": {"rule": "typical"}},
    )
    delta: float = Field(
        0.3,
        ge=0.0,
        le=1.0,
        title="delta (typical)",
        description="Typical acceptance: the threshold is at most delta times exp(-entropy).",
        json_schema_extra={"group": "acceptance", "when": {"rule": "typical"}},
    )
    accept_top_k: int = Field(
        3,
        ge=1,
        le=50,
        title="k (top-k)",
        description="top-k: how many of the target's best tokens may be drafted.",
        json_schema_extra={"group": "acceptance", "when": {"rule": "top-k"}},
    )


@dataclass(frozen=True)
class NamedRule:
    """One of the four rules for trees."""

    name: RuleName = "greedy"
    epsilon: float = 0.09
    delta: float = 0.3
    top_k: int = 3

    def lossless(self, temperature: float) -> bool:
        """Typical acceptance is the greedy match at temperature 0; one best token is the greedy match there too."""
        if self.name == "typical":
            return temperature == 0.0
        return self.name != "top-k" or (self.top_k == 1 and temperature == 0.0)

    def __call__(
        self,
        tree: CandidateTree,
        logits: Tensor,
        chooser: Chooser,
        history: Sequence[int],
        draft_probs: Mapping[int, Tensor],
    ) -> Verdict:
        """Judge by name."""
        if self.name == "speculative":
            return accept_speculative(tree, logits, chooser, history, draft_probs)
        if self.name == "typical":
            return accept_typical(tree, logits, chooser, history, epsilon=self.epsilon, delta=self.delta)
        if self.name == "top-k":
            return accept_top_k(tree, logits, chooser, history, k=self.top_k)
        return accept_matching(tree, logits, chooser, history)


@dataclass(frozen=True)
class BlockRule:
    """Jacobi's rule: by prefix, or the whole block at once."""

    name: Literal["prefix", "block"] = "prefix"

    def lossless(self, temperature: float) -> bool:
        """Always."""
        return True

    def __call__(
        self,
        tree: CandidateTree,
        logits: Tensor,
        chooser: Chooser,
        history: Sequence[int],
        draft_probs: Mapping[int, Tensor],
    ) -> Verdict:
        """Judge the chain."""
        return accept_block(tree, logits, chooser, history, whole=self.name == "block")


def rule_of(params: Params) -> NamedRule:
    """The rule that a lane's parameters choose; the greedy match where they choose none."""
    if isinstance(params, RuleParams):
        return NamedRule(params.rule, params.epsilon, params.delta, params.accept_top_k)
    return NamedRule()
