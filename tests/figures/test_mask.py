"""The mask drawn is the mask that the target used."""

import pytest
from hypothesis import given

from explorer.figures.mask import CACHE_COLUMN, MARKS, MASK, marks_of, pitch_of
from explorer.passes import cached_before
from explorer.tree import Candidate, CandidateTree
from tests.figures.checks import assert_harmless, build, drawn_texts, nodes_trace
from tests.figures.test_any_step import steps
from tests.traces import HOSTILE, big_step, example_step, lookahead_step, make_step


def tree_of(step):
    return CandidateTree(
        step.nodes[0].token_id, tuple(Candidate(n.token_id, n.parent, n.source) for n in step.nodes[1:])
    )


@given(steps())
def test_marks_are_what_the_target_was_given(step):
    visible = tree_of(step).visibility()
    drawn = {(mark.node.id, mark.column.id) for mark in marks_of(step) if mark.column is not None}
    assert drawn == {(row, column) for row, column in visible.nonzero().tolist()}
    whole = [mark.node.id for mark in marks_of(step) if mark.column is None]
    assert whole == ([node.id for node in step.nodes] if cached_before(step) else [])


@pytest.mark.parametrize("step", [example_step(), big_step(25), big_step(60), lookahead_step()], ids=str)
def test_points_carry_their_row_and_column(step):
    (points,) = nodes_trace(build(MASK, step))
    for x, y, (row, column) in zip(points["x"], points["y"], points["customdata"], strict=True):
        assert y == row
        assert x == (CACHE_COLUMN if column is None else column)
    assert {row for row, _ in points["customdata"]} == {node.id for node in step.nodes}


def test_sixty_nodes_stay_readable():
    built = build(MASK, big_step(60))
    assert built["layout"]["height"] >= 61 * pitch_of(61) >= 61 * 13
    axis = built["layout"]["yaxis"]
    assert len(axis["ticktext"]) == 61
    assert axis["tickfont"]["size"] >= 11
    assert built["min_width"] > 61 * pitch_of(61)


def test_marks_differ_by_symbol_and_not_by_colour_alone():
    assert len({MARKS[role] for role in ("accepted", "rejected", "unreached", "cut")}) == 4
    (points,) = nodes_trace(build(MASK, example_step()))
    marker = points["marker"]
    assert len(set(zip(marker["symbol"], marker["color"], strict=True))) == 4, "root, accepted, rejected, unreached"


def test_what_rides_in_the_pass_is_said():
    built = build(MASK, lookahead_step())
    assert "11 window rows of the same pass not drawn" in built["layout"]["annotations"][0]["text"]
    assert "11 window rows of the same pass see the root" in built["alt"]


def test_words():
    said = build(MASK, example_step())["alt"]
    assert said.startswith(
        "Attention mask of step 9: 13 rows, each sees the 44 cached positions, its ancestors and itself."
    )
    assert '"0" sees "␣<=" "␣" and itself' in said


def test_a_plain_step_has_one_row():
    built = build(MASK, make_step(" if", [], [], " n"))
    assert built["data"][0]["customdata"] == [[0, None], [0, 0]]
    assert built["alt"] == "Attention mask of step 1: 1 row, which sees the 39 cached positions and itself."


def test_hostile_tokens_stay_text():
    drafts = [(0, text, 0.1) for text in HOSTILE]
    assert_harmless(drawn_texts(build(MASK, make_step("<img src=x>", drafts, [], "</b>"))))
