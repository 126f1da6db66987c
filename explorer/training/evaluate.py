"""Held-out figures of a drafter, without running the decoder.

All are measured on held-out greedy answers (on all held-out ones if none is greedy), teacher-forced: the
guesses at a position are judged against the text that follows there. A table of ranks (N, depth) says at
which rank each guess was right; `explorer.training.trees` has what follows from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer.drafters.eagle3_head import Eagle3Head
from explorer.drafters.eagle_head import EagleHead
from explorer.drafters.medusa_heads import MedusaHeads
from explorer.errors import ExplorerError
from explorer.training.features import Sample
from explorer.training.trees import MISSED, RANKS, RankPath, accuracies, best_tree, path_shares, tree_tokens
from explorer.training.unroll import Head, unroll

DEPTH = 5
"""Guesses in a drafted chain."""
TREE_NODES = (11, 25, 63)
REPORTED_TREE = 25

Ranks = Callable[[Sample], Tensor | None]


@dataclass(frozen=True)
class Report:
    """Accuracy by depth of the guess (0 = first), and what drafting with it would bring."""

    accuracies: list[list[float]]
    """[depth][rank]: how often that guess is the right one."""
    chain_tokens: float
    """Tokens per target pass of a drafted chain, the target's own token included."""
    tree_tokens: float
    """The same of the best static tree of 25 nodes."""
    positions: int
    trees: dict[int, list[RankPath]] = field(default_factory=dict, compare=False)
    """The best static tree by number of nodes."""

    @property
    def top1(self) -> list[float]:
        return [row[0] for row in self.accuracies]

    @property
    def top5(self) -> list[float]:
        return [round(sum(row[:5]), 4) for row in self.accuracies]

    def facts(self) -> dict[str, Any]:
        """For config.json, the history and the command line."""
        return {
            "top1": self.top1,
            "top5": self.top5,
            "chain_tokens": self.chain_tokens,
            "tree_tokens": self.tree_tokens,
            "positions": self.positions,
        }


def report_of(table: Tensor) -> Report:
    """The figures that follow from a table of ranks (N, depth)."""
    shares = path_shares(table)
    trees = {nodes: best_tree(shares, nodes) for nodes in TREE_NODES}
    chain = [(0,) * depth for depth in range(1, table.shape[1] + 1)]
    return Report(
        accuracies=accuracies(table),
        chain_tokens=round(tree_tokens(shares, chain), 4),
        tree_tokens=round(tree_tokens(shares, trees[REPORTED_TREE]), 4),
        positions=len(table),
        trees=trees,
    )


@torch.inference_mode()
def evaluate(ranks: Ranks, held_out: Sequence[Sample], *, limit: int | None = None) -> Report:
    """Rank table over the held-out samples, `limit` of them at most."""
    chosen = [sample for sample in held_out if sample.example.temperature == 0] or list(held_out)
    rows = [found for sample in chosen[:limit] if (found := ranks(sample)) is not None]
    if not rows:
        raise ExplorerError("The held-out answers are too short to judge a drafter; longer ones are needed.")
    return report_of(torch.cat(rows).cpu())


def evaluate_eagle(head: EagleHead, held_out: Sequence[Sample], *, limit: int | None = None) -> Report:
    """Rollouts of DEPTH guesses from every answer position that has enough text behind it."""
    return evaluate(lambda sample: _eagle_ranks(head, sample), held_out, limit=limit)


def evaluate_eagle3(head: Eagle3Head, held_out: Sequence[Sample], *, limit: int | None = None) -> Report:
    """The same for EAGLE-3; the samples must hold taps."""
    return evaluate(lambda sample: _eagle_ranks(head, sample), held_out, limit=limit)


def evaluate_medusa(heads: MedusaHeads, held_out: Sequence[Sample], *, limit: int | None = None) -> Report:
    """Ranks of the tokens that followed, for every answer position that has enough text behind it."""
    return evaluate(lambda sample: _medusa_ranks(heads, sample), held_out, limit=limit)


def evaluate_draft_model(
    module: nn.Module, token_map: Tensor | None, held_out: Sequence[Sample], *, limit: int | None = None
) -> Report:
    """A draft model is judged token by token: as long as its guesses are right, its rollout is the text."""
    return evaluate(lambda sample: _draft_ranks(module, token_map, sample), held_out, limit=limit)


def _eagle_ranks(head: Head, sample: Sample) -> Tensor | None:
    """(starts, DEPTH) ranks; row r starts at answer slot r, guess s comes from slot start + s at step s."""
    device, dtype = head.fc.weight.device, head.fc.weight.dtype
    ids = torch.tensor(sample.example.ids, device=device)
    first = sample.example.prompt_length - 1
    starts = len(ids) - 2 - first - (DEPTH - 1)
    if starts <= 0:
        return None
    if isinstance(head, Eagle3Head):
        assert sample.taps is not None, "EAGLE-3 needs samples with taps"
        features = head.fuse_features(sample.taps[None, :-1].to(device, dtype))
    else:
        features = sample.features[None, :-1].to(device, dtype)
    columns = []
    for step, output in enumerate(unroll(head, ids[None, 1:], features, DEPTH)):
        begin = first + step
        logits = head.log_probs(output[0, begin : begin + starts])
        columns.append(_rank(logits, ids[begin + 2 : begin + 2 + starts], head.token_map))
    return torch.stack(columns, dim=1)


def _medusa_ranks(heads: MedusaHeads, sample: Sample) -> Tensor | None:
    """(positions, K) ranks: head i at position t against token t+2+i."""
    device = heads.weight.device
    ids = torch.tensor(sample.example.ids, device=device)
    first = sample.example.prompt_length - 1
    count = len(ids) - first - heads.num_heads - 1
    if count <= 0:
        return None
    logits = heads(sample.features[first : first + count].to(device, heads.weight.dtype))  # (K, count, D)
    columns = [
        _rank(logits[head], ids[first + 2 + head : first + 2 + head + count], heads.token_map)
        for head in range(heads.num_heads)
    ]
    return torch.stack(columns, dim=1)


def _draft_ranks(module: Any, token_map: Tensor | None, sample: Sample) -> Tensor | None:
    """(positions, DEPTH) ranks: the guess after token t+1+d, for a root at t+1."""
    device = next(module.parameters()).device
    ids = torch.tensor(sample.example.ids, device=device)
    first = sample.example.prompt_length  # the first answer token is the first root
    if len(ids) - 1 - first < DEPTH:
        return None
    hidden = module.base_model(input_ids=ids[None], use_cache=False).last_hidden_state[0, first:-1]
    weight = module.get_output_embeddings().weight
    each = _rank(F.linear(hidden.to(weight.dtype), weight), ids[first + 1 :], token_map)
    return each.unfold(0, DEPTH, 1)


def _rank(logits: Tensor, tokens: Tensor, token_map: Tensor | None) -> Tensor:
    """(N, D) logits and (N,) target ids -> (N,) rank among the first ten, MISSED if not among them."""
    best = logits.topk(min(RANKS, logits.shape[-1]), dim=-1).indices  # (N, 10)
    if token_map is not None:
        best = token_map.to(best.device)[best]
    match = best == tokens[:, None]
    return torch.where(match.any(-1), match.int().argmax(-1), torch.tensor(MISSED, device=best.device))
