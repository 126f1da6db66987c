"""The cost model's picture: predictions by balance, the recording machine beside them."""

from pathlib import Path

import numpy as np
import pytest

from explorer.figures.roofline import FORMULA, ROOFLINE, presets
from explorer.metrics import speedup as measured
from explorer.roofline import fitted, size_of, speedup, workload
from explorer.runs import Run, events_of
from explorer.trace_io import read_comparison
from tests.figures.checks import LIGHT
from tests.traces import make_run

EXAMPLE = Path(__file__).parents[2] / "assets" / "examples" / "fibonacci.json"


@pytest.fixture(scope="module")
def real():
    run = Run(id="real")
    for event in events_of(read_comparison(EXAMPLE), {}, ""):
        run.apply(event)
    return run


@pytest.mark.parametrize("axis", ROOFLINE.axes)
def test_a_line_a_lane_that_drafts_over_all_presets(axis):
    built = ROOFLINE.build(make_run(), LIGHT, axis)
    entries = [trace for trace in built["data"] if trace["mode"] == "lines+markers"]
    assert [entry["name"] for entry in entries] == ["Medusa", "EAGLE", "Lookahead"]
    assert len({each["line"]["dash"] for each in entries}) == len({each["marker"]["symbol"] for each in entries}) == 3
    curves = [trace for trace in built["data"] if trace["mode"] == "lines"]
    assert all(curve["x"] == sorted(curve["x"]) and curve["y"] == sorted(curve["y"]) for curve in curves)
    marks = [trace for trace in built["data"] if len(trace["x"]) == len(presets())]
    assert len(curves) == len(marks) == 3
    assert all("by the model" in about for mark in marks for about in mark["hovertext"])
    assert [note["text"] for note in built["layout"]["annotations"][:3]] == list(FORMULA)
    assert built["alt"].startswith("A model, not a measurement")


def test_measured_and_predicted_stand_side_by_side(real):
    marks = [
        trace
        for trace in ROOFLINE.build(real, LIGHT, "recorded model")["data"]
        if len(trace["x"]) == 1 and trace["mode"] == "markers"
    ]
    plain = real.lanes["autoregressive"].trace
    machine = fitted([record.trace for record in real.lanes.values()])
    drafting = [record.trace for record in real.lanes.values() if record.trace is not plain]
    assert len(marks) == 2 * len(drafting)
    for trace, said, seen in zip(drafting, marks[::2], marks[1::2], strict=True):
        assert said["x"] == seen["x"] == [round(2 * machine.balance, 2)], "32-bit weights are twice as wide"
        assert said["y"] == [pytest.approx(speedup(workload(trace), machine, size_of(trace)), abs=1e-3)]
        assert seen["y"] == [pytest.approx(measured(plain, trace), abs=1e-3)]
        assert said["marker"]["symbol"] == f"{seen['marker']['symbol']}-open"


def test_the_models_word_of_the_recording_machine_lies_on_its_curve(real):
    data = ROOFLINE.build(real, LIGHT, "recorded model")["data"]
    curves = [trace for trace in data if trace["mode"] == "lines"]
    said = [trace for trace in data if str(trace["marker"]["symbol"]).endswith("-open")]
    for curve, mark in zip(curves, said, strict=True):
        assert mark["y"][0] == pytest.approx(np.interp(mark["x"][0], curve["x"], curve["y"]), rel=0.02)


def test_a_machine_is_only_compared_on_the_model_that_it_ran(real):
    assert all(
        len(trace["x"]) > 1 or trace["mode"] != "markers" for trace in ROOFLINE.build(real, LIGHT, "8B model")["data"]
    )


def test_what_is_left_out_is_said(real):
    unknown = ROOFLINE.build(make_run(), LIGHT, "recorded model")
    assert "not recorded and left out" in unknown["alt"]
    assert "twice as far right" in unknown["alt"]
    assert "left out" not in ROOFLINE.build(real, LIGHT, "recorded model")["alt"]
