"""Laws of the cost model: it is a model, so what can be checked is that it is the one that it says it is."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.errors import ExplorerError
from explorer.passes import cached_before, pass_rows
from explorer.roofline import (
    LARGE,
    PRESETS,
    SMALL,
    Hardware,
    ModelSize,
    draft_pass,
    drafted_ms,
    fitted,
    pass_ms,
    plain_ms,
    scaled,
    size_of,
    speedup,
    target_pass,
    workload,
)  # fmt: skip
from explorer.trace import DrafterInfo
from tests.traces import grouped, make_comparison, make_trace

ENDLESS = 1e12
RATES = st.floats(1e-2, 1e4)
TRACES = {trace.lane: trace for trace in make_comparison().lanes}
EAGLE = TRACES["eagle"].model_copy(update={"drafter": DrafterInfo(id="d", parameters=31_000, bytes=62_000)})
BARE = ModelSize("bare", 1e8, 2)


@given(RATES, RATES, st.floats(0, 5), st.sampled_from([SMALL, LARGE, BARE]))
def test_plain_decoding_is_exactly_as_fast_as_itself(bandwidth, arithmetic, overhead, size):
    hardware = Hardware("any", bandwidth, arithmetic, overhead)
    assert speedup(workload(TRACES["autoregressive"]), hardware, size) == pytest.approx(1.0)


def test_with_free_arithmetic_and_drafts_a_pass_costs_the_same_whatever_its_rows():
    hardware = Hardware("memory only", 100.0, ENDLESS)
    for trace in TRACES.values():
        assert speedup(workload(trace), hardware, BARE) == pytest.approx(trace.totals.tokens_per_target_pass)


def test_with_free_memory_a_row_costs_what_a_token_does():
    hardware = Hardware("arithmetic only", ENDLESS, 1.0)
    rows = sum(len(step.nodes) for step in EAGLE.steps)
    tokens = sum(len(step.committed) for step in EAGLE.steps)
    assert speedup(workload(EAGLE), hardware, BARE) == pytest.approx(tokens / rows)


@given(RATES, RATES, st.floats(1.01, 100))
def test_better_balance_never_makes_a_wide_tree_worse(bandwidth, arithmetic, factor):
    size = replace(SMALL, drafter_parameters=3e6)
    slow, fast = Hardware("a", bandwidth, arithmetic), Hardware("b", bandwidth, arithmetic * factor)
    assert speedup(workload(EAGLE), slow, size) <= speedup(workload(EAGLE), fast, size) * (1 + 1e-9)
    assert drafted_ms(workload(EAGLE), fast, size) <= drafted_ms(workload(EAGLE), slow, size) * (1 + 1e-9)


@pytest.mark.parametrize("hardware", PRESETS, ids=lambda each: each.name)
def test_a_speed_up_never_exceeds_the_tokens_per_pass(hardware):
    assert hardware.source
    for trace in TRACES.values():
        assert (
            speedup(workload(trace), hardware, replace(BARE, drafter_parameters=1e6))
            <= trace.totals.tokens_per_target_pass
        )


def test_only_the_ratio_matters_without_overhead():
    one, ten = Hardware("one", 10, 0.1), Hardware("ten", 100, 1.0)
    assert one.balance == ten.balance == pytest.approx(10)
    assert speedup(workload(EAGLE), one, SMALL) == pytest.approx(speedup(workload(EAGLE), ten, SMALL))
    assert plain_ms(workload(EAGLE), one, SMALL) == pytest.approx(10 * plain_ms(workload(EAGLE), ten, SMALL))


def test_a_pass_takes_the_longer_of_the_two_and_its_overhead():
    hardware = Hardware("round", 1.0, 0.001, 0.5)  # a megabyte a millisecond, a million operations a millisecond
    assert pass_ms(hardware, 3e6, 1e6) == pytest.approx(3.5)
    assert pass_ms(hardware, 1e6, 3e6) == pytest.approx(3.5)


def test_bytes_and_operations_are_those_of_the_formula():
    size = ModelSize("s", 1000, 2, 3, 10, 7)
    assert target_pass(size, 4, 50) == (2000 + 7 * 54, 4 * (2000 + 4 * 3 * 10 * 50))
    drafting = replace(size, drafter_parameters=100, head_parameters=30)
    assert draft_pass(drafting, 2) == (200, 400)
    assert draft_pass(replace(drafting, shares_head=True), 2) == (260, 520)


def test_draft_passes_cost():
    size = replace(BARE, drafter_parameters=1e7)
    hardware = Hardware("any", 100, 100)
    assert drafted_ms(workload(EAGLE), hardware, size) > drafted_ms(workload(EAGLE), hardware, BARE)


def test_a_drafter_grows_with_its_target():
    size = scaled(EAGLE, LARGE)
    assert size.drafter_parameters / size.parameters == pytest.approx(31_000 / EAGLE.model.parameters)
    assert size.shares_head
    assert not scaled(TRACES["lookahead"], LARGE).shares_head
    assert size_of(EAGLE).bytes_per_parameter == 4, "the trace ran in float32"
    assert size_of(EAGLE).drafter_parameters == 31_000


def test_rates_that_made_a_recording_are_found_again():
    made = Hardware("made up", 20.0, 0.02)
    traces = []
    for trace in TRACES.values():
        steps = [_timed(step, pass_ms(made, *target_pass(size_of(trace), *_shape(step)))) for step in trace.steps]
        traces.append(trace.model_copy(update={"steps": tuple(steps)}))
    found = fitted(traces)
    assert found.bandwidth_gb_s == pytest.approx(20.0, rel=1e-3)
    assert found.arithmetic_tflop_s <= made.arithmetic_tflop_s * 1.001, "narrow passes wait for memory"


def _shape(step):
    return pass_rows(step), cached_before(step)


def _timed(step, verify):
    spans = tuple(s.model_copy(update={"duration_ms": verify}) if s.phase == "verify" else s for s in step.spans)
    return step.model_copy(update={"spans": spans})


def test_a_recording_without_plain_passes_tells_nothing():
    assert fitted([]) is None
    assert fitted([TRACES["autoregressive"]]) is None
    assert speedup(workload(make_trace("a", "eagle", grouped([], "eagle", 1.0))), PRESETS[0], BARE) is None


@pytest.mark.parametrize(
    "make",
    [
        lambda: Hardware("x", 0, 1), lambda: Hardware("x", 1, -1), lambda: Hardware("x", 1, 1, -1),
        lambda: Hardware("x", float("nan"), 1), lambda: ModelSize("x", 0, 2), lambda: ModelSize("x", 1, 0),
        lambda: ModelSize("x", 1, 1, layers=-1), lambda: ModelSize("x", float("nan"), 1),
    ],
)  # fmt: skip
def test_impossible_sizes_get_one_sentence(make):
    with pytest.raises(ExplorerError, match=r"^[A-Z].*\.$"):
        make()
