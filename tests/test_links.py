"""A link asks for the run that it was made from; and whatever else is written into one costs a sentence at most."""

from __future__ import annotations

import csv
import io
import threading
from typing import Any
from urllib.parse import quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.csv_tables import csv_text
from explorer.errors import ExplorerError
from explorer.methods import METHODS
from explorer.params import describe
from explorer.requests import MAX_LANES, CompareRequest, LaneRequest, plan
from explorer.runs import Run
from explorer.session import EXAMPLE_ID, Studio, recorded_events
from explorer.ui.controls import RunSettings, read_request
from explorer.ui.links import MOST_CHARACTERS, Link, query_of, read_link, request_of
from explorer.ui.sharing import Sharing
from tests.test_branches import extend, run_of

EVERYTHING = {method.name: None for method in METHODS}


def values_of(field: dict[str, Any]) -> st.SearchStrategy[Any]:
    """All that a field takes."""
    if field["type"] == "choice":
        return st.sampled_from(field["choices"])
    if field["type"] == "bool":
        return st.booleans()
    numbers: Any = st.integers if field["type"] == "int" else st.floats
    return numbers(field["minimum"], field["maximum"])


def params_of(fields: list[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional={field["name"]: values_of(field) for field in fields})


LANES = st.sampled_from(METHODS).flatmap(
    lambda method: params_of(describe(method.Params)).map(lambda params: LaneRequest(method=method.name, params=params))
)
PROMPTS = st.text(max_size=120).filter(lambda text: text.strip())


def asks(link: Link) -> Any:
    """What would run: the request that the page's own controls make of the link."""
    return plan(read_request(link.prompt, link.setup))


@given(PROMPTS, st.lists(LANES, min_size=1, max_size=MAX_LANES), params_of(describe(RunSettings)))
def test_a_link_asks_for_the_run_that_it_was_made_from(
    prompt: str, lanes: list[LaneRequest], settings: dict[str, Any]
) -> None:
    wanted = CompareRequest(prompt=prompt, lanes=lanes, **settings)
    try:
        checked = plan(wanted)
    except ExplorerError:  # values that may not be together are refused by the page too
        return
    query = query_of(wanted)
    link = read_link("?" + query + "&show=" + checked.lanes[-1].id + "&step=12", EVERYTHING)
    assert link.problems == []
    assert asks(link) == checked
    assert (link.show, link.step) == (checked.lanes[-1].id, 11)
    assert query.isascii()


@given(st.text(max_size=300))
def test_any_text_in_place_of_a_query_is_read_or_refused(text: str) -> None:
    for query in (text, "v=1&" + text, "v=1&prompt=x&lane=eagle:" + text, "v=1&lane=" + text, "v=1&step=" + text):
        link = read_link(query, EVERYTHING)
        assert "\n" not in link.message
        assert link.setup is None or asks(Link(prompt="x", lanes=link.lanes, settings=link.settings))


@pytest.mark.parametrize("query", [None, 3, {"v": "1"}, ["v=1"], "x" * 10**6, "v=1" + "&a=b" * 5000])
def test_what_is_no_query_gives_one_sentence(query: Any) -> None:
    link = read_link(query, EVERYTHING)
    assert link.message.endswith(".")
    assert not link.runs


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("lane=nothing", "no method 'nothing'"),
        ("lane=eagle:depth=99", "depth is '99', but must be a whole number from 1 to 10"),
        ("lane=eagle:tree=%3Cscript%3E", "must be one of dynamic, static, chain"),
        ("temperature=9", "Temperature is '9'"),
        ("seed=-1", "Seed is '-1'"),
        ("seed=" + "9" * 300, "Seed is '999"),
        ("max_new_tokens=many", "Max new tokens is 'many'"),
        ("raw=perhaps", "Raw prompt is 'perhaps', but must be true or false"),
        ("step=0", "step is '0'"),
        ("step=-3", "step is '-3'"),
        ("show=other", "opens the lane 'other'"),
        ("open=zzz", "opens 'zzz', but there is example only"),
        ("&".join(["lane=jacobi"] * 9), "has 10 lanes; the first 8"),
    ],
)
def test_a_bad_value_costs_that_value_only(words: str, sentence: str) -> None:
    link = read_link(f"v=1&prompt=Hello&lane=medusa:nodes=7&{words}", EVERYTHING)
    assert sentence in link.message
    assert link.message.endswith(".")
    assert link.runs
    assert link.request.prompt == "Hello"
    assert link.lanes[0] == LaneRequest(method="medusa", params={"nodes": 7})
    assert asks(link)


def test_several_bad_values_are_counted() -> None:
    link = read_link("v=1&prompt=Hi&lane=jacobi&seed=x&step=y&temperature=z", EVERYTHING)
    assert link.message.endswith("; 2 more values of the link could not be used either.")


def test_names_that_are_not_known_say_nothing() -> None:
    link = read_link("v=1&prompt=Hi&lane=eagle:colour=red,nodes=3&utm_source=mail&__theme=dark", EVERYTHING)
    assert link.problems == []
    assert link.lanes[0].params == {"nodes": 3}


