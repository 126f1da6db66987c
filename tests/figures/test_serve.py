import json

import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.figures import FIGURES
from explorer.figures.serve import MOST_STEPS, frames, overview
from explorer.runs import RunStore, events_of
from explorer.trace import Comparison
from tests.figures.checks import merged
from tests.judged import branch_step, jacobi_steps, lookup_step
from tests.traces import example_step, make_events, make_trace

GOOD = {"run": "example", "lane": "eagle", "lo": 0, "hi": 5, "views": ["tree", "frontier"], "theme": "dark"}


@pytest.fixture(scope="module")
def store():
    held = RunStore()
    run = held.new("example", recorded=True)
    for event in make_events():
        run.apply(event)
    return held


def test_frames_are_what_the_contract_says(store):
    answer = frames(store, GOOD)
    assert answer["ok"] is True
    assert list(answer["views"]) == ["tree", "frontier"]
    view = answer["views"]["tree"]
    assert view.keys() == {"kind", "title", "label", "legend", "layout", "config", "steps", "min_width"}
    assert len(view["steps"]) == 5
    for step in view["steps"]:
        go.Figure({"data": step["data"], "layout": merged(view["layout"], step["layout"])})
    assert view["min_width"] == max(step["min_width"] for step in view["steps"])
    assert ["accepted", "accepted draft"] in view["legend"]
    json.dumps(answer, allow_nan=False)


def test_tables_carry_their_columns(store):
    answer = frames(store, GOOD | {"lane": "medusa", "views": ["heads", "probs"]})
    assert answer["views"]["heads"]["columns"] == [
        "rank", "head 1: +1", "prob.", "head 2: +2", "prob.", "head 3: +3", "prob.", "head 4: +4", "prob.",
    ]  # fmt: skip
    assert answer["views"]["probs"]["kind"] == "table"


def test_a_view_that_a_step_does_not_have_is_null(store):
    answer = frames(store, GOOD | {"lane": "medusa", "views": ["window"]})
    assert answer["views"]["window"]["steps"] == [None] * 5


def test_a_range_past_the_end_gives_what_there_is(store):
    assert len(frames(store, GOOD | {"lo": 6, "hi": 70})["views"]["tree"]["steps"]) == 2


def test_each_view_is_built_once_however_often_it_is_named(store):
    assert list(frames(store, GOOD | {"views": ["tree", "tree"]})["views"]) == ["tree"]


@pytest.mark.parametrize(
    "change",
    [
        {"run": "made-up"}, {"run": None}, {"run": ["example"]}, {"run": {"$ne": 1}},
        {"lane": "nobody"}, {"lane": 3}, {"lane": ["eagle"]}, {"lane": "__class__"},
        {"lo": -1}, {"hi": 0}, {"lo": 5, "hi": 5}, {"lo": 0, "hi": MOST_STEPS + 1}, {"lo": 10**9, "hi": 10**9 + 1},
        {"lo": 10**400, "hi": 10**400 + 1}, {"lo": 1.5}, {"lo": True}, {"lo": "0"}, {"hi": None}, {"lo": 99, "hi": 100},
        {"views": []}, {"views": "tree"}, {"views": ["treee"]}, {"views": [None]}, {"views": [["tree"]]},
        {"views": ["tree"] * 99},
        {"theme": "pink"}, {"theme": 1}, {"theme": ["dark"]},
    ],
)  # fmt: skip
def test_made_up_questions_get_one_sentence(store, change):
    check_refused(frames(store, GOOD | change))


@pytest.mark.parametrize("question", [None, 3, "frames", [], [GOOD], {}, {"run": "example"}])
def test_questions_of_another_shape_get_one_sentence(store, question):
    check_refused(frames(store, question))
    check_refused(overview(store, question))


def check_refused(answer):
    assert answer.keys() == {"ok", "error"}
    assert answer["ok"] is False
    assert answer["error"].endswith(".")
    assert len(answer["error"]) < 300


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(list(GOOD)), JSON), st.sampled_from([frames, overview]))
def test_nothing_that_is_posted_raises(store, changes, ask):
    answer = ask(store, GOOD | {"view": "race", "axis": "ms"} | changes)
    assert answer["ok"] in (True, False)
    json.dumps(answer, allow_nan=False)


@pytest.mark.parametrize(
    ("view", "axis"), [("timeline", None), ("timeline", "ms"), ("race", "passes"), ("race", "ms"), ("race", None)]
)
def test_overviews_are_what_the_contract_says(store, view, axis):
    answer = overview(store, {"run": "example", "view": view, "theme": "light", "axis": axis})
    assert answer["ok"] is True
    needed = {"kind", "title", "label", "alt", "layout", "data", "config", "cursor", "min_width"}
    assert needed <= answer["view"].keys() <= needed | {"words", "definitions"}
    assert answer["view"]["cursor"].keys() == {"autoregressive", "medusa", "eagle", "lookahead"}


@pytest.mark.parametrize(
    "change", [{"view": "tree"}, {"view": None}, {"view": ["race"]}, {"axis": "miles"}, {"axis": ["ms"]}, {"run": "x"}]
)
def test_made_up_overviews_get_one_sentence(store, change):
    check_refused(overview(store, {"run": "example", "view": "race", "theme": "light", "axis": "ms"} | change))


def test_every_view_can_be_asked_for(store):
    for lane in ("autoregressive", "medusa", "eagle", "lookahead"):
        answer = frames(store, GOOD | {"lane": lane, "views": [view.name for view in FIGURES], "hi": 64})
        assert answer["ok"] is True


def test_the_legend_names_rare_roles_only_in_lanes_that_have_them(store):
    plain = frames(store, GOOD | {"views": ["tree"]})["views"]["tree"]["legend"]
    assert "copied" not in [role for role, _ in plain]
    held = RunStore()
    run = held.new("branch")
    for event in events_of(Comparison(lanes=(make_trace("eagle", "eagle", [example_step(), branch_step()]),)), {}, ""):
        run.apply(event)
    answer = frames(held, GOOD | {"run": "branch", "views": ["tree"], "hi": 1})
    assert [role for role, _ in answer["views"]["tree"]["legend"]][-2:] == ["copied", "both"]


def test_text_views_and_pictures_with_a_past_are_what_the_contract_says():
    lanes = (
        make_trace("lookup", "prompt-lookup", [lookup_step(), lookup_step(ngram=0)]),
        make_trace("jacobi", "jacobi", jacobi_steps()),
    )
    store = RunStore()
    run = store.new("chains")
    for event in events_of(Comparison(lanes=lanes), {}, ""):
        run.apply(event)
    asked = {"run": run.id, "lo": 0, "hi": 9, "theme": "light"}
    text = frames(store, asked | {"lane": "lookup", "views": ["lookup"]})["views"]["lookup"]
    assert text.keys() == {"kind", "title", "label", "legend", "steps"}
    assert all(step.keys() == {"caption", "lines", "alt"} for step in text["steps"])
    grid = frames(store, asked | {"lane": "jacobi", "views": ["jacobi"]})["views"]["jacobi"]
    assert [len(step["data"][0]["z"]) for step in grid["steps"]] == [2, 3, 4, 5]
    late = frames(store, asked | {"lane": "jacobi", "views": ["jacobi"], "lo": 3})["views"]["jacobi"]
    assert late["steps"] == grid["steps"][3:], "a picture does not depend on which steps were asked for"
