"""Jacobi's rule: a chain settles at the target's own tokens, greedily and under sampling, by prefix and by block."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import pytest
import torch

from explorer.acceptance import BlockRule
from explorer.sampling import Chooser, SamplingSettings
from explorer.tree import Candidate, CandidateTree
from tests.acceptance.test_matching import VOCABULARY, row_after, tree_logits

START = [2, 1, 3]


def iterate(chooser: Chooser, name: str, size: int = 3) -> tuple[list[int], int]:
    """Jacobi iterations from a block of zeros until `size` tokens and the one after are decided; tokens, passes."""
    history, guess, passes = list(START), [0] * size, 0
    while len(history) < len(START) + size + 1:
        guess = guess[: len(START) + size - len(history)]
        tree = CandidateTree(history[-1], tuple(Candidate(token, place, "t") for place, token in enumerate(guess)))
        verdict = BlockRule(name)(tree, tree_logits(tree, history), chooser, history, {})  # type: ignore[arg-type]
        passes += 1
        agreed = len(verdict.accepted)
        if verdict.commits:
            history += [*guess[:agreed], verdict.choice.token_id]
            guess = [*verdict.wanted[agreed + 1 :], *([0] * size)]
        else:
            assert verdict.accepted == ()
            guess = list(verdict.wanted[:-1])
    return history[len(START) :], passes


def plain(size: int) -> list[int]:
    """One token after another."""
    history = list(START)
    for _ in range(size):
        history.append(int(row_after(history).argmax()))
    return history[len(START) :]


@pytest.mark.parametrize("name", ["prefix", "block"])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_greedy_it_settles_at_plain_decoding(name: str, size: int) -> None:
    tokens, passes = iterate(Chooser(SamplingSettings()), name, size)
    assert tokens == plain(size + 1)
    assert passes <= size + 1


def test_both_verifications_draw_the_same_tokens() -> None:
    """Draws belong to positions: the way there does not matter, and the block never needs fewer passes."""
    for seed in range(20):
        settings = SamplingSettings(temperature=0.9, seed=seed)
        (one, fast), (two, slow) = (iterate(Chooser(settings), name) for name in ("prefix", "block"))
        assert one == two
        assert slow >= fast


@pytest.mark.parametrize("name", ["prefix", "block"])
def test_sampled_tokens_have_the_targets_law(name: str) -> None:
    """800 seeded runs of two tokens, 16 pairs: the 0.1 % point of chi-square with 15 degrees is 37.7."""
    settings, runs = SamplingSettings(temperature=1.0), 800
    counts = Counter(
        tuple(iterate(Chooser(settings.model_copy(update={"seed": seed})), name, 1)[0]) for seed in range(runs)
    )
    law = {}
    for pair in itertools.product(range(VOCABULARY), repeat=2):
        rows = [row_after([*START, *pair[:end]]) for end in range(2)]
        law[pair] = math.prod(float(torch.softmax(row, -1)[token]) for row, token in zip(rows, pair, strict=True))
    often = {pair: runs * chance for pair, chance in law.items() if runs * chance >= 4}
    statistic = sum((counts[pair] - number) ** 2 / number for pair, number in often.items())
    assert sum(counts.values()) == runs
    assert statistic < 37.7
