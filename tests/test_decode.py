"""The loop's laws: the output is `generate`'s whatever the method; the cache is a fresh prefill's after each step."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
import torch

from explorer.decode import Lane, Turn, drain
from explorer.methods import METHODS
from explorer.sampling import SamplingSettings
from explorer.target import TAP_LAST
from tests.lanes import (
    ALL_NAMES,
    PROMPTS,
    SETTINGS,
    Bench,
    Oracle,
    assert_same_output,
    decode,
    make_toy,
    setting_name,
)

CLOSE = {"atol": 2e-4, "rtol": 2e-4}
BUDGET = 24


@cache
def bench_of(seed: int) -> Bench:
    return make_toy(seed)


@cache
def expected_of(seed: int, text: str, budget: int) -> tuple[int, ...]:
    bench = bench_of(seed)
    return tuple(bench.expected(bench.ids(text), budget))


def assert_cache_is_a_fresh_prefill(lane: Lane, bench: Bench, ids: Sequence[int]) -> None:
    """The cached rows are those of prompt and output without the root."""
    fresh = bench.target.prefill([*ids, *lane.output[:-1]])
    for mine, theirs in zip(lane.cache.rows(), fresh.cache.rows(), strict=True):
        torch.testing.assert_close(mine, theirs, **CLOSE)


def test_the_settings_hold_every_bound_of_every_parameter() -> None:
    """A new parameter, or another bound, must enter the list above before anything else is claimed for it."""
    for method in METHODS:
        assert method.name in {name for name, _ in SETTINGS}
        for name, field in method.Params.model_fields.items():
            used = {params.get(name, field.default) for owner, params in SETTINGS if owner == method.name}
            bounds = {getattr(rule, key) for rule in field.metadata for key in ("ge", "le") if hasattr(rule, key)}
            if name == "accept_top_k":  # above 1 it is not lossless
                bounds.discard(max(bounds))
            assert bounds <= used, (method.name, name)


@pytest.mark.parametrize("setting", SETTINGS, ids=setting_name)
def test_greedy_output_is_generates(setting: tuple[str, dict[str, Any]]) -> None:
    """Three targets with random weights, each with another prompt."""
    name, params = setting
    shift = SETTINGS.index(setting)
    for seed in range(3):
        bench, text = bench_of(seed), PROMPTS[(shift + seed) % len(PROMPTS)]
        ids = bench.ids(text)
        output = decode(bench.lane(name, params, ids=ids, budget=BUDGET))
        assert_same_output(bench, ids, output, expected_of(seed, text, BUDGET))


@pytest.mark.parametrize("setting", SETTINGS, ids=setting_name)
def test_after_every_step_the_cache_is_a_fresh_prefill(setting: tuple[str, dict[str, Any]], toy: Bench) -> None:
    name, params = setting
    ids = toy.ids("one two one two one")
    lane = toy.lane(name, params, ids=ids, budget=10)
    assert_cache_is_a_fresh_prefill(lane, toy, ids)
    for turn in lane.turns():
        assert turn.cache_length == lane.cache.length == len(ids) + len(lane.output) - 1
        assert_cache_is_a_fresh_prefill(lane, toy, ids)


@pytest.mark.parametrize("name", ALL_NAMES)
@pytest.mark.parametrize("budget", [1, 2, 3, 7])
def test_a_budget_is_met_exactly(name: str, budget: int) -> None:
    bench, text = bench_of(2), PROMPTS[2]
    ids = bench.ids(text)
    lane = bench.lane(name, ids=ids, budget=budget)
    output = decode(lane)
    assert len(output) == budget
    assert_same_output(bench, ids, output, expected_of(2, text, budget))
    assert lane.stop_reason == "length"
    assert lane.cache.length == len(ids) + budget - 1


@pytest.mark.parametrize("name", ALL_NAMES)
@pytest.mark.parametrize("seed", [1, 2])
def test_any_of_several_end_tokens_ends_the_output(name: str, seed: int) -> None:
    """Two tokens that the plain output holds are declared ends: the earlier one ends it, and is its last token."""
    text = PROMPTS[1]
    plain = expected_of(seed, text, 40)
    first = next(place for place in range(6, 40) if plain[place] not in plain[:place])
    later = next((place for place in range(first + 1, 40) if plain[place] not in plain[:place]), first)
    bench = make_toy(seed, end_ids=[plain[later], plain[first]])
    ids = bench.ids(text)
    lane = bench.lane(name, ids=ids, budget=40)
    output = decode(lane)
    assert output == bench.expected(ids, 40) == list(plain[: first + 1])
    assert lane.stop_reason == "eos"


@pytest.mark.parametrize("name", ALL_NAMES)
def test_an_end_token_from_the_prefill_ends_at_once(name: str) -> None:
    plain = expected_of(0, PROMPTS[0], BUDGET)
    bench = make_toy(0, end_ids=[plain[0]])
    lane = bench.lane(name, ids=bench.ids(PROMPTS[0]), budget=9)
    assert decode(lane) == [plain[0]]
    assert lane.stop_reason == "eos"
    assert list(lane.turns()) == []


def oracle_turns(bench: Bench, ids: list[int], budget: int, **params: Any) -> tuple[Lane, list[Turn]]:
    """All turns of a lane that drafts the true continuation."""
    lane = bench.lane(Oracle, params, ids=ids, budget=budget)
    turns: list[Turn] = []
    drain(lane, turns.append)
    return lane, turns


@pytest.mark.parametrize("at", [1, 2, 3, 4, 5, 6, 7])
def test_an_end_token_inside_an_accepted_run_cuts_the_run(at: int) -> None:
    """The first end token of the output stands at place `at`; drafts beyond it are right, and yet dropped."""
    ids = bench_of(0).ids("some words")
    outputs = ((seed, make_toy(seed).expected(ids, 12)) for seed in range(40))
    seed, plain = next((seed, plain) for seed, plain in outputs if plain[at] not in plain[:at])
    bench = make_toy(seed, end_ids=[plain[at]])
    lane, turns = oracle_turns(bench, ids, 12, script=tuple(plain), length=5)
    assert lane.output == bench.expected(ids, 12) == plain[: at + 1]
    assert lane.stop_reason == "eos"
    assert_cache_is_a_fresh_prefill(lane, bench, ids)
    assert len(turns[0].verdict.accepted) == 5
    assert sum(len(turn.committed) for turn in turns) == at


@pytest.mark.parametrize("budget", [2, 3, 4, 5, 6, 7, 8, 13])
def test_a_budget_inside_an_accepted_run_cuts_the_run(budget: int) -> None:
    bench, text = bench_of(1), PROMPTS[0]
    ids, plain = bench.ids(text), expected_of(1, text, 20)
    lane, turns = oracle_turns(bench, ids, budget, script=plain, length=5)
    assert tuple(lane.output) == plain[:budget]
    assert lane.stop_reason == "length"
    assert len(turns) == -(-(budget - 1) // 6)
    assert_cache_is_a_fresh_prefill(lane, bench, ids)


@pytest.mark.parametrize("wrong_at", [0, 1, 3])
def test_a_wrong_draft_costs_speed_and_no_token(wrong_at: int) -> None:
    bench, text = bench_of(1), PROMPTS[3]
    ids, plain = bench.ids(text), expected_of(1, text, 20)
    lane, turns = oracle_turns(bench, ids, 20, script=plain, length=4, wrong_at=wrong_at)
    assert tuple(lane.output) == plain
    assert {len(turn.verdict.accepted) for turn in turns[:-1]} == {wrong_at}


def test_a_method_is_told_only_what_was_kept() -> None:
    bench, text = bench_of(1), PROMPTS[0]
    ids, plain = bench.ids(text), expected_of(1, text, 20)
    lane, turns = oracle_turns(bench, ids, 10, script=plain, length=5)
    told = lane.method.outcomes  # type: ignore[attr-defined]
    assert [len(outcome.accepted) for outcome in told] == [5, 2]
    assert told[-1].context is not None
    assert told[-1].context == [*ids, *plain[:10]]
    assert [len(turn.committed) for turn in turns] == [6, 3]


def recompute_eagle_cache(bench: Bench, context: Sequence[int], slots: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The drafter's keys and values from the target's true features of the first `slots` positions."""
    head = bench.drafters["eagle"]
    features = bench.target.prefill(context[:slots], taps=frozenset({TAP_LAST})).taps[TAP_LAST]
    own = head.new_cache(slots)
    with torch.inference_mode():
        head(torch.tensor(list(context[1 : slots + 1])), features, torch.arange(slots), own)
    return own.keys[:, :slots], own.values[:, :slots]


