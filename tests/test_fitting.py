"""Rates that made a recording are found again, and a check says how far the model is off."""

from pathlib import Path

import pytest

from explorer.figures.roofline import ROOFLINE
from explorer.figures.theme import THEMES
from explorer.fitting import checked, disturbed, fitted, together, unrest
from explorer.metrics import phase_ms
from explorer.roofline import Hardware, priced, size_of, workload
from explorer.runs import Run
from explorer.session import recorded_events
from explorer.trace import Branch
from explorer.trace_io import read_comparison
from tests.traces import make_comparison

EXAMPLE = Path(__file__).parents[1] / "assets" / "examples" / "fibonacci.json"
TRACES = make_comparison().lanes


def recorded_on(hardware, traces=TRACES, **model):
    """The traces as that hardware would have made them."""
    made = []
    for trace in traces:
        trace = trace.model_copy(update={"model": trace.model.model_copy(update=model)})
        times = priced(workload(trace), hardware, size_of(trace))["target_ms"]
        steps = [_timed(step, float(time)) for step, time in zip(trace.steps, times, strict=True)]
        made.append(trace.model_copy(update={"steps": tuple(steps)}))
    return made


def _timed(step, verify):
    spans = tuple(s.model_copy(update={"duration_ms": verify}) if s.phase == "verify" else s for s in step.spans)
    return step.model_copy(update={"spans": spans})


def test_rates_that_made_a_recording_are_found_again():
    found = fitted(recorded_on(Hardware("made up", 0.2, 0.0002, overlap=False)))
    assert found.bandwidth_gb_s == pytest.approx(0.2, rel=1e-2)
    assert found.arithmetic_tflop_s == pytest.approx(0.0002, rel=1e-2)
    assert found.overhead_us == 0.0
    assert not found.overlap


def test_a_timed_memory_tells_overhead_from_bandwidth():
    made = Hardware("made up", 0.2, 0.0002, None, 900.0, overlap=False)
    found = fitted(recorded_on(made, memory_gb_s=0.2))
    assert found.bandwidth_gb_s == 0.2
    assert found.arithmetic_tflop_s == pytest.approx(0.0002, rel=2e-2)
    assert found.overhead_us == pytest.approx(900.0, rel=2e-2)


def test_passes_faster_than_the_timed_memory_are_believed():
    found = fitted(recorded_on(Hardware("made up", 0.2, 0.0002, overlap=False), memory_gb_s=0.1))
    assert found.bandwidth_gb_s == pytest.approx(0.2, rel=1e-2), "the timing met a busy moment"
    assert found.overhead_us == 0.0


def test_passes_of_one_width_tell_nothing():
    assert fitted([]) is None
    assert fitted([TRACES[0]]) is None


def test_an_unquiet_machine_is_told_from_a_quiet_one():
    steady = recorded_on(Hardware("made up", 0.2, 0.0002, overlap=False))
    assert unrest(steady) == pytest.approx(1.0, abs=0.05)
    assert disturbed(steady) == ""
    plain = steady[0]
    steps = [_timed(step, phase_ms(step, "verify") * (1 + 2 * (step.index % 2))) for step in plain.steps]
    shaken = plain.model_copy(update={"steps": tuple(steps)})
    assert unrest([shaken]) > 2
    assert "not quiet" in disturbed([shaken])


def test_the_model_meets_what_it_was_made_of():
    made = recorded_on(Hardware("made up", 0.2, 0.0002, overlap=False))
    for trace in made:
        check = checked(trace, made[0], fitted(made))
        assert check.said_target_ms == pytest.approx(check.target_ms, rel=2e-2)
        assert check.rest_ms >= 0.0
        assert (check.draft_ms is None) == (workload(trace).draft_passes == 0)


def test_the_recorded_machine_is_predicted_without_being_told_its_speed_ups():
    """Rates come from target passes alone; tokens, draft passes and plain decoding do the rest."""
    lanes = read_comparison(EXAMPLE).lanes
    machine = fitted(lanes)
    plain = next(trace for trace in lanes if trace.method == "autoregressive")
    for trace in lanes:
        check = checked(trace, plain, machine)
        assert check.said_speedup == pytest.approx(check.speedup, rel=0.15)
        assert sum(phase_ms(step, "verify") for step in trace.steps) > 0


def test_a_lane_that_was_timed_elsewhere_tells_nothing_of_the_recording_machine():
    comparison = read_comparison(EXAMPLE)
    plain = comparison.lanes[0]
    slow = [step.model_copy(update={"spans": tuple(_slower(span) for span in step.spans)}) for step in plain.steps]
    branch = Branch(kind="rerun", lane=plain.lane, apart=True)
    added = plain.model_copy(update={"lane": "autoregressive-2", "steps": tuple(slow), "branch": branch})
    grown = comparison.model_copy(update={"lanes": (*comparison.lanes, added)})
    assert fitted(together(grown.lanes)) == fitted(comparison.lanes)
    assert fitted(grown.lanes) != fitted(comparison.lanes)
    places = [_drawn(each)["cost"]["hardware"][0] for each in (comparison, grown)]
    assert places[0] == places[1]
    assert _drawn(grown)["cost"]["check"] == _drawn(comparison)["cost"]["check"]


def _slower(span):
    return span.model_copy(update={"duration_ms": 2.5 * span.duration_ms})


def _drawn(comparison):
    run = Run("any", recorded=True)
    for event in recorded_events(comparison):
        run.apply(event)
    return ROOFLINE.build(run, THEMES["light"], ROOFLINE.axes[0])
