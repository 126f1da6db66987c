"""Acceptance is counted from the steps, and drawn without colour alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.figures.acceptance import ACCEPTANCE, DEFINITIONS, TOKENS, trailing_means
from explorer.metrics import acceptance_length, accepted_of_depth, accepted_of_tested, by_depth, drafts_kept
from tests.figures.checks import LIGHT
from tests.figures.test_any_step import steps
from tests.traces import example_step, make_run, make_step


@given(st.lists(steps(), max_size=5))
def test_counts_by_depth_add_up(several):
    depths = by_depth(several)
    assert sum(each.nodes for each in depths) == sum(len(step.nodes) - 1 for step in several)
    assert sum(each.accepted for each in depths) == sum(len(step.accepted) for step in several)
    assert all(0 <= each.accepted <= each.tested <= each.tried <= min(each.nodes, len(several)) for each in depths)
    reached = [each.accepted for each in depths]
    assert reached == sorted(reached, reverse=True), "a deeper draft is accepted only where its parent is"


def test_a_step_counts_once_a_depth_however_many_drafts_it_has():
    depths = by_depth([example_step(), make_step(" if", [(0, " n", 0.6)], [], " x")])
    assert [(each.depth, each.tried, each.accepted) for each in depths[:2]] == [(1, 2, 1), (2, 1, 1)]
    assert depths[0].share == 0.5


@given(st.lists(steps(), min_size=1, max_size=5))
def test_rates_of_a_lane_agree_with_one_another(several):
    accepted = sum(len(step.accepted) for step in several)
    assert acceptance_length(several) == pytest.approx(1 + accepted / len(several))
    tested, deep = accepted_of_tested(several), accepted_of_depth(several)
    drafted = any(len(step.nodes) > 1 for step in several)
    assert (tested is None) == (deep is None) == (not drafted)
    if drafted:
        assert 0 <= deep <= tested <= 1, "what was not tested is in the depth too"


def test_what_lies_below_a_rejected_draft_is_not_tested():
    rejected = make_step(" if", [(0, " n", 0.6), (1, " <", 0.5), (2, " 2", 0.5)], [], " x")
    assert [(each.depth, each.tried, each.tested) for each in by_depth([rejected])] == [(1, 1, 1), (2, 1, 0), (3, 1, 0)]
    assert accepted_of_tested([rejected]) == 0.0


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


def test_drafted_shares_along_the_text_are_those_of_the_tokens():
    run = make_run()
    for line in ACCEPTANCE.build(run, LIGHT, "position")["data"]:
        record = run.lanes[line["customdata"][0][1]]
        drafted = [token.source == "draft" for token in record.tokens if token.step is not None]
        assert line["x"][-1] == len(drafted)
        assert line["y"][-1] == pytest.approx(sum(drafted[-TOKENS:]) / len(drafted[-TOKENS:]), abs=1e-4)


@pytest.mark.parametrize("axis", ACCEPTANCE.axes)
def test_terms_are_defined_beside_the_picture(axis):
    definitions = dict(ACCEPTANCE.build(make_run(), LIGHT, axis)["definitions"])
    assert DEFINITIONS[axis] in definitions.values()
    assert {"mean acceptance length", "accepted of drafted", "tokens per target pass"} <= definitions.keys()


def test_accepted_lengths_are_the_steps_own():
    run = make_run()
    built = ACCEPTANCE.build(run, LIGHT, "steps")
    for line in built["data"]:
        own = list(run.lanes[line["customdata"][0][1]].steps)
        assert line["y"][-1] == pytest.approx(trailing_means(list(map(drafts_kept, own)))[-1], abs=1e-4)
        assert [step for step, _ in line["customdata"]] == list(range(len(own)))
