"""What rejections leave of the target's distribution: recorded as it was, outside of the measured phases."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from explorer.record import TOP_TOKENS, StepWriter
from explorer.sampling import SamplingSettings
from tests.lanes import PROMPTS, make_toy

WARM = SamplingSettings(temperature=1.2, seed=5)


@pytest.mark.parametrize(
    ("name", "params"),
    [("draft-model", {}), ("eagle", {"tree": "chain", "rule": "speculative"}), ("medusa", {"rule": "speculative"})],
)
def test_the_residual_is_what_the_token_was_drawn_from(name: str, params: dict[str, Any]) -> None:
    bench = make_toy(1)
    lane = bench.lane(name, params, ids=bench.ids(PROMPTS[2]), budget=32, sampling=WARM)
    writer, seen = StepWriter(bench.target.texts), 0
    for turn in lane.turns():
        own = writer.step(turn, None).next_token
        if own.origin != "residual":
            assert own.residual is None
            continue
        left = turn.verdict.left
        assert left is not None
        seen += 1
        assert float(left.sum()) == pytest.approx(1.0, abs=1e-4)
        assert own.residual is not None
        assert [top.prob for top in own.residual] == pytest.approx(
            torch.topk(left, TOP_TOKENS).values.tolist(), rel=1e-5
        )
        assert float(left[own.token_id]) == pytest.approx(own.probability, rel=1e-4)
        end = turn.verdict.accepted[-1] if turn.verdict.accepted else 0
        rejected = [turn.tree.token_ids[child] for child in turn.tree.children()[end]]
        if not turn.tree.candidates[0].drawn:  # proposed, not drawn: nothing of it may be left
            assert all(float(left[token]) == 0 for token in rejected)
    assert seen


def test_greedy_lanes_have_none() -> None:
    bench = make_toy(1)
    lane = bench.lane("draft-model", ids=bench.ids(PROMPTS[0]), budget=12)
    writer = StepWriter(bench.target.texts)
    for turn in lane.turns():
        assert "residual" not in writer.step(turn, None).model_dump()["next_token"]
