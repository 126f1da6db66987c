"""Laws of the cost model: it is a model, so what can be checked is that it is the one that it says it is."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.errors import ExplorerError
from explorer.roofline import (
    FORMULA,
    LARGE,
    PRESETS,
    SIZES,
    SMALL,
    SYMBOLS,
    Hardware,
    ModelSize,
    Workload,
    evaluated,
    priced,
    size_of,
    speedup,
    workload,
    written,
)  # fmt: skip
from explorer.trace import DrafterInfo, ModelShape
from tests.traces import grouped, make_comparison, make_trace

ENDLESS = 1e12
RATES = st.floats(1e-2, 1e4)
TRACES = {trace.lane: trace for trace in make_comparison().lanes}
DRAFTER = DrafterInfo(id="d", parameters=31_000, bytes=62_000, pass_parameters=40_000, layers=1)
EAGLE = TRACES["eagle"].model_copy(update={"drafter": DRAFTER})
BARE = ModelSize("bare", 1e8, 2)


@given(RATES, RATES, st.floats(0, 500), st.booleans(), st.sampled_from([SMALL, LARGE, BARE]))
def test_plain_decoding_is_exactly_as_fast_as_itself(bandwidth, arithmetic, overhead, overlap, size):
    hardware = Hardware("any", bandwidth, arithmetic, None, overhead, overlap)
    assert speedup(workload(TRACES["autoregressive"]), hardware, size) == pytest.approx(1.0)


@pytest.mark.parametrize("overlap", [True, False])
def test_with_free_arithmetic_and_drafts_a_pass_costs_the_same_whatever_its_rows(overlap):
    hardware = Hardware("memory only", 100.0, ENDLESS, overlap=overlap)
    for trace in TRACES.values():
        assert speedup(workload(trace), hardware, BARE) == pytest.approx(trace.totals.tokens_per_target_pass)


@pytest.mark.parametrize("overlap", [True, False])
def test_with_free_memory_a_row_costs_what_a_token_does(overlap):
    hardware, eagle = Hardware("arithmetic only", ENDLESS, 1.0, overlap=overlap), TRACES["eagle"]
    rows = sum(len(step.nodes) for step in eagle.steps)
    tokens = sum(len(step.committed) for step in eagle.steps)
    assert speedup(workload(eagle), hardware, BARE) == pytest.approx(tokens / rows)


@given(RATES, RATES, st.floats(1.01, 100), st.booleans())
def test_faster_arithmetic_never_makes_a_wide_tree_worse(bandwidth, arithmetic, factor, overlap):
    slow = Hardware("a", bandwidth, arithmetic, overlap=overlap)
    fast = Hardware("b", bandwidth, arithmetic * factor, overlap=overlap)
    work = workload(EAGLE)
    assert speedup(work, slow, SMALL) <= speedup(work, fast, SMALL) * (1 + 1e-9)
    assert priced(work, fast, SMALL)["time_ms"] <= priced(work, slow, SMALL)["time_ms"] * (1 + 1e-9)


@given(st.integers(1, 500), RATES)
def test_more_sequences_at_once_never_help_a_wide_tree(batch, bandwidth):
    """Their rows share the arithmetic that one pass over the weights leaves free."""
    hardware, work = Hardware("any", bandwidth, 10 * bandwidth), workload(EAGLE)

    def gain(sequences):
        names = hardware.names(2)
        plain, own = work.plain().names(BARE), work.names(BARE)
        times = [evaluated(names | each | {"batch": sequences})["time_ms"] for each in (plain, own)]
        return times[0] / times[1]

    assert gain(batch + 1) <= gain(batch) * (1 + 1e-9)


@pytest.mark.parametrize("hardware", PRESETS, ids=lambda each: each.name)
@pytest.mark.parametrize("size", [BARE, *SIZES], ids=lambda each: each.name)
def test_a_speed_up_never_exceeds_the_tokens_per_pass(hardware, size):
    assert hardware.source
    for trace in (*TRACES.values(), EAGLE):
        # reading the cache weighs a little more where plain decoding stands longer
        assert speedup(workload(trace), hardware, size) <= trace.totals.tokens_per_target_pass * 1.001


def test_only_the_ratio_matters_without_overhead():
    one, ten = Hardware("one", 10, 0.1), Hardware("ten", 100, 1.0)
    assert speedup(workload(EAGLE), one, SMALL) == pytest.approx(speedup(workload(EAGLE), ten, SMALL))
    slow, fast = (priced(workload(EAGLE), each, SMALL)["time_ms"] for each in (one, ten))
    assert slow == pytest.approx(10 * fast)


def test_a_pass_takes_the_longer_of_the_two_or_their_sum_and_the_overhead_of_its_layers():
    size = ModelSize("s", 1e6, 3, layers=4)  # 3 MB, 2 million operations a row
    work = Workload((1, 3), (0, 0), 2)
    rates = {"bandwidth_gb_s": 1.0, "arithmetic_tflop_s": 0.001, "wide_tflop_s": None, "overhead_us": 100.0}
    both = priced(work, Hardware("round", **rates), size)["target_ms"]
    assert both == pytest.approx([0.5 + 3.0, 0.5 + 6.0])
    one_by_one = priced(work, Hardware("round", **rates, overlap=False), size)["target_ms"]
    assert one_by_one == pytest.approx([0.5 + 5.0, 0.5 + 9.0])


def test_bytes_and_operations_are_those_of_the_formula():
    size = ModelSize("s", 1000, 2, 3, 10, 7)
    known = priced(Workload((4,), (50,), 1, 6, 2.0, 0.1, 1), Hardware("h", 1, 1), size)
    assert known["target_bytes"] == 2000 + 7 * 54
    assert known["target_operations"] == 4 * (2000 + 4 * 3 * 10 * 50)
    assert (known["draft_bytes"], known["draft_operations"]) == (200, 400)


def test_at_the_break_even_operations_take_as_long_as_bytes():
    """Where the rows' own cache entries are nothing beside the weights."""
    for hardware in PRESETS:
        even = float(priced(Workload((1,), (500,), 1), hardware, LARGE)["even_rows"][0])
        rows = max(round(even), 1)
        known = priced(Workload((rows,), (500,), 1), hardware, LARGE)
        moving, computing = known["target_bytes"] / known["bandwidth"], known["target_operations"] / known["rate"]
        assert float((computing / moving)[0]) == pytest.approx(rows / even, rel=0.02)


