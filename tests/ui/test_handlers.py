"""The page's events without a browser."""

import itertools
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from explorer.errors import ExplorerError
from explorer.events import Ended, Event, Queued, Stepped
from explorer.reel import Reel
from explorer.requests import CompareRequest, LaneRequest
from explorer.runs import RunStore
from explorer.session import Studio
from explorer.trace_io import write
from explorer.ui.controls import FIRST_LANES, first_setup
from explorer.ui.handlers import INSIDE, Handlers, Stops, paced


@dataclass
class Request:
    """What a handler reads of gr.Request."""

    session_hash: str | None = "one"


def setup_of(*methods: str, **settings: Any) -> dict[str, Any]:
    lanes = [{"method": method, "params": {}} for method in methods]
    return {"lanes": lanes, "settings": {"max_new_tokens": 6} | settings}


def last(values: Iterator[dict[str, Any]]) -> dict[str, Any]:
    return list(values)[-1]


@pytest.fixture(scope="module")
def handlers(studio: Studio) -> Handlers:
    return Handlers(studio)


def test_a_run_ends_with_everything(handlers: Handlers) -> None:
    value = last(handlers.run("Hello", setup_of("autoregressive", "medusa"), Request()))
    assert value["state"] == "done"
    assert [lane["method"] for lane in value["lanes"]] == ["autoregressive", "medusa"]
    assert value["lanes"][1]["badge"]["kind"] == "equal"
    assert all(lane["counters"]["tokens"] == 6 for lane in value["lanes"])


def test_values_do_not_change_after_they_were_sent(handlers: Handlers) -> None:
    """Gradio sends differences between two values: a shared list would have none."""
    counts = []
    values = []
    for value in handlers.run("Hello", setup_of("autoregressive"), Request()):
        values.append(value)
        counts.append([len(lane["steps"]) for lane in value["lanes"]])
    assert counts == [[len(lane["steps"]) for lane in value["lanes"]] for value in values]


@pytest.mark.parametrize(
    ("prompt", "setup", "words"),
    [
        ("", setup_of("medusa"), "prompt is empty"),
        (None, setup_of("medusa"), "prompt is empty"),
        ("x" * 200_000, setup_of("medusa"), "200,000 characters"),
        ("Hi", setup_of("medusa", max_new_tokens=0), "from 1 to 512"),
        ("Hi", setup_of("medusa", max_new_tokens=-3), "from 1 to 512"),
        ("Hi", setup_of("medusa", max_new_tokens=513), "from 1 to 512"),
        ("Hi", setup_of("medusa", max_new_tokens=None), "from 1 to 512"),
        ("Hi", setup_of("medusa", temperature="hot"), "Temperature is 'hot'"),
        ("Hi", setup_of("medusa", colour=1), "no parameter 'colour'"),
        ("Hi", setup_of("telepathy"), "no method 'telepathy'"),
        ("Hi", setup_of(), "1 to 8"),
        ("Hi", setup_of(*["medusa"] * 9), "1 to 8"),
        ("Hi", {"lanes": [{"method": "medusa", "params": {"nodes": 0}}]}, "nodes is 0"),
        ("Hi", {"lanes": [{"method": "medusa", "params": {"nodes": [1]}}]}, "cannot be read"),
        ("Hi", None, "cannot be read"),
        ("Hi", {"lanes": "medusa"}, "cannot be read"),
    ],
)
def test_bad_input_is_one_sentence_and_no_lanes(handlers: Handlers, prompt: Any, setup: Any, words: str) -> None:
    value = last(handlers.run(prompt, setup, Request()))
    assert value["state"] == "error"
    assert words in value["message"]
    assert value["message"].endswith(".")
    assert value["lanes"] == []


class Broken(Studio):
    """A studio whose runs fail in a way that nobody thought of."""

    def compare(self, request: CompareRequest, stop: threading.Event) -> Iterator[Event]:
        yield Queued(1)
        raise ZeroDivisionError("secret of the inside")


def test_a_defect_is_told_without_its_inside() -> None:
    value = last(Handlers(Broken()).run("Hi", setup_of("autoregressive"), Request()))
    assert value["state"] == "error"
    assert value["message"] == INSIDE


def test_stop_ends_the_run_and_keeps_what_was_recorded(handlers: Handlers) -> None:
    values = handlers.run("Hello", setup_of("autoregressive", max_new_tokens=512), Request("stopper"))
    for value in values:
        if value["lanes"] and value["lanes"][0]["steps"]:
            handlers.stop(Request("stopper"))
    assert value["state"] == "cancelled"
    assert 0 < len(value["lanes"][0]["steps"]) < 511


def test_opening_a_file_ends_the_viewers_own_run(handlers: Handlers) -> None:
    values = handlers.run("Hello", setup_of("autoregressive", max_new_tokens=512), Request("opener"))
    for value in values:
        if value["lanes"] and value["lanes"][0]["steps"]:
            handlers.open_file(None, Request("opener"))
    assert value["state"] == "cancelled"


