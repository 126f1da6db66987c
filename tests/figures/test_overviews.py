import itertools

import plotly.graph_objects as go
import pytest

from explorer.figures import OVERVIEWS
from explorer.figures.acceptance import ACCEPTANCE
from explorer.figures.race import RACE, points_of
from explorer.figures.theme import THEMES
from explorer.figures.timeline import TIMELINE
from explorer.runs import Run
from tests.figures.checks import LIGHT, assert_harmless, assert_plain_json, drawn_texts
from tests.traces import make_events, make_run

CASES = [(picture, axis) for picture in OVERVIEWS for axis in picture.axes]
ON_STEPS = [(TIMELINE, "ms"), (RACE, "passes"), (RACE, "ms"), (ACCEPTANCE, "steps"), (ACCEPTANCE, "position")]
"""Pictures over the steps, so that the step that is shown has a place in them."""


def partial_run(events: int) -> Run:
    run = Run(id="live")
    for event in make_events()[:events]:
        run.apply(event)
    return run


@pytest.mark.parametrize("theme", THEMES.values(), ids=list(THEMES))
@pytest.mark.parametrize(("picture", "axis"), CASES)
@pytest.mark.parametrize("events", [0, 1, 2, 7, 1_000])
def test_pictures_are_valid_at_any_moment_of_a_run(picture, axis, theme, events):
    built = picture.build(partial_run(events), theme, axis)
    assert_plain_json(built)
    go.Figure({"data": built["data"], "layout": built["layout"]})
    assert built["alt"]
    assert_harmless(drawn_texts(built))


@pytest.mark.parametrize(("picture", "axis"), ON_STEPS)
def test_axes_are_titled_with_units(picture, axis):
    layout = picture.build(make_run(), LIGHT, axis)["layout"]
    title = layout["xaxis"]["title"]["text"]
    assert any(unit in title for unit in ("ms", "passes", "tokens"))


@pytest.mark.parametrize(("picture", "axis"), ON_STEPS)
def test_every_step_of_every_lane_has_its_range(picture, axis):
    run = make_run()
    cursor = picture.build(run, LIGHT, axis)["cursor"]
    assert cursor.keys() == run.lanes.keys()
    for lane, ranges in cursor.items():
        assert len(ranges) == len(run.lanes[lane].steps)
        assert all(start <= end for start, end in ranges)
        assert all(before[1] <= after[0] + 1e-6 for before, after in itertools.pairwise(ranges))


def test_every_span_is_one_bar_of_its_length():
    run = make_run()
    built = TIMELINE.build(run, LIGHT, "ms")
    spans = [span for record in run.lanes.values() for step in record.steps for span in step.spans]
    spans += [span for record in run.lanes.values() for span in record.prefill]
    assert sum(len(trace["x"]) for trace in built["data"]) == len(spans)
    drawn = sum(length for trace in built["data"] for length in trace["x"])
    assert drawn == pytest.approx(sum(span.duration_ms for span in spans), rel=1e-4)
    assert [trace["name"] for trace in built["data"]] == ["prefill", "draft", "verify", "accept", "commit"]
    for trace in built["data"]:
        for step, lane, *_ in trace["customdata"]:
            assert lane in run.lanes
            assert step is None or 0 <= step < len(run.lanes[lane].steps)


def test_a_race_ends_at_the_output_and_never_falls():
    run = make_run()
    for record in run.lanes.values():
        for axis in RACE.axes:
            xs, ys = points_of(record, axis)
            assert ys[-1] == len(record.tokens)
            assert xs == sorted(xs)
            assert ys == sorted(ys)
            assert len(xs) == len(record.steps) + 1
    assert points_of(run.lanes["eagle"], "passes")[0][-1] == len(run.lanes["eagle"].steps)


def test_bookkeeping_is_drawn_at_the_foot_of_the_bars():
    places = {
        trace["name"]: (trace["offset"], trace["width"]) for trace in TIMELINE.build(make_run(), LIGHT, "ms")["data"]
    }
    assert places["accept"] == places["commit"] != places["verify"] == places["draft"]


def test_lanes_differ_by_colour_dash_and_mark():
    traces = [trace for trace in RACE.build(make_run(), LIGHT, "passes")["data"] if "line" in trace]
    lines, marks = [trace["line"] for trace in traces], [trace["marker"]["symbol"] for trace in traces]
    assert len({line["color"] for line in lines}) == len({line["dash"] for line in lines}) == len(set(marks)) == 4


def test_words():
    run = make_run()
    assert "EAGLE 24 tokens after 8 passes" in RACE.build(run, LIGHT, "passes")["alt"]
    about = [point[2] for trace in RACE.build(run, LIGHT, "passes")["data"][:-1] for point in trace["customdata"]]
    assert about[:2] == ["1 token after 0 passes", "2 tokens after 1 pass"]
    assert "EAGLE 222 ms in 8 steps" in TIMELINE.build(run, LIGHT, "ms")["alt"]
