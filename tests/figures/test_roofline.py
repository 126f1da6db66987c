"""The cost model's picture: predictions by hardware, the recording machine's measurements beside them."""

from pathlib import Path

import pytest

from explorer.figures.cost_tables import COLUMNS
from explorer.figures.roofline import ROOFLINE, places_of
from explorer.fitting import fitted
from explorer.metrics import speedup as measured
from explorer.roofline import FORMULA, PRESETS, SIZES, SYMBOLS, size_of, speedup, workload
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


@pytest.fixture(scope="module")
def built(real):
    return ROOFLINE.build(real, LIGHT, "all")


def test_a_line_a_lane_that_drafts_over_all_hardware():
    built = ROOFLINE.build(make_run(), LIGHT, "all")
    lines = [trace for trace in built["data"] if trace["meta"] == "said"]
    assert [line["name"] for line in lines] == ["Medusa", "EAGLE", "Lookahead"], "plain decoding is the measure"
    assert len({line["line"]["dash"] for line in lines}) == len({line["marker"]["symbol"] for line in lines}) == 3
    assert all(len(line["x"]) == len(line["y"]) == len(line["hovertext"]) for line in lines)
    assert all("by the model" in about for line in lines for about in line["hovertext"])
    assert built["alt"].startswith("A model, not a measurement")


def test_measured_and_predicted_stand_side_by_side(real, built):
    lanes = {record.header.lane: record.trace for record in real.lanes.values()}
    machine = fitted(list(lanes.values()))
    marks = {trace["customdata"][0][1]: trace for trace in built["data"] if trace["meta"] == "measured"}
    assert marks.keys() == lanes.keys() - {"autoregressive"}
    for line in (trace for trace in built["data"] if trace["meta"] == "said"):
        lane = line["customdata"][0][1]
        assert line["x"][0] == marks[lane]["x"][0] == machine.name
        assert line["y"][0] == pytest.approx(speedup(workload(lanes[lane]), machine, size_of(lanes[lane])), abs=1e-3)
        assert marks[lane]["y"] == [pytest.approx(measured(lanes["autoregressive"], lanes[lane]), abs=1e-3)]
        assert line["marker"]["symbol"] == f"{marks[lane]['marker']['symbol']}-open"


def test_the_page_gets_all_that_it_needs_to_work_out_others(real, built):
    cost = built["cost"]
    assert [name for name, _ in cost["formula"]] == list(FORMULA)
    assert [each["name"] for each in cost["hardware"]][1:] == [each.name for each in places_of([])]
    assert {each.name for each in (*PRESETS, *SIZES)} <= {each["name"] for each in (*cost["hardware"], *cost["sizes"])}
    assert len(cost["written"]["max"]) == len(cost["written"]["sum"]) == len(FORMULA)
    assert len(cost["symbols"]) == len(SYMBOLS)
    for lane in cost["lanes"]:
        steps = real.lanes[lane["lane"]].steps
        assert len(lane["rows"]) == len(lane["cached"]) == len(steps)
        assert lane["tokens"] == sum(len(step.committed) for step in steps)


def test_the_check_sets_the_model_against_what_was_measured(real, built):
    check = built["cost"]["check"]
    assert check["columns"] == COLUMNS
    assert len(check["rows"]) == len(real.lanes)
    assert all(len(row) == len(COLUMNS) for row in check["rows"])
    assert "not fitted" in check["caption"]
    eagle = check["rows"][[trace.lane for trace in (r.trace for r in real.lanes.values())].index("eagle")]
    seen, said, error = (each["t"] for each in eagle[-3:])
    assert float(said[:-1]) / float(seen[:-1]) - 1 == pytest.approx(float(error[:-1]) / 100, abs=0.02)
    assert eagle[4]["t"] != "–", "draft passes are checked too"


def test_what_was_not_recorded_is_said():
    check = ROOFLINE.build(make_run(), LIGHT, "all")["cost"]["check"]
    assert "not recorded" in check["caption"]


def test_before_a_lane_has_ended_there_is_nothing_to_model():
    built = ROOFLINE.build(Run(id="empty"), LIGHT, "all")
    assert built["cost"] is None
    assert built["data"] == []
