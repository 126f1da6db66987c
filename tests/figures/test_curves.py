"""The training curves of the drafters that ship with the project, for the lanes that use them."""

import pytest

from explorer.catalogue import BARELY, DEFAULT_MODEL
from explorer.figures.curves import CURVES, DRAFTERS, curves_of, read_curve
from explorer.figures.theme import THEMES
from explorer.runs import Run
from explorer.session import EXAMPLE_FILE, recorded_events
from explorer.trace import DrafterInfo
from explorer.trace_io import read_comparison
from tests.figures.checks import LIGHT, assert_harmless, assert_plain_json, drawn_texts
from tests.traces import make_run

SHIPPED = [folder.rpartition("/")[2] for kind, folder in DEFAULT_MODEL.drafters.items() if not kind.endswith(BARELY)]


def example(drafter: str | None = None) -> Run:
    """The recorded example; with another drafter in all lanes that have one."""
    run = Run(id="example")
    comparison = read_comparison(EXAMPLE_FILE)
    if drafter is not None:
        named = DrafterInfo(id=drafter, parameters=1, bytes=1)
        lanes = tuple(each.model_copy(update={"drafter": each.drafter and named}) for each in comparison.lanes)
        comparison = comparison.model_copy(update={"lanes": lanes})
    for event in recorded_events(comparison):
        run.apply(event)
    return run


@pytest.mark.parametrize("drafter", SHIPPED)
def test_every_trained_drafter_that_ships_has_a_curve(drafter):
    points, note = read_curve(drafter)
    trained = [point["train_tokens"] for point in points]
    assert trained == sorted(set(trained))
    assert points[-1]["tree_tokens"] > points[0]["tree_tokens"] >= 1
    assert all(1 <= point["chain_tokens"] <= point["tree_tokens"] for point in points)
    assert "Held-out" in note


@pytest.mark.parametrize("shown", CURVES.axes)
@pytest.mark.parametrize("theme", THEMES.values(), ids=list(THEMES))
def test_one_line_a_drafter_with_its_source(theme, shown):
    run = example()
    built = CURVES.build(run, theme, shown)
    assert_plain_json(built)
    assert_harmless(drawn_texts(built))
    curves = curves_of(run)
    assert len(built["data"]) == len(curves) == sum(record.header.drafter is not None for record in run.lanes.values())
    for trace, curve in zip(built["data"], curves, strict=True):
        assert len(trace["x"]) == len(trace["y"]) == len(trace["hovertext"]) == len(curve.points)
        assert curve.drafter in built["layout"]["annotations"][0]["text"]
        assert curve.lanes[0].title in built["alt"]
    assert "absent" not in built


def test_two_lanes_of_one_drafter_share_its_line():
    run = example("smollm2-135m-eagle")
    assert [len(curve.lanes) for curve in curves_of(run)] == [2]


@pytest.mark.parametrize(
    "drafter", ["somebody-elses", "smollm2-135m-eagle-barely", "..", "../drafters/smollm2-135m-eagle", "a/b", "", "\0"]
)
def test_a_drafter_from_elsewhere_has_none_and_reads_no_other_file(drafter):
    run = example(drafter)
    assert curves_of(run) == []
    assert CURVES.build(run, LIGHT, "tokens")["absent"] is True


def test_no_lane_with_a_drafter():
    assert CURVES.build(make_run(), LIGHT, "tokens")["absent"] is True
    assert DRAFTERS.is_dir()
