"""Batched training forward of the EAGLE layer, with training-time test (EAGLE-3, arXiv 2503.01840, 3.2).

Unroll step 0 runs all slots on true features. Step s runs slot t on the output that step s-1 gave at slot
t-1, exactly as a rollout of s guesses does: it sees the true slots up to t-s (their step-0 keys), the
guessed slots in between (step j at slot t-s+j, for 0 < j < s) and itself. Slot t keeps position t throughout.
"""

from __future__ import annotations

import torch
from torch import Tensor

from explorer.drafters.eagle3_head import Eagle3Head
from explorer.drafters.eagle_head import EagleHead

Head = EagleHead | Eagle3Head


def unroll(head: Head, token_ids: Tensor, features: Tensor, steps: int) -> list[Tensor]:
    """Outputs of all steps, each (B, T, h): prediction of feature t+1 at slot t.

    token_ids (B, T): token t+1 of slot t. features (B, T, h): feature t; for EAGLE-3 the fused one. At step s
    only slots t >= s mean anything; the ones before have no rollout that long behind them.
    """
    slots = token_ids.shape[1]
    cos, sin = (table[:slots] for table in head.rope(slots))
    groups = head.shape.num_heads // head.shape.num_kv_heads
    outputs: list[Tensor] = []
    keys: list[Tensor] = []
    values: list[Tensor] = []
    for step in range(steps):
        x, residual = head.slot_inputs(token_ids, features if step == 0 else _shift(outputs[-1], 1))
        query, key, value = head.layer.project(x, cos, sin)
        keys.append(key.repeat_interleave(groups, dim=1))  # (B, heads, T, d)
        values.append(value.repeat_interleave(groups, dim=1))
        raw = head.layer.finish(residual, _attend(query, keys, values))
        outputs.append(head.output(raw) if isinstance(head, Eagle3Head) else raw)
    return outputs


def _attend(query: Tensor, keys: list[Tensor], values: list[Tensor]) -> Tensor:
    """Attention of the newest step: a shifted causal block on step 0, one diagonal for each later step."""
    step = len(keys) - 1
    slots, size = query.shape[-2:]
    scale = size**-0.5
    hidden = torch.ones(slots, slots, dtype=torch.bool, device=query.device).triu(
        1 - step
    )  # true where column > row - step
    scores = [((query @ keys[0].transpose(-1, -2)) * scale).float().masked_fill(hidden, float("-inf"))]
    shifted = [(_shift(keys[j], step - j), _shift(values[j], step - j)) for j in range(1, step + 1)]
    scores += [((query * key).sum(-1, keepdim=True) * scale).float() for key, _ in shifted]
    weights = torch.cat(scores, dim=-1).softmax(-1).to(values[0].dtype)  # (B, heads, T, T + step)
    mixed = weights[..., :slots] @ values[0]
    for column, (_, value) in enumerate(shifted, start=slots):
        mixed = mixed + weights[..., column : column + 1] * value
    return mixed


def _shift(x: Tensor, by: int) -> Tensor:
    """Move slots (second last axis) to the right, zeros come in: result[t] = x[t - by]."""
    if by == 0:
        return x
    return torch.cat((torch.zeros_like(x[..., :by, :]), x[..., :-by, :]), dim=-2)


def reached(answer: Tensor, step: int) -> Tensor:
    """(B, T) answer slots that a rollout of `step` guesses reaches from inside the answer.

    Slots nearer to the first answer slot than `step` would need a rollout from inside the prompt.
    """
    deep = answer.clone()
    deep[:, step:] &= answer[:, : answer.shape[1] - step]
    deep[:, :step] = False
    return deep