@pytest.mark.parametrize("params", [{}, {"nodes": 1, "depth": 1, "top_k": 1}, {"top_k": 16, "nodes": 63, "depth": 3}])
def test_eagles_own_cache_holds_only_slots_of_true_features(params: dict[str, Any]) -> None:
    """It lags one step behind: the accepted path's slots are run when the next draft begins."""
    bench = bench_of(2)
    ids = bench.ids(PROMPTS[2])
    lane = bench.lane("eagle", params, ids=ids, budget=14)
    before = len(ids) + 1
    accepted = 0
    for turn in lane.turns():
        own = lane.method._cache  # type: ignore[attr-defined]
        assert own.length == before - 1
        keys, values = recompute_eagle_cache(bench, [*ids, *lane.output], own.length)
        torch.testing.assert_close(own.keys[:, : own.length], keys, **CLOSE)
        torch.testing.assert_close(own.values[:, : own.length], values, **CLOSE)
        before = len(ids) + len(lane.output)
        accepted += len(turn.verdict.accepted)
    assert accepted > 0


@pytest.mark.parametrize("name", ALL_NAMES)
def test_the_last_token_that_fits_the_context_is_decoded(name: str) -> None:
    """Prompt and output fill the context to its last position; a tree may reach beyond it by its depth."""
    bench = make_toy(0, max_position_embeddings=64)
    ids = (bench.ids("word after word ") * 9)[:54]
    output = decode(bench.lane(name, ids=ids, budget=10))
    assert_same_output(bench, ids, output, bench.expected(ids, 10))


