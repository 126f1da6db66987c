"""A candidate tree against plain passes, once when a model is loaded: an architecture that gets it wrong is refused.

Nothing raises an error where a model ignores the mask or the position ids that a tree needs. So a few rows go both
ways, through the model's own forward and through this project's passes, and their logits are compared.
"""

from __future__ import annotations

import statistics

import torch
from torch import Tensor

from explorer.errors import ExplorerError
from explorer.probe import spread_tokens
from explorer.target import TargetModel
from explorer.tree import Candidate, CandidateTree

EXACT = 1e-3
"""Distance over the size of the centred logits that rounding may make in float32."""
ROUNDED = 0.1
"""Likewise in bfloat16, for the median row: one row more may differ where a router's choice is a tie."""
TOKENS = 10


@torch.inference_mode()
def check_passes(target: TargetModel) -> None:
    """ExplorerError where the target's passes differ from its plain forward. A few rows of four passes."""
    if target.context_tokens < TOKENS:
        return
    try:
        found = _distances(target)
    except (TypeError, ValueError, AttributeError, IndexError, NotImplementedError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0][:160]
        raise ExplorerError(f"{_name(target)} cannot be shown: a pass over a tree fails ({reason}).") from error
    exact = target.dtype in (torch.float32, torch.float64)
    bound = EXACT if exact else ROUNDED
    for what, distances in found.items():
        worst = max(distances) if exact else statistics.median_low(distances)
        if not worst <= bound:  # not a number is no pass either
            raise ExplorerError(
                f"{_name(target)} cannot be shown: {what}, its logits differ from a plain pass by {worst:.1%} "
                f"where rounding makes at most {bound:.1%}."
            )


def _name(target: TargetModel) -> str:
    return type(target.transformers_model).__name__


def _distances(target: TargetModel) -> dict[str, list[float]]:
    """Per kind of pass, how far each row is from the model's own forward."""
    p1, p2, p3, root, a, b, c, d, e, f = spread_tokens(target.vocabulary_tokens, TOKENS)
    prompt = [p1, p2, p3, root]
    plain = _plain(target, [[*prompt, a, c, e, f], [*prompt, a, b, e, f], [*prompt, d, e, f, a]])
    prefill = target.prefill(prompt[:-1])
    cache = target.new_cache(len(prompt) + TOKENS)
    cache.copy_from(prefill.cache)
    below = (Candidate(a, 0, "check"), Candidate(d, 0, "check"), Candidate(b, 1, "check"), Candidate(c, 1, "check"))
    tree = target.verify(CandidateTree(root, below), cache).logits
    cache.commit([0, 1, 4])  # root, a, c: the rows between are dropped
    after = target.verify(CandidateTree(e, (Candidate(f, 0, "check"),)), cache).logits
    return {
        "after its prompt": [_distance(prefill.logits, plain[0, 2])],
        "over a candidate tree": [_distance(tree[2], plain[2, 4]), *_pairs(tree[3:], plain[(1, 0), 5])],
        "after a rollback": _pairs(after, plain[0, 6:]),
    }


def _plain(target: TargetModel, sequences: list[list[int]]) -> Tensor:
    """(sequences, tokens, V) logits of the model's own forward."""
    token_ids = torch.tensor(sequences, device=target.device)
    return target.transformers_model(input_ids=token_ids, use_cache=False).logits.to(target.device)


def _pairs(ours: Tensor, plain: Tensor) -> list[float]:
    return [_distance(mine, theirs) for mine, theirs in zip(ours, plain, strict=True)]


def _distance(ours: Tensor, plain: Tensor) -> float:
    """Distance of two rows (V,) over the size of the plain one around its mean."""
    mine, theirs = ours.double(), plain.double()
    return float((mine - theirs).norm() / (theirs - theirs.mean()).norm().clamp_min(1e-12))
