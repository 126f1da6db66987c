"""Prepared lessons: every stop of every lesson stands on its recording, and says only what is true of it."""

from __future__ import annotations

import re
import string
from typing import Any

import pytest

from explorer.cli import main
from explorer.errors import ExplorerError
from explorer.fetch import DEFAULT_MODEL
from explorer.figures import FIGURES, OVERVIEWS
from explorer.lessons import PARTS, Lesson, Stop, build_stops, names, offered, read_lesson, recording_of
from explorer.lessons.facts import lane_facts, step_facts
from explorer.lessons.rules import find_step
from explorer.lessons.words import fill
from explorer.methods import METHODS
from explorer.session import EXAMPLE_FILE
from explorer.trace import Comparison
from explorer.trace_io import read_comparison

MOST_BYTES = 6_000_000
PROPER_NAMES = re.compile(r"EAGLE-3")


@pytest.fixture(scope="module", params=names())
def whole(request: pytest.FixtureRequest) -> tuple[str, Lesson, Comparison]:
    """A lesson with its recording."""
    name = request.param
    return name, read_lesson(name), read_comparison(recording_of(name))


def test_each_method_has_a_lesson_and_so_has_the_comparison() -> None:
    assert set(names()) == {method.name for method in METHODS} | {"comparison"}
    assert [row["name"] for row in offered()] == list(names())


def test_the_recordings_are_small() -> None:
    assert sum(recording_of(name).stat().st_size for name in names()) < MOST_BYTES


def test_the_recording_is_the_one_that_the_lesson_describes(whole: tuple[str, Lesson, Comparison]) -> None:
    name, lesson, comparison = whole
    assert [trace.method for trace in comparison.lanes] == list(lesson.recording.lanes)
    assert name == "comparison" or name in lesson.recording.lanes
    for trace in comparison.lanes:
        assert DEFAULT_MODEL.id in trace.model.id
        assert trace.stop_reason in ("length", "eos")
        assert getattr(trace.prompt, "typed", None) == lesson.recording.prompt
        assert trace.params["max_new_tokens"] == lesson.recording.max_new_tokens
        assert trace.params["sampling"]["temperature"] == 0
    assert all(check.equal for check in comparison.lossless.values())


def test_every_stop_stands_on_its_recording(whole: tuple[str, Lesson, Comparison]) -> None:
    name, lesson, comparison = whole
    lanes = {trace.lane: trace for trace in comparison.lanes}
    views = {view.name: view for view in FIGURES}
    stops = build_stops(name, lesson, comparison)
    assert 4 <= len(stops) <= len(lesson.stops)
    for stop in stops:
        step = lanes[stop["lane"]].steps[stop["step"]]
        if stop["look"] in views:
            assert views[stop["look"]].applies(step)
        else:
            assert stop["look"] in {*PARTS, *(overview.name for overview in OVERVIEWS)}
        assert stop["pin"] in {None, "next", *(str(node.id) for node in step.nodes)}
        text = "".join(words for _, words in stop["say"])
        assert not re.search(r"[{}]", re.sub(r'"[^"]*"', "", text)), "only a token may hold a brace"
        assert all(words and kind in ("", "token") for kind, words in stop["say"])
        assert 60 < len(text) < 420, "two or three sentences"


def test_numbers_are_filled_in_never_typed(whole: tuple[str, Lesson, Comparison]) -> None:
    _, lesson, _ = whole
    for stop in lesson.stops:
        typed = "".join(words for words, *_ in string.Formatter().parse(PROPER_NAMES.sub("", stop.text)))
        assert not re.search(r"\d", typed), typed


