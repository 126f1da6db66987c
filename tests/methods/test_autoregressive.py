"""The baseline: one token a pass, nothing drafted, through the same loop."""

from __future__ import annotations

from explorer.methods.autoregressive import Autoregressive
from tests.lanes import Bench


def test_one_token_a_pass(toy: Bench) -> None:
    lane = toy.lane("autoregressive", ids=toy.ids("the rain"), budget=9)
    turns = list(lane.turns())
    assert [len(turn.committed) for turn in turns] == [1] * 8
    assert all(len(turn.tree) == 1 and turn.verdict.accepted == () for turn in turns)
    assert lane.draft_passes == 0
    assert lane.method.payload() is None


def test_it_needs_one_row_and_no_drafter() -> None:
    assert Autoregressive.max_rows(Autoregressive.Params()) == 1
    assert Autoregressive.needs is None
    assert Autoregressive.taps == frozenset()
