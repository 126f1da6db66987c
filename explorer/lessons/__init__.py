"""Prepared lessons: stops on recorded runs, chosen by rule, with words whose numbers come from the recording.

A lesson is `assets/lessons/NAME.json`; its run is `assets/lessons/recordings/NAME.json.gz`. A stop names a lane, a
rule for its step (rules.py), what to look at, a node to pin, and a text with places for facts (facts.py). Rules and
texts are worked out on the recording, so they hold for another one too; what would not be true of it is refused.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from explorer.errors import ExplorerError
from explorer.figures import FIGURES, OVERVIEWS
from explorer.lessons.facts import Facts, lane_facts, step_facts
from explorer.lessons.rules import find_lane, find_node, find_step
from explorer.lessons.words import fill
from explorer.trace import Comparison, Step

FOLDER = Path(__file__).resolve().parents[2] / "assets" / "lessons"
PARTS = ("rows", "sentence", "main")
"""What a stop may point at besides views and overviews: all lanes, the sentence, whatever has the wide panel."""

Json = dict[str, Any]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Making(_Strict):
    """How the recording is made: greedy, seed 0, every method at its defaults."""

    prompt: str
    lanes: tuple[str, ...] = Field(min_length=1)
    max_new_tokens: int = Field(ge=1)


class Stop(_Strict):
    """One place of a lesson."""

    lane: str
    """A lane's id, or `best`: the one with the most tokens per target pass."""
    step: str
    look: str
    pin: str | None = None
    text: str
    optional: bool = False
    """Left out where the recording has no such step."""


class Lesson(_Strict):
    """A lesson as it is written down."""

    title: str
    idea: str
    recording: Making
    stops: tuple[Stop, ...] = Field(min_length=1)


def names(folder: Path = FOLDER) -> tuple[str, ...]:
    """All lessons, in the order in which they are offered."""
    return tuple(_read(folder / "index.json")["order"])


def read_lesson(name: str, folder: Path = FOLDER) -> Lesson:
    """The lesson of that name. ExplorerError where there is none."""
    if name not in names(folder):
        raise ExplorerError(f"There is no lesson of that name; there are {', '.join(names(folder))}.")
    try:
        return Lesson.model_validate(_read(folder / f"{name}.json"))
    except ValidationError as error:
        raise ExplorerError(f"The lesson {name} cannot be read: {error.errors()[0]['msg']}.") from None


def recording_of(name: str, folder: Path = FOLDER) -> Path:
    """Where the lesson's run is."""
    return folder / "recordings" / f"{name}.json.gz"


def offered(folder: Path = FOLDER) -> list[Json]:
    """What a menu shows of the lessons that are whole; none where the folder is missing."""
    if not (folder / "index.json").is_file():
        return []
    rows = [(name, read_lesson(name, folder)) for name in names(folder) if recording_of(name, folder).is_file()]
    return [{"name": name, "title": lesson.title, "idea": lesson.idea} for name, lesson in rows]


def build_stops(name: str, lesson: Lesson, comparison: Comparison) -> list[Json]:
    """The stops on this recording: {lane, step, look, pin, say}. ExplorerError where one has no step there."""
    stops = [_build(stop, comparison) for stop in lesson.stops]
    lost = [place for place, (stop, built) in enumerate(zip(lesson.stops, stops, strict=True), 1)
            if built is None and not stop.optional]  # fmt: skip
    if lost:
        raise ExplorerError(f"The recording of the lesson {name} has no step for its stop {lost[0]}.")
    return [stop for stop in stops if stop is not None]


def _build(stop: Stop, comparison: Comparison) -> Json | None:
    trace = find_lane(comparison, stop.lane)
    step = find_step(trace, stop.step)
    if step is None:
        return None
    _check_look(stop.look, step)
    facts: Facts = step_facts(step) | lane_facts(comparison, trace)
    return {
        "lane": trace.lane,
        "step": step.index,
        "look": stop.look,
        "pin": find_node(step, stop.pin),
        "say": fill(stop.text, facts),
    }


def _check_look(look: str, step: Step) -> None:
    view = next((view for view in FIGURES if view.name == look), None)
    if view is not None and view.applies(step):
        return
    if look not in PARTS and look not in {overview.name for overview in OVERVIEWS}:
        raise ExplorerError(f"A stop looks at {look}, which its step does not show.")


def _read(path: Path) -> Json:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise ExplorerError(f"{path.name} of the lessons cannot be read.") from None
    if not isinstance(data, dict):
        raise ExplorerError(f"{path.name} of the lessons is not an object.")
    return data
