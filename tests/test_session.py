"""The use cases: one run at a time, everybody told their place, stop and close free the device, bad input refused."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from explorer import methods as registry
from explorer.backlog import MOST_TURNS
from explorer.errors import ExplorerError
from explorer.events import Checked, Ended, Event, LaneEnded, Prefilled, Preparing, Queued, Started, Stepped
from explorer.methods.base import Proposal
from explorer.requests import CompareRequest, LaneRequest, plan
from explorer.session import EXAMPLE_ID, Studio, encode_prompt
from explorer.shelf import ShelfSettings
from tests.lanes import ALL_NAMES

DATA = Path(__file__).parent / "data"


def ask(
    prompt: str = "the rain", lanes: tuple[str, ...] = ("autoregressive", "medusa"), **values: Any
) -> CompareRequest:
    return CompareRequest(
        prompt=prompt, lanes=[LaneRequest(method=name) for name in lanes], **({"max_new_tokens": 12} | values)
    )


def compare(studio: Studio, request: CompareRequest) -> list[Event]:
    return list(studio.compare(request, threading.Event()))


def until(events: Iterator[Event], kind: type) -> Event:
    """Go on to the first event of that kind."""
    return next(event for event in events if isinstance(event, kind))


def assert_free(studio: Studio) -> None:
    """The device takes a new run at once."""
    events = compare(studio, ask(lanes=("autoregressive",), max_new_tokens=2))
    assert not any(isinstance(event, Queued) for event in events)
    assert isinstance(events[-1], Ended)
    assert events[-1].state == "done"


def test_a_run_tells_its_story_in_order(studio: Studio) -> None:
    events = compare(studio, ask(lanes=ALL_NAMES))
    kinds = [type(event) for event in events if not isinstance(event, Preparing)]
    count = len(ALL_NAMES)
    assert kinds[: count + 1] == [Started, *[Prefilled] * count]
    assert kinds[-2:] == [Checked, Ended]
    assert set(kinds[count + 1 : -2]) == {Stepped, LaneEnded}
    started, ended = next(e for e in events if isinstance(e, Started)), events[-1]
    assert isinstance(ended, Ended)
    assert ended.comparison is not None
    assert (
        [header.lane for header in started.headers]
        == [trace.lane for trace in ended.comparison.lanes]
        == list(ALL_NAMES)
    )
    assert (started.prompt, started.max_new_tokens) == ("the rain", 12)
    assert events[-2] == Checked(ended.comparison.lossless)
    assert all(check.equal for check in ended.comparison.lossless.values())


def test_the_second_run_is_told_its_place_and_gets_its_own_result_only(studio: Studio) -> None:
    first = studio.compare(ask("first prompt", ("autoregressive",)), threading.Event())
    second = studio.compare(ask("second prompt", ("lookahead",)), threading.Event())
    third = studio.compare(ask("third prompt", ("medusa",)), threading.Event())
    until(first, Stepped)
    assert next(second) == Queued(1)
    assert next(third) == Queued(2)
    rest = list(first)
    assert isinstance(rest[-1], Ended)
    seconds = list(second)
    assert not any(isinstance(event, Queued) for event in seconds)
    started = next(event for event in seconds if isinstance(event, Started))
    assert started.prompt == "second prompt"
    assert {event.lane for event in seconds if isinstance(event, Stepped)} == {"lookahead"}
    thirds = list(third)
    ended = [events[-1] for events in (rest, seconds, thirds)]
    for event, prompt in zip(ended, ("first", "second", "third"), strict=True):
        assert isinstance(event, Ended)
        assert event.comparison is not None
        assert prompt in event.comparison.lanes[0].prompt.text


def test_two_runs_from_two_threads_do_not_mix(studio: Studio) -> None:
    """Both go on at once; each sees its own lanes and tokens, equal to those of a run alone."""
    requests = [ask("one two one two", ("autoregressive",), seed=1), ask("three four", ("eagle",), seed=2)]
    alone = [compare(studio, request)[-1] for request in requests]
    results: dict[int, list[Event]] = {}
    threads = [
        threading.Thread(target=lambda place=place: results.update({place: compare(studio, requests[place])}))
        for place in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for place, before in enumerate(alone):
        ended = results[place][-1]
        assert isinstance(ended, Ended)
        assert isinstance(before, Ended)
        assert ended.comparison is not None
        assert before.comparison is not None
        assert ended.comparison.lanes[0].tokens == before.comparison.lanes[0].tokens
        ids = {event.lane for event in results[place] if isinstance(event, Stepped)}
        assert ids == {requests[place].lanes[0].method}


@pytest.mark.parametrize("kind", [Started, Preparing, Prefilled, Stepped, LaneEnded])
def test_closing_a_run_anywhere_frees_the_device(kind: type, studio: Studio) -> None:
    events = studio.compare(ask(), threading.Event())
    until(events, kind)
    events.close()  # type: ignore[attr-defined]
    assert_free(studio)


def test_closing_a_run_in_line_frees_its_place(studio: Studio) -> None:
    first = studio.compare(ask(), threading.Event())
    until(first, Stepped)
    second, third = (studio.compare(ask(), threading.Event()) for _ in range(2))
    assert (next(second), next(third)) == (Queued(1), Queued(2))
    second.close()  # type: ignore[attr-defined]
    assert next(third) == Queued(1)
    first.close()  # type: ignore[attr-defined]
    assert isinstance(list(third)[-1], Ended)
    assert_free(studio)


def test_a_run_that_was_never_begun_holds_no_place(studio: Studio) -> None:
    unused = studio.compare(ask(), threading.Event())
    assert_free(studio)
    unused.close()  # type: ignore[attr-defined]


def test_after_a_stop_no_step_begins_and_what_was_made_is_kept(studio: Studio) -> None:
    """Steps are told a few at a time: those that were made together with the last one are still told."""
    stop = threading.Event()
    events = studio.compare(ask(lanes=ALL_NAMES, max_new_tokens=40), stop)
    seen = [until(events, Stepped) for _ in range(6)]
    stop.set()
    rest = list(events)
    told = len(seen) + sum(isinstance(event, Stepped) for event in rest)
    assert told - len(seen) < MOST_TURNS
    ended = rest[-1]
    assert isinstance(ended, Ended)
    assert (ended.state, ended.message) == ("cancelled", "Stopped; what was decoded so far is kept.")
    assert ended.comparison is not None
    assert sum(len(trace.steps) for trace in ended.comparison.lanes) == told
    assert {trace.stop_reason for trace in ended.comparison.lanes} == {"cancelled"}
    assert all(check.equal for check in ended.comparison.lossless.values())
    assert_free(studio)


def test_stop_inside_a_long_prefill_ends_before_its_next_chunk(studio: Studio) -> None:
    stop = threading.Event()
    events = studio.compare(ask("word " * 150, raw=True), stop)
    while not (isinstance(event := next(events), Preparing) and event.fraction):
        pass
    assert 0 < event.fraction < 0.3
    stop.set()
    rest = list(events)
    assert [type(event) for event in rest] == [Ended]
    assert isinstance(rest[0], Ended)
    assert (rest[0].state, rest[0].comparison) == ("cancelled", None)
    assert rest[0].message == "Stopped before anything was decoded."
    assert_free(studio)


def test_stop_while_in_line_ends_without_a_turn(studio: Studio) -> None:
    first = studio.compare(ask(), threading.Event())
    until(first, Stepped)
    stop = threading.Event()
    second = studio.compare(ask(), stop)
    assert next(second) == Queued(1)
    stop.set()
    assert list(second) == [Ended("cancelled", "Stopped before anything was decoded.", None)]
    assert isinstance(list(first)[-1], Ended)


def test_stop_before_the_start_decodes_nothing(studio: Studio) -> None:
    stop = threading.Event()
    stop.set()
    events = list(studio.compare(ask(), stop))
    assert [type(event) for event in events] == [Ended]
    assert_free(studio)


def test_figures_wait_between_two_steps_only(studio: Studio) -> None:
    """While a run is paused at an event, nothing holds the lock; building figures needs no end of the run."""
    events = studio.compare(ask(), threading.Event())
    for _ in range(3):
        until(events, Stepped)
        with studio.quiet():
            pass
    assert isinstance(list(events)[-1], Ended)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (ask(""), "The prompt is empty"),
        (ask("x" * 200_000), "200,000 characters"),
        (ask("word " * 1000), r"The prompt has 5,00\d tokens; the model's context of 1,024 takes at most 1,023"),
        (ask(max_new_tokens=0), "whole number from 1 to 512"),
        (ask(lanes=("autoregressive", "nonsense")), "no method 'nonsense'"),
        (ask(temperature=9.0), "temperature is 9.0"),
        (ask(lanes=()), "0 lanes were asked for"),
    ],
)
def test_a_refused_request_leaves_the_device_free(request_: CompareRequest, message: str, studio: Studio) -> None:
    with pytest.raises(ExplorerError, match=message):
        compare(studio, request_)
    assert_free(studio)


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize(
    "prompt",
    ["\x00", "a\ud800b", "\u202eevil", "e\u0301" * 50, "👩\u200d👧", "<|end|><|start|>", "{{ 7 * 7 }}", "{% for %}"],
)
def test_hostile_prompts_are_decoded(prompt: str, raw: bool, studio: Studio) -> None:
    request = ask().model_copy(update={"prompt": prompt, "raw": raw, "max_new_tokens": 4})
    ended = compare(studio, request)[-1]
    assert isinstance(ended, Ended)
    assert ended.state == "done"
    assert ended.comparison is not None
    assert all(check.equal for check in ended.comparison.lossless.values())
    if "\ud800" not in prompt:
        assert prompt in ended.comparison.lanes[0].prompt.text


def test_auto_lanes_record_the_costs_that_they_went_by(studio: Studio) -> None:
    lanes = [LaneRequest(method="medusa", params={"size": "auto"}), LaneRequest(method="medusa")]
    request = CompareRequest(prompt="the rain", lanes=lanes, max_new_tokens=8)
    auto, fixed = (event.trace for event in compare(studio, request) if isinstance(event, LaneEnded))
    if auto.lane != "medusa":
        auto, fixed = fixed, auto
    assert tuple(auto.params["costs"]["verify_ms"]) == studio.shelf.costs("medusa").verify_ms
    assert auto.params["costs"]["draft_pass_ms"] > 0.0
    assert all(step.size is not None for step in auto.steps)
    assert "costs" not in fixed.params
    assert all("size" not in step.model_dump() for step in fixed.steps)


def test_the_prompt_is_recorded_as_the_model_saw_it(studio: Studio) -> None:
    target = studio.shelf.target
    chat = encode_prompt(target, plan(ask("hello")))
    assert chat.text == "<|start|>hello\n>"
    assert target.texts.decode(chat.token_ids) == chat.text
    assert chat.model_extra == {"typed": "hello"}
    raw = encode_prompt(target, plan(ask("hello", raw=True)))
    assert (raw.text, raw.template_applied) == ("hello", False)


def test_a_prompt_that_leaves_one_token_of_the_context_is_taken(studio: Studio) -> None:
    prompt = "x" * 1023
    assert len(encode_prompt(studio.shelf.target, plan(ask(prompt, raw=True))).token_ids) == 1023
    ended = compare(studio, ask(prompt, raw=True))[-1]
    assert isinstance(ended, Ended)
    assert ended.comparison is not None
    assert {(len(lane.tokens), lane.stop_reason) for lane in ended.comparison.lanes} == {(1, "length")}
    with pytest.raises(ExplorerError, match="at most 1,023"):
        encode_prompt(studio.shelf.target, plan(ask(prompt + "x", raw=True)))


def test_a_defect_inside_a_run_frees_the_device(studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Proposal:
        raise RuntimeError("a defect")

    monkeypatch.setattr(registry.Lookahead, "propose", broken)
    with pytest.raises(RuntimeError, match="a defect"):
        compare(studio, ask(lanes=("autoregressive", "lookahead")))
    monkeypatch.undo()
    assert_free(studio)


def test_an_error_in_the_middle_keeps_what_was_recorded(studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lane may run out of memory: all lanes' records up to there are kept, and say so."""
    calls = [0]
    plain = registry.Lookahead.propose

    def failing(self: Any, context: list[int]) -> Proposal:
        calls[0] += 1
        if calls[0] > 3:
            raise ExplorerError("Not enough memory.")
        return plain(self, context)

    monkeypatch.setattr(registry.Lookahead, "propose", failing)
    ended = compare(studio, ask(lanes=("autoregressive", "lookahead")))[-1]
    assert isinstance(ended, Ended)
    assert (ended.state, ended.message) == ("error", "Not enough memory.")
    assert ended.comparison is not None
    lanes = {trace.lane: trace for trace in ended.comparison.lanes}
    assert len(lanes["lookahead"].steps) == 3
    assert lanes["lookahead"].stop_reason == "error"
    assert lanes["lookahead"].error == "Not enough memory."


