"""Sizes follow costs and what was accepted; the same costs and steps give the same sizes; the record says why."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.costs import ROWS, measure_costs
from explorer.decode import Lane, Turn
from explorer.errors import ExplorerError
from explorer.methods import METHODS, find_method
from explorer.methods.base import SizedParams
from explorer.ngrams import CopyChances, Found
from explorer.recorder import LaneClock
from explorer.sampling import SamplingSettings
from explorer.sizing import PROBE_AT_MOST_EVERY, PROBE_DEPTH, PROBE_EVERY, PROBE_NODES, Costs, Size, Sizer
from tests.lanes import COSTS, DEAR_COSTS, Bench, decode
from tests.methods.laws import chance_of_worse, exact_law, sampled

FREE = Costs(rows=(1, 64), verify_ms=(10.0, 10.0))
SIZED = tuple(method.name for method in METHODS if issubclass(method.Params, SizedParams))
LEVELS = st.lists(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=6), min_size=0, max_size=4)


def sizer(costs: Costs = COSTS, **values: Any) -> Sizer:
    return Sizer(costs, **({"most_nodes": 11, "most_depth": 5} | values))


def feed(one: Sizer, levels: list[list[float]], accepted: int) -> Size:
    """A step that drafts these levels, where the sizer wants any; of the verified nodes so many are right."""
    depth = one.begin().depth
    if not depth:
        one.learn([], 0, 1)
        return one.choice
    drafted = levels[:depth]
    kept = one.keep(drafted)
    scores = sorted((score for level in drafted for score in level), reverse=True)[:kept]
    right = min(accepted, kept)
    one.learn(scores, right, right + 1)
    return one.choice


def test_costs_are_interpolated_and_go_on_as_they_ended() -> None:
    costs = Costs((1, 4, 8), (10.0, 13.0, 21.0))
    assert [costs.verify(rows) for rows in (1, 2, 4, 6, 8, 10)] == [10.0, 11.0, 13.0, 17.0, 21.0, 25.0]
    assert Costs((1,), (10.0,)).verify(40) == 10.0


def test_rows_that_cost_nothing_are_all_verified() -> None:
    one = sizer(FREE)
    one.begin()
    assert one.keep([[0.5, 0.1], [0.2]]) == 3
    assert one.choice.expected_tokens == pytest.approx(1.8)
    assert one.choice.expected_ms == 10.0


def test_dear_rows_are_verified_only_where_they_are_worth_it() -> None:
    one = sizer(Costs((1, 3), (10.0, 20.0)), exact=True)
    one.begin()
    assert one.keep([[0.9], [0.4]]) == 1  # each row costs half a plain pass
    assert one.keep([[0.4], [0.3]]) == 0
    assert one.choice.declined is not None
    assert one.choice.declined.nodes == 1


def test_drafts_that_are_never_right_stop_being_drafted_but_for_rare_small_probes() -> None:
    one = sizer(DEAR_COSTS)
    choices = [feed(one, [[0.3, 0.2, 0.1]] * 5, accepted=0) for _ in range(300)]
    drafting = [place for place, choice in enumerate(choices) if choice.depth]
    late = drafting[1:]
    assert all(choices[place].probing and choices[place].depth == PROBE_DEPTH for place in late)
    assert all(choices[place].nodes == PROBE_NODES for place in late)
    gaps = [after - before for before, after in itertools.pairwise(late)]
    assert gaps == sorted(gaps)
    assert PROBE_EVERY <= gaps[0] < gaps[-1] == PROBE_AT_MOST_EVERY + 1


def test_drafts_that_become_right_are_found_again() -> None:
    one = sizer()
    for _ in range(100):
        feed(one, [[0.9]] * 5, accepted=0)
    assert not feed(one, [[0.9]] * 5, accepted=0).depth
    choices = [feed(one, [[0.9]] * 5, accepted=5) for _ in range(200)]
    assert all(choice.depth for choice in choices[-50:])
    assert one.calibration > 1.0


def test_good_drafts_grow_to_the_bounds() -> None:
    one = sizer()
    choices = [feed(one, [[0.95]] * 5, accepted=5) for _ in range(12)]
    assert choices[-1].depth == choices[-1].nodes == 5
    assert choices[0].depth < 5


@given(st.lists(st.tuples(LEVELS, st.integers(0, 4)), max_size=30), st.booleans(), st.booleans())
def test_sizes_stay_in_bounds_whatever_comes(
    steps: list[tuple[list[list[float]], int]], per_depth: bool, exact: bool
) -> None:
    one = sizer(pass_per_depth=per_depth, exact=exact)
    for levels, accepted in steps:
        choice = feed(one, levels, accepted)
        assert 0 <= choice.nodes <= 11
        assert 0 <= choice.depth <= 5
        assert math.isfinite(choice.expected_tokens)
        assert choice.expected_ms >= COSTS.verify(1)
        assert one.rate >= 1.0 / COSTS.verify(1)


@given(st.lists(LEVELS, min_size=1, max_size=8))
def test_drawn_drafts_are_never_picked_over(steps: list[list[list[float]]]) -> None:
    """Which of them are verified must not depend on what was drawn."""
    one = sizer(DEAR_COSTS, most_nodes=64)
    for levels in steps:
        one.begin()
        assert one.keep(levels, whole=True) == sum(map(len, levels))


def test_the_branch_shares_the_pass_with_the_tree() -> None:
    one = sizer(Costs((1, 3), (10.0, 16.0)), exact=True)
    one.begin([0.9, 0.2])
    assert one.keep([[0.8, 0.1]]) == 1
    assert one.choice.branch_tokens == 1
    assert one.choice.expected_tokens == pytest.approx(2.7)


def test_copies_teach_whether_or_not_they_were_verified() -> None:
    chances, found = CopyChances(), Found(2, 0, (7, 8, 9))
    before = chances.of(found)
    chances.learn(found, [7, 8, 9, 4])
    better = chances.of(found)
    assert all(now > then for now, then in zip(better, before, strict=True))
    chances.learn(found, [3])
    assert chances.of(found)[0] < better[0]
    assert chances.of(None) == []


def test_copies_chances_fall_along_the_copy() -> None:
    found = Found(3, 0, (1, 2, 3, 4))
    falling = CopyChances().of(found)
    assert falling == sorted(falling, reverse=True)
    assert len(falling) == 4


# lanes


def turns(bench: Bench, name: str, costs: Costs, **params: Any) -> tuple[Lane, list[Turn]]:
    kept: list[Turn] = []
    lane = bench.lane(
        name, {"size": "auto", **params}, ids=bench.ids("one two one two one two"), budget=60, costs=costs
    )
    decode(lane, kept.append)
    return lane, kept


@pytest.mark.parametrize("name", SIZED)
def test_every_step_says_what_was_chosen(name: str, toy: Bench) -> None:
    _, kept = turns(toy, name, COSTS)
    for turn in kept:
        assert turn.size is not None
        assert turn.size.nodes == len(turn.tree.candidates)
        assert turn.size.plain_ms == COSTS.verify(1)
        assert turn.size.nodes or turn.size.branch_tokens == 0
    assert any(turn.size and turn.size.nodes for turn in kept)


@pytest.mark.parametrize("name", SIZED)
def test_dear_passes_make_a_lane_draft_less(name: str, toy: Bench) -> None:
    rows = [sum(len(turn.tree) for turn in turns(toy, name, costs)[1]) / 60 for costs in (FREE, DEAR_COSTS)]
    assert rows[1] < rows[0]


@pytest.mark.parametrize("name", SIZED)
def test_the_same_costs_and_seed_give_the_same_steps(name: str, toy: Bench) -> None:
    trees = [[(turn.tree, turn.size) for turn in turns(toy, name, COSTS, context_branch=6)[1]] for _ in range(2)]
    assert trees[0] == trees[1]


def test_a_lane_that_drafts_nothing_asks_no_drafter(toy: Bench) -> None:
    lane, kept = turns(toy, "eagle", DEAR_COSTS)
    drafted = [turn for turn in kept if turn.size and turn.size.depth]
    assert len(drafted) < len(kept) / 2
    assert lane.draft_passes <= 1 + 5 * len(drafted)


def test_fixed_lanes_carry_no_size(toy: Bench) -> None:
    seen: list[Turn] = []
    decode(toy.lane("eagle", ids=[40, 41], budget=6), seen.append)
    assert all(turn.size is None for turn in seen)


def test_auto_without_costs_is_refused_in_a_sentence(toy: Bench) -> None:
    method = find_method("medusa")
    with pytest.raises(ExplorerError, match="Medusa: size auto needs the measured costs"):
        Lane(
            "x", toy.target, method, method.Params(size="auto"), sampling=SamplingSettings(), max_new_tokens=4,
            drafter=toy.drafters["medusa"],
        )  # fmt: skip


def test_measured_costs_rise_with_rows_and_know_every_drafter(toy: Bench) -> None:
    costs = measure_costs(toy.target, toy.drafters)
    assert set(costs) == {None, *toy.drafters}
    for kind, cost in costs.items():
        assert cost.rows == ROWS
        assert list(cost.verify_ms) == sorted(cost.verify_ms)
        assert (cost.draft_pass_ms > 0.0) == (kind is not None)


@pytest.mark.parametrize(
    ("name", "params"),
    [("draft-model", {}), ("eagle", {"tree": "chain", "rule": "speculative"})],
    ids=["draft-model", "eagle-chain"],
)
def test_sizes_do_not_change_the_outputs_distribution(name: str, params: dict[str, Any], toy: Bench) -> None:
    """Drafts that were drawn are kept or not whatever was drawn, so the speculative rule stays exact."""
    ids, sampling = toy.ids("the rain in the"), SamplingSettings(temperature=1.5, top_k=3)
    counts = sampled(toy, name, {"size": "auto", **params}, ids, sampling, length=3, runs=600)
    assert chance_of_worse(counts, exact_law(toy, ids, sampling, 3)) > 0.001


@pytest.mark.parametrize("kind", ["eagle", "eagle3", "draft-model"])
def test_a_draft_pass_costs_its_share_of_the_drafting_whatever_is_verified(
    kind: str, toy: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where each phase takes a second, a pass takes a second over the levels drafted, not over the tree's depth."""
    ticks = itertools.count()
    monkeypatch.setattr("explorer.decode.clock_of", lambda *device: LaneClock(now=lambda: float(next(ticks))))
    method = find_method(kind)
    levels = method.Params().model_dump().get("depth") or method.Params().model_dump()["tokens"]
    costs = measure_costs(toy.target, {kind: toy.drafters[kind]})
    assert costs[kind].draft_pass_ms == pytest.approx(1000.0 / levels, rel=0.3)
