"""Every method's pseudocode against what the method does: its phases, and the conditions of its lines."""

from __future__ import annotations

from typing import Any

import pytest

from explorer.figures.code import PAYLOAD, RUNS
from explorer.figures.details import DETAILS
from explorer.figures.theme import THEMES
from explorer.methods import METHODS, code_of, find_method
from explorer.record import StepWriter
from explorer.sampling import SamplingSettings
from explorer.trace import Step
from tests.figures.linked import linked_ids
from tests.lanes import ALL_NAMES, PROMPTS, Bench, make_toy
from tests.traces import header

WARM = SamplingSettings(temperature=1.0, seed=3)
CASES: tuple[tuple[str, dict[str, Any], SamplingSettings], ...] = (
    *((name, {}, SamplingSettings()) for name in ALL_NAMES),
    ("draft-model", {"schedule": "adaptive", "context_branch": 4}, WARM),
    ("medusa", {"rule": "typical"}, WARM),
    ("eagle", {"tree": "chain", "rule": "speculative"}, WARM),
    ("eagle", {"tree": "static", "rule": "top-k", "context_branch": 6}, WARM),
    ("lookahead", {"pool_from_prompt": True, "ngram": 3}, SamplingSettings()),
    ("jacobi", {"verification": "block", "block": 5}, SamplingSettings()),
)
every_case = pytest.mark.parametrize(("name", "params", "sampling"), CASES, ids=str)


@pytest.fixture(scope="module")
def small() -> Bench:
    return make_toy(0)


def recorded(bench: Bench, name: str, params: dict[str, Any], sampling: SamplingSettings) -> tuple[Any, list[Step]]:
    """A header as a lane has it, and its steps; the phases before the first step are put into the header's lane."""
    lane = bench.lane(name, params, ids=bench.ids(PROMPTS[3]), budget=24, sampling=sampling)
    before = {span.phase for span in lane.clock.take()}
    writer = StepWriter(bench.target.texts)
    steps = [writer.step(turn, lane.method.payload()) for turn in lane.turns()]
    held = {**sampling.model_dump(), "acceptance_rule": lane.rule.name, **lane.params.model_dump()}
    held["sampling"] = sampling.model_dump()
    return (held, before), steps


@every_case
def test_the_code_names_the_phases_of_the_trace_and_no_others(
    name: str, params: dict[str, Any], sampling: SamplingSettings, small: Bench
) -> None:
    (held, before), steps = recorded(small, name, params, sampling)
    code = code_of(name, held)
    assert {line.phase for line in code} == before | {span.phase for step in steps for span in step.spans}
    assert 5 <= len(code) <= 14
    for line in code:
        condition = line.runs.removeprefix("not ")
        field = condition.removeprefix(PAYLOAD)
        known = any(field in (step.payload or {}) for step in steps)
        assert condition in RUNS or (condition.startswith(PAYLOAD) and known)


@every_case
def test_every_view_carries_ids_of_the_steps_nodes_and_those_that_draw_nodes_carry_all(
    name: str, params: dict[str, Any], sampling: SamplingSettings, small: Bench
) -> None:
    _, steps = recorded(small, name, params, sampling)
    for place, step in enumerate(steps):
        own = {str(node.id) for node in step.nodes}
        for view, ids in linked_ids(header(name), steps[: place + 1]).items():
            assert ids <= own | {"next"}, view
            if view in ("tree", "mask", "cache", "jacobi", "lookup"):
                assert own <= ids, (view, place)
        told = DETAILS.build(header(name), step, THEMES["light"])["nodes"]
        assert told.keys() == own | {"next"}


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_code_is_written_for_any_parameters_that_a_file_may_hold(method: Any) -> None:
    odd = {name: ["x"] for name in method.Params.model_fields} | {"sampling": 3, "acceptance_rule": {}}
    for params in ({}, odd, {"acceptance_rule": "speculative", "sampling": {"temperature": 1}}):
        lines = find_method(method.name).code(params)
        assert lines
        assert all(line.text.strip() and len(line.text) < 90 for line in lines)
    assert code_of("unheard of", {}) == ()
