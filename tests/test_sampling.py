"""The target's own token: argmax, or a seeded draw from the distribution that `generate` would draw from."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from transformers import GenerationConfig

from explorer.sampling import Choice, Chooser, SamplingSettings, Sure
from tests.lanes import ALL_NAMES, Bench, decode

UNSURE = Sure(0.0, 0.0)
SETTINGS = [
    {"temperature": 1.0},
    {"temperature": 0.3},
    {"temperature": 5.0},
    {"temperature": 0.7, "top_k": 5},
    {"temperature": 0.7, "top_p": 0.8},
    {"temperature": 1.3, "top_k": 20, "top_p": 0.5},
    {"temperature": 1.0, "top_k": 1},
    {"temperature": 1.0, "top_p": 1e-6},
    {"temperature": 0.7, "top_k": 1000},
    {"temperature": 1.0, "min_p": 0.1},
    {"temperature": 2.0, "min_p": 1.0},
    {"temperature": 0.9, "top_k": 30, "top_p": 0.9, "min_p": 0.05},
    {"temperature": 1.0, "repetition_penalty": 1.3},
    {"temperature": 0.6, "repetition_penalty": 0.5, "top_k": 8, "top_p": 0.7, "min_p": 0.02},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_distribution_is_what_generate_draws_from(settings: dict[str, Any], toy: Bench) -> None:
    """Against the processors that transformers itself builds for these settings."""
    row = toy.logits([40, 50, 60])[-1]
    config = GenerationConfig(do_sample=True, **({"top_k": 0, "top_p": 1.0} | settings))
    processors = toy.model._get_logits_processor(config, input_ids_seq_length=3)
    expected = processors(torch.tensor([[40, 50, 60]]), row.float().unsqueeze(0)).softmax(dim=-1)[0]
    ours = Chooser(SamplingSettings(**settings)).distribution(row, [40, 50, 60])
    assert torch.equal(ours, expected)
    assert float(ours.sum()) == pytest.approx(1.0, abs=1e-5)


def test_greedy_takes_the_first_of_the_best_as_generate_does() -> None:
    row = torch.tensor([0.0, 3.0, 3.0, 1.0])
    choice = Chooser(SamplingSettings()).choose(row, [0])
    assert (choice.token_id, choice.origin, choice.sure) == (1, "argmax", None)
    penalised = Chooser(SamplingSettings(repetition_penalty=2.0)).choose(row, [1])
    assert penalised.sure is not None
    assert (penalised.token_id, penalised.origin, penalised.sure.margin) == (2, "argmax", 0.0)
    assert penalised.sure.probability == pytest.approx(float(torch.tensor([0.0, 1.5, 3.0, 1.0]).softmax(0)[2]))


@given(st.lists(st.floats(-20, 20, width=32), min_size=2, max_size=30), st.integers(0, 99))
def test_probability_and_margin_are_those_of_the_row(values: list[float], seed: int) -> None:
    row = torch.tensor(values)
    chooser = Chooser(SamplingSettings(temperature=0.8, seed=seed))
    choice = chooser.choose(row, [1])
    first, second = sorted(values, reverse=True)[:2]
    assert choice.sure is not None
    assert choice.sure.margin == pytest.approx(first - second, abs=1e-5)
    assert choice.sure.probability == pytest.approx(float((row / 0.8).softmax(0)[choice.token_id]), abs=1e-6)
    assert choice.origin == "sample"
    record = choice.record("text", UNSURE)
    assert (record.token_id, record.text, record.margin) == (choice.token_id, "text", choice.sure.margin)


def test_draws_follow_the_seed_and_nothing_else() -> None:
    row = torch.zeros(50)

    def draws(seed: int) -> list[int]:
        chooser = Chooser(SamplingSettings(temperature=1.0, seed=seed))
        found = []
        for _ in range(20):
            torch.manual_seed(0)
            found.append(chooser.choose(row, [0]).token_id)
        return found

    assert draws(3) == draws(3) != draws(4)
    assert len(set(draws(3))) > 5


def test_greedy_draws_nothing() -> None:
    """A greedy chooser's generator stands still, so a later draw is not moved."""
    chooser = Chooser(SamplingSettings(seed=5))
    before = chooser._generator.get_state()
    chooser.choose(torch.tensor([1.0, 2.0]), [0])
    assert torch.equal(chooser._generator.get_state(), before)


def test_draws_have_the_distribution() -> None:
    """Chi-square on 4,000 seeded draws; 5 degrees of freedom, 0.1 % point 20.5."""
    row = torch.tensor([0.0, 1.0, 2.0, -1.0, 0.5, 1.5])
    chooser = Chooser(SamplingSettings(temperature=1.2, seed=11))
    expected = chooser.distribution(row, [0]) * 4000
    counts = torch.zeros(6)
    for _ in range(4000):
        counts[chooser.choose(row, [0]).token_id] += 1
    assert float(((counts - expected) ** 2 / expected).sum()) < 20.5


