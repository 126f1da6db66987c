"""From a turn, tensors and all, to the step that stays: pure data with every number that a viewer may ask for."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from explorer.decode import Turn
from explorer.sampling import Sure
from explorer.texts import PieceStream, TokenTexts
from explorer.trace import NextToken, Node, NodeStatus, OutputToken, Record, Step, TokenSource, TopToken
from explorer.transfers import to_device, to_host

TOP_TOKENS = 4
STRETCH = 128
"""Columns that are looked at together when the best ones are found."""


class StepWriter:
    """Writes a lane's steps and output tokens. Runs outside of all spans: recording is nobody's decode time."""

    def __init__(self, texts: TokenTexts) -> None:
        self._texts = texts
        self._pieces = PieceStream(texts)
        self._log_probs: Tensor | None = None

    def first_token(self, token_id: int, last: bool) -> OutputToken:
        """The prefill's token."""
        return OutputToken(id=token_id, text=self._pieces.push(token_id, last), step=None, source="prefill")

    def given(self, token_ids: Sequence[int], forced: int) -> tuple[OutputToken, ...]:
        """The beginning that a branch was given; the last `forced` of it were chosen by a viewer."""
        kept = len(token_ids) - forced
        return tuple(
            OutputToken(
                id=token, text=self._pieces.push(token), step=None, source="given" if place < kept else "forced"
            )
            for place, token in enumerate(token_ids)
        )

    @torch.inference_mode()
    def step(self, turn: Turn, payload: Record | None) -> Step:
        """A turn as data."""
        logits = turn.output.logits[: len(turn.tree)]  # (T, V)
        log_probs = self._log_softmax(logits)  # (T, V)
        values, top_ids = best_columns(log_probs, min(TOP_TOKENS, logits.shape[-1]))  # (T, 4)
        best = logits.gather(1, top_ids[:, :2]).float()  # (T, 2); an exact margin, which log-probabilities have not
        top_ids, top_probs, best, drafted = to_host(top_ids, values.exp(), best, _drafted_target_probs(turn, log_probs))
        row = turn.verdict.accepted[-1] if turn.verdict.accepted else 0
        return Step(
            index=turn.index,
            nodes=self._nodes(turn, drafted.tolist(), top_ids.tolist(), top_probs.tolist()),
            accepted=turn.verdict.accepted,
            committed=turn.committed,
            next_token=self._next_token(turn, Sure(float(top_probs[row, 0]), float(best[row, 0] - best[row, -1]))),
            spans=turn.spans,
            cache_length=turn.cache_length,
            payload=payload.model_dump() if payload is not None else None,
            size=turn.size,
        )

    def _log_softmax(self, logits: Tensor) -> Tensor:
        """(T, V) float32, in memory that is used again: new pages for each step cost more than the numbers in them."""
        kept = self._log_probs
        if kept is None or kept.shape[1] != logits.shape[1] or kept.shape[0] < len(logits):
            kept = self._log_probs = logits.new_empty(logits.shape, dtype=torch.float32)
        return torch.log_softmax(logits, dim=-1, dtype=torch.float32, out=kept[: len(logits)])

    def _next_token(self, turn: Turn, sure: Sure) -> NextToken:
        own = turn.verdict.choice.record(self._texts.show(turn.verdict.choice.token_id), sure)
        if turn.verdict.left is None:
            return own
        left = turn.verdict.left.float()[None]  # (1, V)
        probs, ids = to_host(*best_columns(left, min(TOP_TOKENS, left.shape[-1])))
        best = tuple(
            TopToken(token_id=token, text=self._texts.show(token), prob=min(prob, 1.0))
            for token, prob in zip(ids[0].tolist(), probs[0].tolist(), strict=True)
            if prob > 0
        )
        return own.model_copy(update={"residual": best})

    def tokens(self, turn: Turn, last: bool) -> tuple[OutputToken, ...]:
        """The output tokens of the turn, with exact pieces. `last`: the lane ends with this turn."""
        drafts, count = len(turn.verdict.accepted), len(turn.committed)
        return tuple(
            OutputToken(
                id=token,
                text=self._pieces.push(token, last and place == count - 1),
                step=turn.index,
                source=_source(place < drafts),
            )
            for place, token in enumerate(turn.committed)
        )

    def _nodes(
        self, turn: Turn, target_probs: list[float], top_ids: list[list[int]], top_probs: list[list[float]]
    ) -> tuple[Node, ...]:
        tree, texts = turn.tree, self._texts
        statuses = node_statuses(turn)
        nodes = []
        for node, token_id in enumerate(tree.token_ids):
            candidate = tree.candidates[node - 1] if node else None
            nodes.append(
                Node(
                    id=node,
                    parent=tree.parent(node),
                    depth=tree.depths[node],
                    token_id=token_id,
                    text=texts.show(token_id),
                    rank=candidate.rank if candidate else None,
                    source=candidate.source if candidate else "root",
                    also=candidate.also if candidate else None,
                    draft_prob=candidate.draft_prob if candidate else None,
                    score=candidate.score if candidate else None,
                    target_prob=min(target_probs[node - 1], 1.0) if candidate else None,
                    target_top=tuple(
                        TopToken(token_id=token, text=texts.show(token), prob=min(prob, 1.0))
                        for token, prob in zip(top_ids[node], top_probs[node], strict=True)
                    ),
                    status=statuses[node],
                    decision=turn.verdict.decisions.get(node),
                )
            )
        return tuple(nodes)


def node_statuses(turn: Turn) -> list[NodeStatus]:
    """root; accepted; rejected: its parent was on the path, it was not taken; unreached: its parent was not."""
    path = {0, *turn.verdict.accepted}
    statuses: list[NodeStatus] = ["root"]
    for node in range(1, len(turn.tree)):
        if node in path:
            statuses.append("accepted")
        else:
            statuses.append("rejected" if turn.tree.parent(node) in path else "unreached")
    return statuses


def best_columns(rows: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Values and columns of the `count` highest numbers of each row (T, V), as torch.topk: the same in less time.

    The best lie in the `count` stretches with the highest maxima, and maxima are quick. Wider than a few thousand
    columns this is five times as fast on a CPU, and recording must not cost what it measures.
    """
    height, width = rows.shape
    if width < count * STRETCH or width % STRETCH:
        values, columns = torch.topk(rows, count, dim=-1)
        return values, columns
    stretches = rows.view(height, -1, STRETCH)
    best = torch.topk(stretches.amax(dim=-1), count, dim=-1).indices  # (T, count)
    within = stretches.gather(1, best[..., None].expand(-1, -1, STRETCH)).flatten(1)  # (T, count * STRETCH)
    values, places = torch.topk(within, count, dim=-1)
    return values, best.gather(1, places // STRETCH) * STRETCH + places % STRETCH


def _drafted_target_probs(turn: Turn, log_probs: Tensor) -> Tensor:
    """(T - 1,) per drafted node the target's probability of its token after its parent (no temperature)."""
    pairs = [(each.parent, each.token_id) for each in turn.tree.candidates]
    parents, tokens = to_device(list(zip(*pairs, strict=True)) or [(), ()], log_probs.device, torch.int64)
    return log_probs[parents, tokens].exp()


def _source(drafted: bool) -> TokenSource:
    return "draft" if drafted else "target"
