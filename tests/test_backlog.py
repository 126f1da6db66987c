"""Turns wait a little before they are written: in order, not too many of them, and not for long."""

from __future__ import annotations

from dataclasses import replace

import torch

from explorer.backlog import MOST_ROWS, MOST_TURNS, PATIENCE_S, Backlog
from explorer.record import StepWriter
from explorer.trace import Span
from tests.lanes import Bench


class Clock:
    """Stands still until it is set."""

    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self) -> float:
        return self.at


def filled(toy: Bench, turns: int, clock: Clock) -> tuple[Backlog[str], list[int]]:
    """A backlog with the first turns of a lane, and their indices."""
    lane, backlog = toy.lane("autoregressive", ids=[40, 50, 60], budget=30), Backlog[str](clock)
    writer, made = StepWriter(toy.target.texts), []
    for turn in lane.turns():
        if len(made) == turns:
            break
        backlog.add("lane", writer, turn, lane.method.payload(), last=lane.stop_reason is not None)
        made.append(turn.index)
    return backlog, made


def test_it_is_due_when_there_are_many(toy: Bench) -> None:
    assert not filled(toy, 0, Clock())[0].due
    assert not filled(toy, MOST_TURNS - 1, Clock())[0].due
    assert filled(toy, MOST_TURNS, Clock())[0].due


def test_it_is_due_when_the_first_has_waited(toy: Bench) -> None:
    clock = Clock()
    backlog, _ = filled(toy, 2, clock)
    clock.at = PATIENCE_S
    assert backlog.due
    assert len(list(backlog.write())) == 2
    assert not backlog.due


def test_a_slow_turn_waits_for_nothing(toy: Bench) -> None:
    """It began long before it was made."""
    lane, backlog = toy.lane("autoregressive", ids=[40, 50, 60], budget=30), Backlog[str](Clock())
    slow = Span(phase="verify", start_ms=0.0, duration_ms=1000.0 * PATIENCE_S)
    turn = replace(next(lane.turns()), spans=(slow,))
    backlog.add("lane", StepWriter(toy.target.texts), turn, None, last=False)
    assert backlog.due


def test_wide_passes_do_not_pile_up(toy: Bench) -> None:
    lane, backlog = toy.lane("autoregressive", ids=[40, 50, 60], budget=30), Backlog[str](Clock())
    turn = next(lane.turns())
    wide = replace(turn, output=replace(turn.output, logits=torch.zeros(MOST_ROWS // 2, 4)))
    for due in (False, True):
        backlog.add("lane", StepWriter(toy.target.texts), wide, None, last=False)
        assert backlog.due == due


def test_it_writes_what_was_added_once_and_in_order(toy: Bench) -> None:
    backlog, made = filled(toy, 5, Clock())
    written = list(backlog.write())
    assert [step.index for _, step, _ in written] == made
    assert all(owner == "lane" for owner, _, _ in written)
    assert [token.id for _, _, tokens in written for token in tokens] == toy.expected([40, 50, 60], 30)[1:6]
    assert list(backlog.write()) == []
