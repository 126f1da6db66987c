"""Laws that hold for every method, under sampling and with a repetition penalty too."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from explorer.record import StepWriter
from explorer.sampling import SamplingSettings
from tests.lanes import ALL_NAMES, PROMPTS, Bench, assert_same_output, decode, make_toy

WARM = SamplingSettings(temperature=1.1, top_k=30, top_p=0.95, repetition_penalty=1.1, seed=7)
CASES: tuple[tuple[str, dict[str, Any]], ...] = (
    *((name, {}) for name in ALL_NAMES),
    ("draft-model", {"schedule": "adaptive", "context_branch": 8}),
    ("prompt-lookup", {"rule": "speculative", "max_ngram": 1}),
    ("jacobi", {"block": 6, "verification": "block"}),
    ("lookahead", {"rule": "speculative", "pool_from_prompt": True, "ngram": 3, "guesses": 0}),
    *((name, {"size": "auto", "context_branch": 4}) for name in ("draft-model", "prompt-lookup", "medusa", "eagle")),
    ("eagle3", {"size": "auto", "tree": "chain", "rule": "speculative"}),
)
every_case = pytest.mark.parametrize(("name", "params"), CASES, ids=str)


def story(bench: Bench, name: str, params: dict[str, Any], ids: list[int], sampling: SamplingSettings) -> list[Any]:
    """Everything that is recorded, but for times."""
    lane, writer = bench.lane(name, params, ids=ids, budget=20, sampling=sampling), StepWriter(bench.target.texts)
    steps = [writer.step(turn, lane.method.payload()).model_dump(exclude={"spans"}) for turn in lane.turns()]
    return [*steps, lane.output, lane.draft_passes]


@every_case
def test_same_seed_same_trace(name: str, params: dict[str, Any], toy: Bench) -> None:
    ids = toy.ids(PROMPTS[2])
    one, two = (story(toy, name, params, ids, WARM) for _ in range(2))
    assert one == two
    assert one != story(toy, name, params, ids, WARM.model_copy(update={"seed": 8}))


@every_case
@pytest.mark.parametrize("sampling", [SamplingSettings(), WARM], ids=["greedy", "sampled"])
def test_counts_add_up(name: str, params: dict[str, Any], sampling: SamplingSettings, toy: Bench) -> None:
    *steps, output, _ = story(toy, name, params, toy.ids(PROMPTS[2]), sampling)
    assert output[1:] == [token for step in steps for token in step["committed"]]
    for step in steps[:-1]:
        if step["committed"]:
            accepted = [step["nodes"][node]["token_id"] for node in step["accepted"]]
            assert list(step["committed"]) == [*accepted, step["next_token"]["token_id"]]
        else:
            assert name == "jacobi"


@every_case
def test_a_sampled_steps_cache_is_a_fresh_prefill(name: str, params: dict[str, Any]) -> None:
    bench = make_toy(2)
    ids = bench.ids(PROMPTS[2])
    lane = bench.lane(name, params, ids=ids, budget=14, sampling=WARM)
    for turn in lane.turns():
        assert turn.cache_length == len(ids) + len(lane.output) - 1
        fresh = bench.target.prefill([*ids, *lane.output[:-1]])
        for mine, theirs in zip(lane.cache.rows(), fresh.cache.rows(), strict=True):
            torch.testing.assert_close(mine, theirs, atol=2e-4, rtol=2e-4)


@every_case
def test_greedy_with_a_repetition_penalty_is_generates(name: str, params: dict[str, Any], toy: Bench) -> None:
    ids = toy.ids(PROMPTS[2])
    prompt = torch.tensor([ids])
    expected = toy.model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        do_sample=False,
        max_new_tokens=24,
        pad_token_id=0,
        repetition_penalty=1.3,
    )[0, len(ids) :].tolist()
    sampling = SamplingSettings(repetition_penalty=1.3)
    assert decode(toy.lane(name, params, ids=ids, budget=24, sampling=sampling)) == expected


@every_case
def test_a_context_shorter_than_the_budget_ends_the_output(name: str, params: dict[str, Any]) -> None:
    bench = make_toy(1, max_position_embeddings=48)
    ids = (bench.ids("word after word ") * 3)[:30]
    lane = bench.lane(name, params, ids=ids, budget=200)
    assert_same_output(bench, ids, decode(lane), bench.expected(ids, 18))
    assert (lane.stop_reason, len(lane.output)) == ("length", 18)
