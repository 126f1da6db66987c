"""Which path of the candidate tree the target agrees with: pure functions of tree and logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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


def accept_matching(tree: CandidateTree, logits: Tensor, chooser: Chooser, history: Sequence[int]) -> Verdict:
    """Walk down: the target chooses a token at the current node; a child that carries it is accepted.

    logits: (T, V), a row per node. history: all token ids up to and including the root. Greedy: the longest
    path that agrees with the argmax. Sampling: one draw per visited node, and the draw itself is emitted,
    which keeps the target's distribution for any deterministic draft tree (acceptance probability of a
    draft x is target_probs[x], the residual is target_probs without x; Leviathan et al., arXiv 2211.17192,
    section 2.3 with a one-hot draft distribution).
    """
    children = tree.children()
    tokens = tree.token_ids
    best = logits[: len(tree)].argmax(dim=-1).tolist() if chooser.greedy else None
    decisions: dict[int, Decision] = {}
    path: list[int] = []
    node, seen = 0, list(history)
    while True:
        choice = None if best is not None else chooser.choose(logits[node], seen)
        wanted = best[node] if best is not None else choice.token_id if choice else -1
        rule = "greedy match" if best is not None else "sample match"
        decisions |= {child: Decision(rule=rule, wanted=wanted) for child in children[node]}
        step = next((child for child in children[node] if tokens[child] == wanted), None)
        if step is None:
            return Verdict(tuple(path), choice or chooser.choose(logits[node], seen), decisions)
        path.append(step)
        node = step
        seen.append(tokens[step])
