"""Acceptance is counted from the steps, and drawn without colour alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.figures.acceptance import ACCEPTANCE, DEFINITIONS, by_depth, trailing_means
from explorer.metrics import drafts_kept
from tests.figures.checks import LIGHT
from tests.figures.test_any_step import steps
from tests.traces import example_step, make_run, make_step


@given(st.lists(steps(), max_size=5))
def test_counts_by_depth_add_up(several):
    depths = by_depth(several)
    assert sum(each.nodes for each in depths) == sum(len(step.nodes) - 1 for step in several)
    assert sum(each.accepted for each in depths) == sum(len(step.accepted) for step in several)
    assert all(0 <= each.accepted <= each.tried <= min(each.nodes, len(several)) for each in depths)
    reached = [each.accepted for each in depths]
    assert reached == sorted(reached, reverse=True), "a deeper draft is accepted only where its parent is"


def test_a_step_counts_once_a_depth_however_many_drafts_it_has():
    depths = by_depth([example_step(), make_step(" if", [(0, " n", 0.6)], [], " x")])
    assert [(each.depth, each.tried, each.accepted) for each in depths[:2]] == [(1, 2, 1), (2, 1, 1)]
    assert depths[0].share == 0.5


@given(st.lists(st.integers(0, 9), max_size=40), st.integers(1, 10))
def test_trailing_means_lie_within_their_values(values, window):
    means = trailing_means(values, window)
    assert len(means) == len(values)
    for place, mean in enumerate(means):
        part = values[max(0, place + 1 - window) : place + 1]
        assert min(part) <= mean <= max(part)


@pytest.mark.parametrize("axis", ACCEPTANCE.axes)
def test_lanes_share_an_axis_and_differ_by_dash_and_mark(axis):
    run = make_run()
    built = ACCEPTANCE.build(run, LIGHT, axis)
    lines = built["data"]
    assert [line["name"] for line in lines] == ["Medusa", "EAGLE", "Lookahead"], "plain decoding drafts nothing"
    assert len({line["line"]["dash"] for line in lines}) == len({line["marker"]["symbol"] for line in lines}) == 3
    assert built["alt"].startswith(DEFINITIONS[axis])
    assert all(len(line["hovertext"]) == len(line["x"]) for line in lines)
    assert all(lane in run.lanes for line in lines for _, lane in line["customdata"])


def test_accepted_lengths_are_the_steps_own():
    run = make_run()
    built = ACCEPTANCE.build(run, LIGHT, "steps")
    for line in built["data"]:
        own = list(run.lanes[line["customdata"][0][1]].steps)
        assert line["y"][-1] == pytest.approx(trailing_means(list(map(drafts_kept, own)))[-1], abs=1e-4)
        assert [step for step, _ in line["customdata"]] == list(range(len(own)))
