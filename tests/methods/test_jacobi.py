"""Jacobi: blocks become right from the left, in no more passes than they have positions; sampled, by the law."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from explorer.decode import Turn
from explorer.methods.jacobi import Jacobi, JacobiParams
from explorer.payloads import JacobiPayload, WindowToken
from explorer.sampling import SamplingSettings
from tests.lanes import PROMPTS, Bench, assert_same_output, decode, make_toy
from tests.methods.laws import chance_of_worse, exact_law, sampled

BOTH = pytest.mark.parametrize("verification", ["prefix", "block"])
WARM = SamplingSettings(temperature=1.1, top_k=20, repetition_penalty=1.2, seed=4)


def ids_of(tokens: tuple[WindowToken, ...]) -> list[int]:
    return [token.token_id for token in tokens]


def turns_of(
    bench: Bench, ids: list[int], params: dict[str, Any], **more: Any
) -> Iterator[tuple[Turn, JacobiPayload, list[int]]]:
    """Each turn, its payload, and all token ids before it."""
    lane = bench.lane("jacobi", params, ids=ids, **more)
    before = [*ids, *lane.output]
    for turn in lane.turns():
        payload = lane.method.payload()
        assert isinstance(payload, JacobiPayload)
        yield turn, payload, before
        before = [*ids, *lane.output]


@BOTH
@pytest.mark.parametrize("sampling", [SamplingSettings(), WARM], ids=["greedy", "sampled"])
def test_the_targets_tokens_are_the_next_guesses(verification: str, sampling: SamplingSettings, toy: Bench) -> None:
    """A kept prefix moves the block; else its root stays. What is not known yet is drawn from the context."""
    ids, known = toy.ids(PROMPTS[0]), [-1]
    for turn, payload, before in turns_of(
        toy, ids, {"block": 6, "verification": verification}, budget=30, sampling=sampling
    ):
        block, outputs = ids_of(payload.block), ids_of(payload.outputs)
        assert block == turn.tree.token_ids
        assert outputs == list(turn.verdict.wanted)
        assert (block[0], payload.position) == (before[-1], len(before) - 1)
        guessed = block[: len(block) - payload.random]
        assert guessed == [before[-1], *known[1:]][: len(block)]
        assert set(block[len(guessed) :]) <= set(before)
        assert payload.committed == len(turn.committed)
        known = outputs[payload.committed - 1 :] if payload.committed else [block[0], *outputs[:-1]]


@BOTH
@pytest.mark.parametrize("sampling", [SamplingSettings(), WARM], ids=["greedy", "sampled"])
@pytest.mark.parametrize("block", [2, 5, 16])
def test_a_block_takes_no_more_passes_than_it_has_positions(
    verification: str, sampling: SamplingSettings, block: int, toy: Bench
) -> None:
    """After i passes at least the root and i more are right; the count begins anew where the last block ended."""
    params, end = {"block": block, "verification": verification}, 0
    for turn, payload, before in turns_of(toy, toy.ids(PROMPTS[3]), params, budget=40, sampling=sampling):
        if payload.iteration == 0:
            assert payload.position == end or not end or (verification == "prefix" and payload.position > end)
            end = payload.position + len(payload.block)
        assert payload.iteration < block
        assert payload.position < end
        if verification == "block":
            assert payload.fixed >= min(payload.iteration + 1, len(payload.block))
        tokens, wanted = turn.tree.token_ids, turn.verdict.wanted
        assert tokens[1 : payload.fixed] == list(wanted[: payload.fixed - 1])
        assert payload.fixed == len(tokens) or tokens[payload.fixed] != wanted[payload.fixed - 1]
        assert before[-1] == tokens[0]


def test_whole_blocks_commit_all_or_nothing(toy: Bench) -> None:
    ids, seen = toy.ids(PROMPTS[1]), set()
    for turn, payload, _ in turns_of(toy, ids, {"block": 4, "verification": "block"}, budget=33):
        whole = payload.fixed == len(payload.block)
        assert len(turn.committed) == (len(payload.block) if whole else 0)
        assert len(turn.verdict.accepted) == (len(payload.block) - 1 if whole else 0)
        seen.add(whole)
    assert seen == {True, False}


def test_prefixes_commit_at_least_one_token(toy: Bench) -> None:
    ids = toy.ids(PROMPTS[1])
    for turn, payload, _ in turns_of(toy, ids, {"block": 4}, budget=33):
        assert len(turn.committed) == payload.fixed >= 1


@pytest.mark.parametrize("sampling", [WARM, WARM.model_copy(update={"seed": 9, "top_p": 0.9})], ids=["one", "two"])
def test_both_verifications_and_all_blocks_give_one_sample(sampling: SamplingSettings, toy: Bench) -> None:
    """The draw at a position depends on seed and position alone."""
    ids = toy.ids(PROMPTS[0])
    outputs = {
        tuple(decode(toy.lane("jacobi", {"block": block, "verification": kind}, ids=ids, budget=24, sampling=sampling)))
        for block in (2, 7, 16)
        for kind in ("prefix", "block")
    }
    assert len(outputs) == 1


@BOTH
def test_sampled_outputs_have_the_targets_distribution(verification: str) -> None:
    bench = make_toy(1, num_hidden_layers=3)
    ids = bench.ids("a b c")
    sampling = SamplingSettings(temperature=0.9, top_k=3)
    params = {"block": 3, "verification": verification}
    counts = sampled(bench, "jacobi", params, ids, sampling, length=3, runs=300)
    assert chance_of_worse(counts, exact_law(bench, ids, sampling, 3)) > 0.001


@BOTH
@pytest.mark.parametrize("budget", [1, 2, 3, 9, 17])
def test_a_block_is_cut_to_what_the_output_can_take(verification: str, budget: int, toy: Bench) -> None:
    ids = toy.ids(PROMPTS[2])
    total = 0
    for turn, payload, before in turns_of(toy, ids, {"block": 8, "verification": verification}, budget=budget):
        left = len(ids) + budget - len(before)
        assert len(payload.block) == len(turn.tree) == min(8, left)
        total += len(turn.committed)
    assert total == budget - 1


@BOTH
def test_the_block_fits_the_end_of_the_targets_context(verification: str) -> None:
    bench = make_toy(1, max_position_embeddings=40)
    ids = (bench.ids("word after word ") * 3)[:25]
    lane = bench.lane("jacobi", {"block": 64, "verification": verification}, ids=ids, budget=99)
    turns = list(lane.turns())
    assert len(lane.output) == 15
    assert_same_output(bench, ids, lane.output, bench.expected(ids, 15))
    assert len(turns[0].tree) == 14
    assert lane.cache.length == 39


@BOTH
@pytest.mark.parametrize("at", [2, 5])
def test_an_end_token_inside_the_block_ends_the_output(verification: str, at: int) -> None:
    ids = make_toy(0).ids("some words")
    outputs = ((seed, make_toy(seed).expected(ids, 12)) for seed in range(40))
    seed, plain = next((seed, plain) for seed, plain in outputs if plain[at] not in plain[:at])
    bench = make_toy(seed, end_ids=[plain[at]])
    lane = bench.lane("jacobi", {"block": 10, "verification": verification}, ids=ids, budget=40)
    assert decode(lane) == bench.expected(ids, 40) == plain[: at + 1]
    assert lane.stop_reason == "eos"


def test_the_rule_is_lossless_at_every_temperature() -> None:
    for verification in ("prefix", "block"):
        rule = Jacobi.rule(JacobiParams(verification=verification))
        assert rule.name == verification
        assert rule.lossless(0.0)
        assert rule.lossless(2.0)
