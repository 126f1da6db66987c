"""Rows kept and dropped add up, and fit the steps before and after."""

from pathlib import Path

from hypothesis import given

from explorer.figures.cache import CACHE, MOST
from explorer.passes import cached_before, kept_nodes, pass_rows
from explorer.trace_io import read_comparison
from tests.figures.checks import build
from tests.figures.test_any_step import steps
from tests.judged import jacobi_steps
from tests.traces import big_step, example_step, lookahead_step, make_step

EXAMPLE = Path(__file__).parents[2] / "assets" / "examples" / "fibonacci.json"


def test_in_a_real_recording_each_step_begins_where_the_last_one_ended():
    for trace in read_comparison(EXAMPLE).lanes:
        length = len(trace.prompt.token_ids)
        for step in trace.steps:
            assert cached_before(step) == length
            length = step.cache_length


@given(steps())
def test_every_row_is_kept_or_dropped(step):
    rows = build(CACHE, step)["rows"]
    fates = [row[3]["t"] for row in rows if row[3].get("node") is not None]
    assert len(fates) == len(step.nodes)
    assert sum(fate.startswith("kept") for fate in fates) == len(kept_nodes(step))
    assert sum(fate == "dropped" for fate in fates) == len(step.nodes) - len(kept_nodes(step))


def test_rows_move_up_behind_what_was_cached():
    built = build(CACHE, example_step())
    assert built["caption"] == "44 rows before; the pass wrote 13 behind them; 4 kept, 9 dropped; 48 rows after."
    fates = {row[0]["node"]: row[3]["t"] for row in built["rows"][1:]}
    assert fates[0] == "kept in place"
    assert fates[1] == "kept in place"
    assert fates[3] == "kept, moved to row 46"
    assert fates[6] == "kept, moved to row 47"
    assert fates[2] == fates[12] == "dropped"
    assert built["rows"][7][1]["t"] == "47", "three positions behind the root's 44"


def test_the_token_after_the_last_committed_one_is_not_cached():
    assert kept_nodes(make_step(" if", [(0, " n", 0.6), (1, " x", 0.2)], [1, 2], " return", committed=2)) == (0, 1)


def test_a_pass_that_commits_nothing_keeps_nothing():
    step = jacobi_steps()[0]
    assert kept_nodes(step) == ()
    assert "0 kept, 4 dropped" in build(CACHE, step)["caption"]


def test_window_rows_are_counted():
    step = lookahead_step()
    assert pass_rows(step) == len(step.nodes) + 11
    built = build(CACHE, step)
    assert "wrote 17 behind them (11 window rows among them)" in built["caption"]
    assert built["rows"][-1][3]["t"] == "dropped"


def test_a_long_pass_is_cut_and_says_so():
    rows = build(CACHE, big_step(120, depth=9))["rows"]
    assert rows[-1][0]["t"] == f"and {121 - MOST} more"
