"""Lessons on the page: a lesson's run is read when somebody first opens it, and kept for everybody."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from explorer.errors import ExplorerError
from explorer.lessons import build_stops, offered, read_lesson, recording_of
from explorer.reel import reel_of
from explorer.session import Studio, recorded_events
from explorer.trace_io import read_comparison

LOG = logging.getLogger(__name__)
RUN_ID = "lesson-{}"
"""Fixed, so that these runs count against nobody and a link to one holds."""

Json = dict[str, Any]


class Lessons:
    """What the page offers, and the lessons that were opened so far."""

    def __init__(self, studio: Studio) -> None:
        self._studio = studio
        self._opened: dict[str, Json] = {}
        self._lock = threading.Lock()

    def offered(self) -> list[Json]:
        """For the menu: name, title, idea. Nothing where the lessons are missing, for the page can do without."""
        try:
            return offered()
        except ExplorerError as error:
            LOG.warning("no lessons: %s", error)
            return []

    def open(self, request: Any) -> Json:
        """{name} -> {ok, lesson: {name, title, stops}, value}: a lesson and its run as a reel."""
        name = request.get("name") if isinstance(request, dict) else None
        if not isinstance(name, str) or name not in {row["name"] for row in self.offered()}:
            return {"ok": False, "error": "There is no such lesson here."}
        try:
            with self._lock:
                if name not in self._opened:
                    with self._studio.quiet():
                        self._opened[name] = self._read(name)
                return self._opened[name]
        except ExplorerError as error:
            return {"ok": False, "error": str(error)}
        except Exception:
            LOG.exception("a lesson could not be opened")
            return {"ok": False, "error": "This lesson could not be opened."}

    def _read(self, name: str) -> Json:
        lesson, comparison = read_lesson(name), read_comparison(recording_of(name))
        stops = build_stops(name, lesson, comparison)
        run = self._studio.runs.new(RUN_ID.format(name), recorded=True)
        value = dict(reel_of(run, recorded_events(comparison)).value)
        return {"ok": True, "lesson": {"name": name, "title": lesson.title, "stops": stops}, "value": value}


def lesson_functions(lessons: Lessons) -> list[Callable[[Any], Json]]:
    """Gradio marks what it may call by an attribute, which a bound method cannot have."""

    def lesson(request: Any) -> Json:
        return lessons.open(request)

    return [lesson]