def test_another_sessions_stop_does_nothing(handlers: Handlers) -> None:
    states = []
    for value in handlers.run("Hello", setup_of("autoregressive"), Request("mine")):
        handlers.stop(Request("theirs"))
        handlers.stop(Request(None))
        states.append(value["state"])
    assert states[-1] == "done"


def test_a_second_run_of_a_session_stops_the_first() -> None:
    stops = Stops()
    first, other = stops.begin("a"), stops.begin("b")
    second = stops.begin("a")
    assert first.is_set()
    assert not second.is_set()
    assert not other.is_set()


def test_an_abandoned_run_frees_the_device(handlers: Handlers) -> None:
    """Closing the generator is what Gradio does when the tab is closed."""
    values = handlers.run("Hello", setup_of("autoregressive", max_new_tokens=512), Request("gone"))
    next(values)
    values.close()
    assert last(handlers.run("Hello", setup_of("autoregressive"), Request("next")))["state"] == "done"


def test_yields_are_bundled_but_the_last_one_comes() -> None:
    moments = iter(range(10_000))
    reel = Reel(RunStore().new())
    events = [Queued(3), Queued(2), Queued(1), Ended("cancelled", "Stopped.", None)]
    values = list(paced(iter(events), reel, clock=lambda: next(moments) / 1000))
    assert [value["state"] for value in values] == ["queued", "queued", "queued", "cancelled"]


def test_steps_that_were_written_together_are_sent_together(studio: Studio) -> None:
    request = CompareRequest(prompt="Hello", lanes=[LaneRequest(method="autoregressive")], max_new_tokens=20)
    events = list(studio.compare(request, threading.Event()))
    slow = itertools.count(0, 1000)
    values = list(paced(iter(events), Reel(RunStore().new()), clock=lambda: next(slow)))
    whole = [event for event in events if not (isinstance(event, Stepped) and event.more)]
    assert len(values) == len(whole) < len(events)


def test_server_functions_answer_anything(handlers: Handlers) -> None:
    for question in (None, 3, "x", [], {}, {"run": 5}, {"run": "nobody", "lane": "medusa", "lo": -1, "hi": 10**12}):
        for answer in (handlers.frames(question), handlers.overview(question), handlers.recording(question)):
            assert answer["ok"] is False
            assert answer["error"].endswith(".")


def test_a_recording_goes_out_and_comes_back(handlers: Handlers, studio: Studio, tmp_path: Path) -> None:
    value = last(handlers.run("Hello", setup_of("autoregressive", "lookahead"), Request()))
    answer = handlers.recording({"run": value["run"]})
    path = tmp_path / answer["name"]
    path.write_text(answer["text"], encoding="utf-8")
    again = handlers.open_file(str(path), Request())
    assert again["state"] == "recorded"
    assert again["run"] != value["run"]
    assert [lane["steps"] for lane in again["lanes"]] == [lane["steps"] for lane in value["lanes"]]


@pytest.mark.parametrize("text", ["", "[1]", '{"lanes": []}', '{"schema_version": 9}', "\x00\x01", '{"a": NaN}'])
def test_files_that_are_none_get_a_sentence(handlers: Handlers, tmp_path: Path, text: str) -> None:
    path = tmp_path / "odd.json"
    path.write_text(text, encoding="utf-8")
    value = handlers.open_file(str(path), Request())
    assert value["state"] == "error"
    assert value["message"].endswith((".", "?"))
    assert value["lanes"] == []


def test_a_file_whose_steps_do_not_fit_is_refused(handlers: Handlers, studio: Studio, tmp_path: Path) -> None:
    value = last(handlers.run("Hello", setup_of("autoregressive"), Request()))
    run = studio.runs.get(value["run"])
    assert run is not None
    assert run.comparison is not None
    lane = run.comparison.lanes[0]
    twisted = run.comparison.model_copy(update={"lanes": (lane, lane)})
    path = tmp_path / "twice.json"
    write(twisted, path)
    assert handlers.open_file(str(path), Request())["state"] in ("recorded", "error")


def test_no_example_is_no_disaster(monkeypatch: pytest.MonkeyPatch, studio: Studio) -> None:
    def missing() -> None:
        raise ExplorerError("There is no such file.")

    monkeypatch.setattr(studio, "example", missing)
    value = Handlers(studio).example()
    assert value["lanes"] == []
    assert value["state"] == "done", "nobody waits for anything"


def test_the_first_setup_is_four_ideas_side_by_side(studio: Studio) -> None:
    setup = first_setup(studio.methods())
    assert [lane["method"] for lane in setup["lanes"]] == list(FIRST_LANES)
    assert setup["settings"]["max_new_tokens"] == 96
    assert setup["settings"]["min_p"] == 0.0
    assert setup["settings"]["repetition_penalty"] == 1.0


def test_what_cannot_run_here_is_replaced_in_the_first_setup(studio: Studio) -> None:
    methods = [row | {"available": row["needs"] is None} for row in studio.methods()]
    names = [lane["method"] for lane in first_setup(methods)["lanes"]]
    assert len(names) == len(set(names)) == len(FIRST_LANES)
    assert names[:2] == ["autoregressive", "lookahead"]
    assert all(row["available"] for row in methods if row["name"] in names)
