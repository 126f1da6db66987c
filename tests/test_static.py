"""Padded passes: the same outputs, steps and caches as eager ones, on buffers that lanes take over from one another."""

from __future__ import annotations

import gc
import logging
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from explorer.errors import ExplorerError
from explorer.execution import choose_execution
from explorer.load import describe
from explorer.static import CONTEXT_STEP, StaticCache, bucket_positions, bucket_rows
from explorer.target import TAP_LAST, TargetModel
from explorer.toy import toy_tokenizer
from explorer.tree import Candidate, CandidateTree
from tests.lanes import ALL_NAMES, PROMPTS, SETTINGS, Bench, assert_same_output, decode, make_toy

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def static() -> Bench:
    """The toy with padded passes."""
    return running("static")


def running(execution: Any) -> Bench:
    toy = make_toy(0)
    told = describe(toy.model, model_id="toy", label="toy")
    return Bench(toy.model, TargetModel(toy.model, toy_tokenizer(), told, execution), toy.drafters)


@pytest.mark.parametrize("name", ALL_NAMES)
def test_every_setting_gives_the_same_steps_as_eager_and_the_output_of_generate(
    name: str, toy: Bench, static: Bench
) -> None:
    for place, (method, params) in enumerate(SETTINGS):
        if method != name:
            continue
        ids = toy.ids(PROMPTS[place % len(PROMPTS)])
        turns: dict[str, list[tuple[Any, ...]]] = {"eager": [], "static": []}
        outputs = {}
        for execution, bench in (("eager", toy), ("static", static)):
            lane = bench.lane(method, params, ids=ids, budget=20)
            kept = turns[execution]
            outputs[execution] = decode(
                lane, lambda turn, kept=kept: kept.append((turn.tree.token_ids, turn.committed))
            )
            assert isinstance(lane.cache, StaticCache) == (execution == "static")
        assert_same_output(toy, ids, outputs["static"], toy.expected(ids, 20))
        assert turns["static"] == turns["eager"], (method, params)


@pytest.mark.parametrize("name", ALL_NAMES)
def test_after_every_step_the_cache_is_a_fresh_prefill(name: str, static: Bench) -> None:
    ids = static.ids(PROMPTS[2])
    lane = static.lane(name, ids=ids, budget=10)
    for _ in lane.turns():
        fresh = static.target.prefill([*ids, *lane.output[:-1]])
        assert lane.cache.length == fresh.cache.length
        for mine, theirs in zip(lane.cache.rows(), fresh.cache.rows(), strict=True):
            torch.testing.assert_close(mine, theirs, atol=5e-4, rtol=5e-4)


@settings(max_examples=20)
@given(
    parents=st.lists(st.integers(0, 1000), max_size=70),
    prompt=st.lists(st.integers(2, 200), min_size=1, max_size=12),
)
def test_tree_rows_equal_eager_ones_whatever_the_padding(
    static: Bench, toy: Bench, parents: list[int], prompt: list[int]
) -> None:
    tree = CandidateTree(7, tuple(Candidate(place + 9, up % (place + 1), "test") for place, up in enumerate(parents)))
    outputs = []
    for bench in (static, toy):
        cache = bench.target.new_cache(120)
        cache.copy_from(bench.target.prefill(prompt).cache)
        outputs.append(bench.target.verify(tree, cache, taps=frozenset({"hidden:2"})))
    assert outputs[0].logits.shape == (len(tree), 384)
    torch.testing.assert_close(outputs[0].logits, outputs[1].logits, atol=2e-4, rtol=2e-4)
    assert outputs[0].taps.keys() == outputs[1].taps.keys() == {TAP_LAST, "hidden:2"}
    for tap, rows in outputs[0].taps.items():
        torch.testing.assert_close(rows, outputs[1].taps[tap], atol=2e-4, rtol=2e-4)


def test_a_lane_takes_over_what_an_ended_one_left_and_sees_nothing_of_it(static: Bench) -> None:
    ids = static.ids(PROMPTS[1])
    first = static.target.new_cache(200)
    assert isinstance(first, StaticCache)
    for _, *buffers in first._groups:
        for buffer in buffers:
            buffer.fill_(1e4)
    store = first.store
    del first
    gc.collect()
    lane = static.lane("medusa", ids=ids, budget=20)
    assert isinstance(lane.cache, StaticCache)
    again = [lane.cache.store is store]
    assert_same_output(static, ids, decode(lane), static.expected(ids, 20))
    others = [static.lane("medusa", ids=ids, budget=4) for _ in range(3)]
    stores = [lane.cache.store for lane in [lane, *others] if isinstance(lane.cache, StaticCache)]
    assert len({id(each) for each in stores}) == 4, "two living lanes share buffers"
    assert again == [True]


def test_an_output_outlives_the_next_pass(static: Bench) -> None:
    cache = static.target.new_cache(40)
    cache.copy_from(static.target.prefill([5, 6, 7]).cache)
    first = static.target.verify(CandidateTree(8), cache)
    before = {name: tap.clone() for name, tap in first.taps.items()}
    cache.commit([0])
    static.target.verify(CandidateTree(9), cache)
    assert all(torch.equal(first.taps[name], tap) for name, tap in before.items())


def test_a_pass_that_does_not_fit_is_one_sentence(static: Bench) -> None:
    cache = static.target.new_cache(5)
    cache.copy_from(static.target.prefill([5, 6, 7]).cache)
    tree = CandidateTree(8, (Candidate(9, 0, "test"), Candidate(10, 0, "test")))
    with pytest.raises(ExplorerError, match="holds 5 positions and is full"):
        static.target.verify(tree, cache)


@given(rows=st.integers(1, 400))
def test_buckets_hold_what_they_are_for_and_are_few(rows: int) -> None:
    width = bucket_rows(rows)
    assert rows <= width < rows + 64
    assert width in (1, 2, 4, 8, 16, 32, 64) or width % 64 == 0
    assert bucket_rows(width) == width
    assert rows <= bucket_positions(rows) < rows + CONTEXT_STEP


def test_where_graphs_cannot_be_captured_passes_become_eager_with_one_sentence(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """This machine's processor captures no CUDA graphs, which is as good a failure as any."""
    bench = running("graphs")
    ids = bench.ids(PROMPTS[0])
    with caplog.at_level(logging.WARNING, "explorer.static"):
        lanes = [bench.lane("eagle", ids=ids, budget=20) for _ in range(2)]
        outputs = [decode(lane) for lane in lanes]
    assert [record.getMessage().startswith("Passes run without CUDA graphs") for record in caplog.records] == [True]
    assert bench.target.execution == "eager"
    assert not isinstance(bench.target.new_cache(8), StaticCache)
    assert outputs[0] == outputs[1]
    assert_same_output(bench, ids, outputs[0], bench.expected(ids, 20))


def test_how_passes_run_is_chosen_by_name_and_device() -> None:
    cuda = torch.device("cuda")
    assert choose_execution("auto", CPU) == "eager"
    assert choose_execution("auto", cuda) == "graphs"
    assert choose_execution("auto", cuda, spread=True) == "eager"
    assert choose_execution("static", CPU) == "static"
    assert choose_execution("graphs", cuda) == "graphs"


@pytest.mark.parametrize(
    ("wanted", "spread", "message"),
    [
        ("fast", False, "There is no execution 'fast'; use auto, eager, static or graphs."),
        ("graphs", False, "CUDA graphs need a CUDA device"),
        ("static", True, "A model spread over devices cannot run with execution static"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(wanted: str, spread: bool, message: str) -> None:
    with pytest.raises(ExplorerError, match=message):
        choose_execution(wanted, CPU, spread=spread)