def test_draft_passes_cost():
    hardware = Hardware("any", 100, 100)
    free = replace(workload(EAGLE), draft_passes=0)
    assert speedup(workload(EAGLE), hardware, BARE) < speedup(free, hardware, BARE)


def test_a_drafter_grows_with_its_target():
    own, large = (workload(EAGLE).names(size)["draft_parameters"] for size in (size_of(EAGLE), LARGE))
    assert own == pytest.approx(40_000)
    assert large / LARGE.parameters == pytest.approx(40_000 / EAGLE.model.parameters)
    assert workload(TRACES["lookahead"]).draft_passes == 0, "no weights are read"


def test_sizes_are_those_of_the_recorded_model():
    shape = ModelShape(pass_parameters=900_000, layers=2, attention_size=64, cache_values=128)
    trace = EAGLE.model_copy(update={"model": EAGLE.model.model_copy(update={"shape": shape})})
    size = size_of(trace)
    assert (size.parameters, size.layers, size.attention) == (900_000, 2, 64)
    assert (size.width, size.cache) == (4, 512), "the trace ran in float32"
    assert size_of(EAGLE).cache == 0, "not recorded"


def test_rates_follow_the_width_of_the_weights():
    hardware = Hardware("h", 1.0, 4.0, 2.0)
    assert [hardware.rate(width) for width in (0.5, 2, 4)] == [4.0, 4.0, 2.0]
    assert Hardware("h", 1.0, 4.0).rate(4) == 4.0


def test_what_is_shown_is_what_is_computed():
    assert written("draft_bytes", True) == "draft bytes = draft parameters × weight bytes"
    assert "max(" in written("target_ms", True)
    assert "max(" not in written("target_ms", False)
    names = {"overlap", *workload(EAGLE).names(SMALL), *PRESETS[0].names(2), *FORMULA}
    assert SYMBOLS.keys() == names - {"overlap"}, "every word has its meaning"


@given(st.lists(st.integers(1, 40), min_size=1, max_size=6))
def test_an_expression_means_what_its_line_says(rows):
    """The written formula, read as arithmetic, gives the numbers that are computed."""
    work, hardware = Workload(tuple(rows), tuple(range(len(rows))), len(rows)), Hardware("h", 3.0, 0.7, None, 5.0)
    known = priced(work, hardware, SMALL)
    names = {word: name for name, (word, _) in SYMBOLS.items()}
    any_word = re.compile("|".join(sorted(map(re.escape, names), key=len, reverse=True)))
    for name in ("row_operations", "target_bytes", "target_operations", "target_ms", "draft_bytes", "even_rows"):
        text = any_word.sub(lambda word: f"known['{names[word[0]]}']", written(name, True).split(" = ")[1])
        value = eval(text.replace("×", "*").replace("÷", "/"), {"known": known, "max": np.maximum})
        assert value == pytest.approx(known[name])


def test_a_lane_without_steps_has_no_speed_up():
    assert speedup(workload(make_trace("a", "eagle", grouped([], "eagle", 1.0))), PRESETS[0], BARE) is None


@pytest.mark.parametrize(
    "make",
    [
        lambda: Hardware("x", 0, 1), lambda: Hardware("x", 1, -1), lambda: Hardware("x", 1, 1, -1),
        lambda: Hardware("x", 1, 1, None, -1), lambda: Hardware("x", float("nan"), 1), lambda: ModelSize("x", 0, 2),
        lambda: ModelSize("x", 1, 0), lambda: ModelSize("x", 1, 1, layers=-1), lambda: ModelSize("x", float("nan"), 1),
    ],
)  # fmt: skip
def test_impossible_sizes_get_one_sentence(make):
    with pytest.raises(ExplorerError, match=r"^[A-Z].*\.$"):
        make()