@pytest.mark.parametrize("name", ALL_NAMES)
def test_a_prompt_of_one_token(name: str, toy: Bench) -> None:
    output = decode(toy.lane(name, ids=[40], budget=12))
    assert_same_output(toy, [40], output, toy.expected([40], 12))


@pytest.mark.parametrize("name", ALL_NAMES)
def test_a_prompt_over_several_chunks(name: str, toy: Bench) -> None:
    ids = (toy.ids("a long story about a long story ") * 20)[:270]
    output = decode(toy.lane(name, ids=ids, budget=9))
    assert_same_output(toy, ids, output, toy.expected(ids, 9))


@pytest.mark.parametrize("name", ALL_NAMES)
def test_same_seed_same_sample_and_another_seed_another(name: str, toy: Bench) -> None:
    ids = toy.ids(PROMPTS[0])
    outputs = [
        decode(toy.lane(name, ids=ids, budget=12, sampling=SamplingSettings(temperature=1.5, seed=seed)))
        for seed in (5, 5, 6)
    ]
    assert outputs[0] == outputs[1] != outputs[2]


@pytest.mark.parametrize("name", ALL_NAMES)
def test_lanes_side_by_side_do_not_disturb_each_other(name: str, toy: Bench) -> None:
    """Step by step in turn with another lane, and the global random generator used in between."""
    ids, sampling = toy.ids(PROMPTS[1]), SamplingSettings(temperature=1.0, seed=3)
    alone = decode(toy.lane(name, ids=ids, budget=12, sampling=sampling))
    one = toy.lane(name, ids=ids, budget=12, sampling=sampling)
    two = toy.lane(name, ids=ids, budget=30, sampling=SamplingSettings(temperature=2.0, seed=4))
    others = two.turns()
    for _ in one.turns():
        torch.rand(3)
        next(others, None)
    assert one.output == alone


@pytest.mark.parametrize("name", ALL_NAMES)
def test_bfloat16_runs_and_agrees_with_plain_decoding_up_to_a_tie(name: str) -> None:
    half = make_toy(0, dtype=torch.bfloat16)
    ids = half.ids(PROMPTS[0])
    output = decode(half.lane(name, ids=ids, budget=16))
    plain = decode(half.lane("autoregressive", ids=ids, budget=16))
    place = next((place for place in range(16) if output[place] != plain[place]), None)
    if place is not None:
        best = torch.topk(half.logits([*ids, *plain[:place]])[-1].float(), 2).values
        assert float(best[0] - best[1]) < 0.25, "not a tie"
    assert len(output) == 16
