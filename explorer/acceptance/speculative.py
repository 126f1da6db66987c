"""Speculative sampling: trials against the draft's probability, and the residual after a rejection. Lossless."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from explorer.acceptance.matching import accept_matching
from explorer.acceptance.verdict import Verdict
from explorer.sampling import Chooser
from explorer.trace import Decision
from explorer.tree import CandidateTree


def accept_speculative(
    tree: CandidateTree,
    logits: Tensor,
    chooser: Chooser,
    history: Sequence[int],
    draft_probs: Mapping[int, Tensor],
) -> Verdict:
    """Walk down; at each node try its children in turn, each with a trial of its own.

    A drawn child (Leviathan et al., arXiv 2211.17192, algorithm 1; Chen et al., arXiv 2302.01318, algorithm 2;
    several siblings without replacement: EAGLE, arXiv 2401.15077, section 3.3) is accepted with probability
    min(1, target_prob / draft_prob); after a rejection target_probs become norm(max(0, target_probs -
    draft_probs)), and draft_probs lose the token and are renormalised. A child that was not drawn but simply
    proposed has a one-hot draft distribution: accepted with its target_prob, else taken out of target_probs.
    No child accepted: the next token is drawn from what is left. Greedy, all of this is the greedy match.
    """
    if chooser.greedy:
        return accept_matching(tree, logits, chooser, history)
    children, tokens = tree.children(), tree.token_ids
    decisions: dict[int, Decision] = {}
    path: list[int] = []
    node, seen = 0, list(history)
    while True:
        trials = _Trials(chooser.distribution(logits[node], seen), draft_probs.get(node))
        taken = None
        for child in children[node]:
            drawn = node in draft_probs and tree.candidates[child - 1].drawn
            decisions[child] = trials.trial(tokens[child], drawn, chooser)
            if decisions[child].accepted:
                taken = child
                break
        if taken is None:
            token = chooser.pick(trials.target)
            choice = chooser.chosen(trials.target, token, logits[node], "residual" if children[node] else "sample")
            return Verdict(tuple(path), choice, decisions, left=trials.target if children[node] else None)
        path.append(taken)
        node = taken
        seen.append(tokens[taken])


@dataclass
class _Trials:
    """The trials at one node: what is left of both distributions, each (V,)."""

    target: Tensor
    draft: Tensor | None

    def trial(self, token: int, drawn: bool, chooser: Chooser) -> Decision:
        """Try a child; a rejection leaves the residual in `target`."""
        target_prob = float(self.target[token])
        draft_prob = float(self.draft[token]) if drawn and self.draft is not None else 1.0
        ratio = min(1.0, target_prob / draft_prob) if draft_prob > 0 else 0.0
        accepted, draw = chooser.coin(ratio)
        mass = None if accepted else self._reject(token, drawn)
        return Decision(
            rule="speculative",
            accepted=accepted,
            target_prob=target_prob,
            draft_prob=draft_prob,
            ratio=ratio,
            draw=draw,
            residual_mass=mass,
        )

    def _reject(self, token: int, drawn: bool) -> float:
        """Residual mass that was left before renormalising."""
        if drawn and self.draft is not None:
            rest = (self.target - self.draft).clamp_min(0.0)
            self.draft = without(self.draft, token)
        else:
            rest = self.target.clone()
            rest[token] = 0.0
        mass = float(rest.sum())
        if mass > 0:  # zero only where rounding made equal distributions differ: then the target's stay
            self.target = rest / mass
        return mass


def without(probs: Tensor, token: int) -> Tensor:
    """Renormalised `probs` (V,) without a token; all zero where nothing else was possible."""
    rest = probs.clone()
    rest[token] = 0.0
    total = rest.sum()
    return rest / total if float(total) > 0 else torch.zeros_like(rest)
