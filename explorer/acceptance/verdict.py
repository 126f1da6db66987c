"""What an acceptance rule says of a step, and what a rule is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from explorer.sampling import Choice, Chooser
from explorer.trace import Decision
from explorer.tree import CandidateTree


@dataclass(frozen=True)
class Verdict:
    """The accepted path below the root, top down; the target's own token after it; what was decided."""

    accepted: tuple[int, ...]
    choice: Choice
    decisions: dict[int, Decision]
    wanted: tuple[int, ...] = ()
    """The target's token after every node, from rules that look at all of them."""
    commits: bool = True
    """False: the step adds nothing yet, neither drafts nor the target's token (a block that is not settled)."""
    left: Tensor | None = field(default=None, compare=False, repr=False)
    """(V,): what rejections left of the target's distribution, and the target's own token was drawn from."""


class Rule(Protocol):
    """Judges a step. tree: T nodes; logits: (T, V), a row per node; history: all token ids up to the root.

    draft_probs: per node whose children were drawn at random the distribution (V,) they were drawn from.
    """

    @property
    def name(self) -> str:
        """As it stands in the trace."""

    def lossless(self, temperature: float) -> bool:
        """Does the output equal plain decoding's, or have its distribution, at this temperature?"""

    def __call__(
        self,
        tree: CandidateTree,
        logits: Tensor,
        chooser: Chooser,
        history: Sequence[int],
        draft_probs: Mapping[int, Tensor],
    ) -> Verdict: ...
