"""Every picture can be told in words: the page makes its tables and its spoken nodes from the hover labels."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from explorer.figures import FIGURES, OVERVIEWS
from explorer.figures.base import NEXT
from explorer.methods import METHODS
from explorer.requests import CompareRequest, LaneRequest
from explorer.runs import Run
from explorer.session import Studio
from tests.figures.checks import LIGHT

PROMPT = "the cat and the dog and the cat and the dog"
DRAWS_NODES = {"tree", "mask"}
"""Views in which every drafted node stands."""


@pytest.fixture(scope="module", params=[0.0, 0.9], ids=["greedy", "sampled"])
def run(request: pytest.FixtureRequest, studio: Studio) -> Run:
    """One lane a method, on the toy."""
    run = studio.runs.new()
    lanes = [LaneRequest(method=method.name) for method in METHODS]
    wanted = CompareRequest(prompt=PROMPT, lanes=lanes, max_new_tokens=14, temperature=request.param)
    for event in studio.compare(wanted, threading.Event()):
        run.apply(event)
    assert run.state == "done"
    return run


def pictures(run: Run) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Every plotly picture of every step, with its view's name."""
    for record in run.lanes.values():
        for place, step in enumerate(record.steps):
            for view in FIGURES:
                if view.kind == "plotly" and view.applies(step):
                    yield view.name, step, view.picture(record.header, record.steps[: place + 1], LIGHT)


def labels_of(trace: dict[str, Any]) -> list[tuple[Any, str]]:
    """The points of a trace that a pointer finds: id and label."""
    if trace.get("hoverinfo") == "skip":
        return []
    if trace["type"] == "heatmap":
        cells = [
            (trace["customdata"][row][column][0], trace["hovertext"][row][column])
            for row, line in enumerate(trace["z"])
            for column, value in enumerate(line)
            if value is not None
        ]
        return cells
    if "hovertemplate" in trace:
        return [(None, trace["hovertemplate"]) for _ in trace["x"]]
    assert len(trace["hovertext"]) == len(trace["x"])
    ids = [entry[0] for entry in trace.get("customdata", [[None]] * len(trace["x"]))]
    return list(zip(ids, trace["hovertext"], strict=True))


def test_every_point_that_can_be_hovered_says_what_it_is(run: Run) -> None:
    seen = set()
    for name, step, picture in pictures(run):
        for trace in picture["data"]:
            for node, label in labels_of(trace):
                seen.add(name)
                bold, _, rest = label.removeprefix("<b>").partition("</b>")
                assert label.startswith("<b>"), (name, step.index, node, label)
                assert bold
                assert rest.removeprefix("<br>"), (name, step.index, node, label)
    assert {"tree", "mask", "jacobi", "frontier", "window"} <= seen


def test_a_table_of_a_view_that_draws_nodes_has_every_node(run: Run) -> None:
    for name, step, picture in pictures(run):
        if name in DRAWS_NODES:
            told = {node for trace in picture["data"] for node, _ in labels_of(trace) if trace.get("meta") == "nodes"}
            assert set(range(len(step.nodes))) <= told
            assert (NEXT in told) == (name == "tree")


def test_every_overview_tells_its_points_too(run: Run) -> None:
    for picture in OVERVIEWS:
        for axis in picture.axes:
            built = picture.build(run, LIGHT, axis)
            assert built["alt"]
            for trace in built["data"]:
                for _, label in labels_of(trace):
                    assert label.startswith("<b>"), (picture.name, axis, label)
