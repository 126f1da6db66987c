"""The target's own token: argmax, or a seeded draw from the distribution that `generate` would draw from."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from transformers import GenerationConfig

from explorer.sampling import Choice, Chooser, SamplingSettings
from tests.lanes import Bench

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
    assert (choice.token_id, choice.origin, choice.margin) == (1, "argmax", 0.0)
    assert choice.probability == pytest.approx(float(row.softmax(0)[1]))


@given(st.lists(st.floats(-20, 20, width=32), min_size=2, max_size=30), st.integers(0, 99))
def test_probability_and_margin_are_those_of_the_row(values: list[float], seed: int) -> None:
    row = torch.tensor(values)
    chooser = Chooser(SamplingSettings(temperature=0.8, seed=seed))
    choice = chooser.choose(row, [1])
    first, second = sorted(values, reverse=True)[:2]
    assert choice.margin == pytest.approx(first - second, abs=1e-5)
    assert choice.probability == pytest.approx(float((row / 0.8).softmax(0)[choice.token_id]), abs=1e-6)
    assert choice.origin == "sample"
    record = choice.record("text")
    assert (record.token_id, record.text, record.margin) == (choice.token_id, "text", choice.margin)


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


def test_half_precision_rows_are_judged_in_float32() -> None:
    row = torch.tensor([0.1, 0.2, 0.3], dtype=torch.bfloat16)
    probs = Chooser(SamplingSettings(temperature=0.5)).distribution(row, [0])
    assert probs.dtype == torch.float32
    assert torch.equal(probs, (row.float() / 0.5).softmax(0))


def test_a_probability_a_hair_above_one_is_recorded_as_one() -> None:
    assert Choice(1, "argmax", 1.0000001, 0.0).record("x").probability == 1.0


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
        {"tempreature": 1.0},
    ],
    ids=str,
)
def test_settings_out_of_bounds_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        SamplingSettings(**values)