def test_facts_of_all_steps_add_up(whole: tuple[str, Lesson, Comparison]) -> None:
    _, _, comparison = whole
    for trace in comparison.lanes:
        known = [step_facts(step) for step in trace.steps]
        facts = lane_facts(comparison, trace)
        for step, of_step in zip(trace.steps, known, strict=True):
            assert of_step["committed"] == of_step["accepted"] + of_step["own_added"]
            assert of_step["drafted"] == len(step.accepted) + of_step["rejected"] + of_step["unreached"]
            assert of_step["dropped"] == of_step["rejected"] + of_step["unreached"]
            assert of_step["kept"] <= of_step["rows"]
        assert facts["lane.accepted"] == sum(int(of_step["accepted"]) for of_step in known)
        assert facts["lane.drafted"] == sum(int(of_step["drafted"]) for of_step in known)
        assert facts["lane.passes"] == len(known)
        assert not [name for name in facts | known[0] if re.search(r"(?:^|_)ms$|second|speed", name)], "no lesson times"


def test_a_lesson_holds_on_another_recording_too() -> None:
    example = read_comparison(EXAMPLE_FILE)
    for name in ("medusa", "eagle", "lookahead"):
        stops = build_stops(name, read_lesson(name), example)
        assert {stop["lane"] for stop in stops} == {name}


def test_rules_find_what_they_say() -> None:
    comparison = read_comparison(recording_of("medusa"))
    trace = next(trace for trace in comparison.lanes if trace.method == "medusa")
    accepted = [int(step_facts(step)["accepted"]) for step in trace.steps]
    most, least = find_step(trace, "most accepted"), find_step(trace, "least accepted")
    assert most is not None
    assert most.index == accepted.index(max(accepted))
    assert least is not None
    assert least.index == accepted.index(min(accepted))
    first = find_step(trace, "first where accepted>=1 index>=3")
    assert first is not None
    assert first.index == next(i for i, count in enumerate(accepted) if i >= 3 and count >= 1)
    last = find_step(trace, "last")
    assert last is not None
    assert last.index == len(trace.steps) - 1
    assert find_step(trace, "first where accepted>=999") is None
    assert find_step(trace, "first where payload.warm_up==1") is None, "another method's fact"


def changed(lesson: Lesson, **fields: Any) -> Lesson:
    return lesson.model_copy(update={"stops": (lesson.stops[0].model_copy(update=fields), *lesson.stops[1:])})


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"step": "first where accepted>=999"}, "no step for its stop 1"),
        ({"step": "the third"}, "is no rule for a step"),
        ({"step": "first where accepted is two"}, "is no condition"),
        ({"step": "most own"}, "own is not a number"),
        ({"lane": "nobody"}, "no lane nobody"),
        ({"look": "window"}, "does not show"),
        ({"pin": "favourite"}, "no node that is 'favourite'"),
        ({"text": "So {this} is said."}, "says this"),
    ],
)
def test_a_stop_that_would_not_be_true_is_refused(fields: dict[str, str], complaint: str) -> None:
    lesson, comparison = read_lesson("medusa"), read_comparison(recording_of("medusa"))
    with pytest.raises(ExplorerError, match=complaint):
        build_stops("medusa", changed(lesson, **fields), comparison)


def test_an_optional_stop_without_a_step_is_left_out() -> None:
    lesson, comparison = read_lesson("medusa"), read_comparison(recording_of("medusa"))
    without = build_stops("medusa", changed(lesson, step="first where accepted>=999", optional=True), comparison)
    assert without == build_stops("medusa", lesson, comparison)[1:]


def test_words_of_facts() -> None:
    facts = {"one": 1, "two": 2, "share": 0.25, "big": 134_515_008, "small": 4_240_000, "thousands": 8192}
    said = fill("{one:draft}, {two:draft}, {two:pass/passes}, {share:%}, {big:M}, {small:M}, {thousands:,}", facts)
    assert said == [["", "1 draft, 2 drafts, 2 passes, 0.25, 135 million, 4.2 million, 8,192"]]


def test_stops_are_written_strictly() -> None:
    with pytest.raises(ValueError, match="Extra inputs"):
        Stop.model_validate({"lane": "eagle", "step": "first", "look": "tree", "text": "x", "pinned": "root"})


def test_a_name_of_no_lesson_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ExplorerError, match="There is no lesson of that name"):
        read_lesson("../prompts/presets")
    assert main(["lessons", "nobody"]) == 2
    assert capsys.readouterr().err.startswith("There is no lesson 'nobody'; there are comparison, ")
