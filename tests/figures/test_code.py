"""The algorithm beside the steps: lines that ran are those whose phase and condition the step has."""

import pytest

from explorer.events import CodeLine
from explorer.figures.code import CODE, RUNS, phase_ms, runs
from tests.figures.checks import LIGHT, assert_plain_json
from tests.judged import draft_model_step, jacobi_steps
from tests.traces import example_step, header, lookahead_step, make_step

LINES = (
    CodeLine("prefill", "before"), CodeLine("draft", "with drafts", "drafts"), CodeLine("draft", "no", "not drafts"),
    CodeLine("accept", "failed", "failed"), CodeLine("commit", "always"), CodeLine("commit", "odd", "whatever"),
)  # fmt: skip


def headed(method="eagle"):
    return header(method).__class__(**{**vars(header(method)), "code": LINES})


def test_lines_that_ran_are_those_of_phases_that_ran_under_conditions_that_hold():
    assert CODE.build(headed(), example_step(), LIGHT)["ran"] == [1, 4]
    assert CODE.build(headed(), make_step("a", [], [], "b"), LIGHT)["ran"] == [2, 4]
    assert CODE.build(headed(), draft_model_step(), LIGHT)["ran"] == [1, 3, 4]


def test_phases_have_the_milliseconds_of_their_spans():
    step = example_step()
    built = CODE.build(headed(), step, LIGHT)
    assert_plain_json(built)
    assert sum(ms for _, ms in built["phases"]) == pytest.approx(sum(span.duration_ms for span in step.spans))
    twice = step.model_copy(update={"spans": (*step.spans, *step.spans)})
    assert {name: 2 * ms for name, ms in phase_ms(step).items()} == pytest.approx(phase_ms(twice))


def test_conditions():
    assert all(runs(name, example_step()) != runs(f"not {name}", example_step()) for name in RUNS)
    assert runs("payload.guesses", lookahead_step())
    assert runs("payload.warm_up", lookahead_step(warm_up=True))
    assert not runs("payload.guesses", example_step())
    assert not runs("never heard of", example_step())
    assert [runs("committed", step) for step in jacobi_steps()] == [False, False, False, True]


def test_the_lines_are_told_once_for_all_steps():
    told = CODE.common(headed(), [])
    assert told["lines"] == [[line.phase, line.text] for line in LINES]
    assert told["note"] == ""
    lettered = headed().__class__(**{**vars(headed()), "code": (CodeLine("accept", "u < p(x) / q(x)"),)})
    assert "q the drafter's" in CODE.common(lettered, [])["note"]