@pytest.mark.parametrize("version", ["2", "", "<b>"])
def test_another_version_is_not_guessed_at(version: str) -> None:
    link = read_link(f"v={version}&prompt=Hi&lane=eagle", EVERYTHING)
    assert "reads version 1 only" in link.message
    assert link.setup is None
    assert not link.runs


def test_what_cannot_run_here_is_left_out_with_its_reason() -> None:
    missing = EVERYTHING | {"eagle": "this model has no EAGLE drafter."}
    link = read_link("v=1&prompt=Hi&lane=autoregressive&lane=eagle", missing)
    assert link.message == "EAGLE cannot run here: this model has no EAGLE drafter."
    assert [lane.method for lane in link.lanes] == ["autoregressive"]


def test_long_prompts_are_refused_with_a_sentence() -> None:
    lanes = [LaneRequest(method="autoregressive")]
    assert len(query_of(CompareRequest(prompt="a" * 5800, lanes=lanes))) <= MOST_CHARACTERS
    for prompt in ("a" * 6000, "\u4e2d" * 900):
        with pytest.raises(ExplorerError, match="more than 6,000 do not work everywhere"):
            query_of(CompareRequest(prompt=prompt, lanes=lanes))


@pytest.fixture(scope="module")
def sharing(studio: Studio) -> Sharing:
    return Sharing(studio)


def finished(studio: Studio, wanted: CompareRequest) -> Run:
    run = studio.runs.new()
    for event in studio.compare(wanted, threading.Event()):
        run.apply(event)
    return run


def test_a_run_links_to_itself(studio: Studio, sharing: Sharing) -> None:
    """EAGLE has a top_k of its own, and the sampling another one."""
    lanes = [LaneRequest(method="eagle", params={"top_k": 3, "nodes": 4}), LaneRequest(method="eagle")]
    wanted = CompareRequest(
        prompt="Hi & you?", lanes=lanes, max_new_tokens=5, temperature=0.5, top_k=7, seed=3, raw=True
    )
    run = finished(studio, wanted)
    assert plan(request_of(run)) == plan(wanted)
    answer = sharing.link({"run": run.id})
    link, told = sharing.arrive({"query": answer["query"] + "&show=eagle-2&step=2"})
    assert asks(link) == plan(wanted)
    assert told == {
        "message": "", "runs": True, "show": "eagle-2", "step": 1, "open": "", "lesson": "", "stop": None
    }  # fmt: skip


def test_a_lane_that_was_run_again_is_in_the_link_and_a_forced_one_is_not(studio: Studio, sharing: Sharing) -> None:
    run = run_of(studio, ("autoregressive", "eagle"))
    again = extend(studio, run, lane="eagle", params={"depth": 3})
    forced = extend(studio, run, lane="eagle", force={"step": 1, "node": 0})
    answer = sharing.link({"run": run.id})
    link, _ = sharing.arrive({"query": answer["query"]})
    checked = asks(link)
    assert [lane.method.name for lane in checked.lanes] == ["autoregressive", "eagle", "eagle"]
    assert checked.lanes[2].params.depth == 3
    assert answer["lanes"][again.lane] == checked.lanes[2].id
    assert forced.lane not in answer["lanes"]
    table = list(csv.DictReader(io.StringIO(csv_text(run.comparison, "lanes"), newline="")))
    assert [row["branch"] for row in table] == ["", "", "rerun", "forced"]


def test_the_example_is_named(studio: Studio, sharing: Sharing) -> None:
    studio.example()
    answer = sharing.link({"run": EXAMPLE_ID})
    assert answer == {"ok": True, "query": f"v=1&open={EXAMPLE_ID}"}
    link, told = sharing.arrive({"query": "?" + answer["query"] + "&show=eagle&step=3"})
    assert link.setup is None
    assert told | {"open": EXAMPLE_ID, "show": "eagle", "step": 2, "runs": False, "message": ""} == told


def test_a_file_cannot_be_linked_to(studio: Studio, sharing: Sharing) -> None:
    run = studio.runs.new(recorded=True)
    for event in recorded_events(studio.example().comparison):
        run.apply(event)
    answer = sharing.link({"run": run.id})
    assert "cannot hold an opened recording" in answer["error"]


@pytest.mark.parametrize("question", [None, [], {}, {"run": 3}, {"run": "gone"}, "run"])
def test_odd_questions_get_a_sentence(sharing: Sharing, question: Any) -> None:
    for answer in (sharing.link(question), sharing.table(question)):
        assert answer["ok"] is False
        assert answer["error"].endswith(".")
    assert sharing.arrive(question)[1]["message"].endswith(".")


def test_hostile_words_come_back_as_the_prompt_only() -> None:
    words = "<script>alert(1)</script>\"'`${x}{{x}}\u202e\u0000&lane=jacobi#?%00"
    link = read_link("v=1&lane=medusa&prompt=" + quote_plus(words), EVERYTHING)
    assert link.prompt == words
    assert [lane.method for lane in link.lanes] == ["medusa"]