@pytest.mark.parametrize("penalty", [0.5, 1.2, 3.0])
def test_a_repetition_penalty_holds_when_greedy_too(penalty: float, toy: Bench) -> None:
    """Every method's greedy output under a penalty is what `generate` gives under it: rows go by their own paths."""
    ids = toy.ids("1 2 3 1 2 3")
    prompt = torch.tensor([ids])
    output = toy.model.generate(
        prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=16,
        repetition_penalty=penalty, pad_token_id=0,
    )  # fmt: skip
    expected = output[0, len(ids) :].tolist()
    for name in ALL_NAMES:
        lane = toy.lane(name, ids=ids, budget=16, sampling=SamplingSettings(repetition_penalty=penalty))
        assert decode(lane) == expected, name


def test_a_coin_falls_as_often_as_it_should_and_tells_its_draw() -> None:
    chooser = Chooser(SamplingSettings(temperature=1.0, seed=4))
    throws = [chooser.coin(0.3) for _ in range(2000)]
    assert all(accepted == (draw < 0.3) for accepted, draw in throws)
    assert sum(accepted for accepted, _ in throws) == pytest.approx(600, abs=70)
    assert not any(chooser.coin(0.0)[0] for _ in range(50))
    assert all(chooser.coin(1.0)[0] for _ in range(50))


def test_several_draws_are_different_tokens_in_the_order_of_drawing() -> None:
    """Without replacement: the second draw is from the renormalised rest. Chi-square, 11 degrees, 0.1 %: 31.3."""
    probs = torch.tensor([0.5, 0.25, 0.15, 0.1, 0.0])
    chooser = Chooser(SamplingSettings(temperature=1.0, seed=2))
    runs = 3000
    counts = Counter(tuple(chooser.pick_several(probs, 2)) for _ in range(runs))
    law = {
        (a, b): float(probs[a] * probs[b] / (1 - probs[a])) for a in range(4) for b in range(4) if a != b
    }  # fmt: skip
    assert set(counts) <= set(law)
    assert sum((counts[pair] - runs * law[pair]) ** 2 / (runs * law[pair]) for pair in law) < 31.3
    assert sorted(chooser.pick_several(probs, 9)) == [0, 1, 2, 3]


def test_a_draw_at_a_place_depends_on_seed_and_place_alone() -> None:
    row = torch.zeros(50)
    one, two = (Chooser(SamplingSettings(temperature=1.0, seed=7)) for _ in range(2))
    two.choose(row, [0])  # another history of draws
    places = [[chooser.choose(row, [0], place).token_id for place in range(20)] for chooser in (one, two)]
    assert places[0] == places[1]
    assert len(set(places[0])) > 5


def test_the_drafters_draws_leave_the_targets_alone() -> None:
    settings = SamplingSettings(temperature=1.0, seed=3)
    row = torch.zeros(50)
    streams = [[Chooser(settings, stream).choose(row, [0]).token_id for _ in range(1)] for stream in (0, 1)]
    own, drafts = Chooser(settings), Chooser(settings, 1)
    mixed = []
    for _ in range(10):
        drafts.choose(row, [0])
        mixed.append(own.choose(row, [0]).token_id)
    alone = Chooser(settings)
    assert mixed == [alone.choose(row, [0]).token_id for _ in range(10)]
    assert streams[0] != streams[1]


def test_half_precision_rows_are_judged_in_float32() -> None:
    row = torch.tensor([0.1, 0.2, 0.3], dtype=torch.bfloat16)
    probs = Chooser(SamplingSettings(temperature=0.5)).distribution(row, [0])
    assert probs.dtype == torch.float32
    assert torch.equal(probs, (row.float() / 0.5).softmax(0))


def test_a_probability_a_hair_above_one_is_recorded_as_one() -> None:
    assert Choice(1, "sample", Sure(1.0000001, 0.0)).record("x", UNSURE).probability == 1.0


def test_the_best_of_a_row_as_it_is_takes_what_the_record_knows_of_the_row() -> None:
    record = Choice(1, "argmax").record("x", Sure(0.75, 2.5))
    assert (record.probability, record.margin) == (0.75, 2.5)


@pytest.mark.parametrize(
    "values",
    [
        {"temperature": -0.1},
        {"temperature": 5.1},
        {"temperature": math.nan},
        {"temperature": math.inf},
        {"temperature": None},
        {"temperature": [1.0]},
        {"top_k": -1},
        {"top_k": 1001},
        {"top_k": 2.5},
        {"top_p": 0.0},
        {"top_p": 1.01},
        {"top_p": "x"},
        {"seed": -1},
        {"seed": 2**31},
        {"seed": 10**400},
        {"min_p": -0.1},
        {"min_p": 1.1},
        {"repetition_penalty": 0.0},
        {"repetition_penalty": 10.5},
        {"tempreature": 1.0},
    ],
    ids=str,
)
def test_settings_out_of_bounds_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        SamplingSettings(**values)


def test_the_best_of_all_rows_at_once_is_the_best_of_each() -> None:
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(9, 301, generator=generator).mul(4.0).bfloat16()
    logits[2, 17] = logits[2, 200] = 40.0  # a tie: the first of the best, as argmax has it
    chooser = Chooser(SamplingSettings())
    assert chooser.best_tokens(logits) == [chooser.best(row, []).token_id for row in logits]
    for other in (SamplingSettings(temperature=0.5), SamplingSettings(repetition_penalty=1.2)):
        assert Chooser(other).best_tokens(logits) is None