def test_a_drafter_that_is_missing_is_told_before_anything_loads(tmp_path: Path) -> None:
    studio = Studio(ShelfSettings(model=str(tmp_path)))
    with pytest.raises(ExplorerError, match="Medusa cannot run: There is no medusa drafter for"):
        next(iter(studio.compare(ask(), threading.Event())))
    rows = {row["name"]: row for row in studio.methods()}
    assert rows["autoregressive"]["available"]
    assert not rows["medusa"]["available"]
    assert "train one or name its folder" in rows["medusa"]["reason"]


def test_a_recording_opens_as_a_run_that_can_be_found(studio: Studio) -> None:
    one, other = (studio.open_recording(DATA / "comparison_v1.json") for _ in range(2))
    assert one.id != other.id
    assert studio.runs.get(one.id) is one
    assert (one.state, list(one.lanes)) == ("recorded", ["autoregressive", "medusa", "eagle", "lookahead"])
    assert "8 tokens · greedy · chat template · seed 0" in one.settings


def test_a_broken_recording_leaves_nothing_behind(studio: Studio, tmp_path: Path) -> None:
    held = len(studio.runs._runs)
    (tmp_path / "x.json").write_text("{")
    for path in (tmp_path / "x.json", tmp_path / "missing.json"):
        with pytest.raises(ExplorerError):
            studio.open_recording(path)
    assert len(studio.runs._runs) == held


def test_the_head_of_the_page_says_which_model_answers(studio: Studio) -> None:
    assert studio.model_line.startswith("toy model, random weights: for tests only · float32 · CPU, ")
    assert Studio(ShelfSettings(model="toy")).model_line == "toy model, random weights: for tests only"


def test_a_made_up_run_id_finds_nothing(studio: Studio) -> None:
    for run_id in ("", "x", None, 3, [], "../../etc", EXAMPLE_ID + "\x00"):
        assert studio.runs.get(run_id) is None
