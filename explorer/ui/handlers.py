"""What the page's events do. No layout here, and no text of one viewer ever reaches another."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gradio as gr

from explorer.errors import ExplorerError
from explorer.events import Ended, Event, Prefilled, Stepped
from explorer.figures.serve import frames, overview
from explorer.reel import Reel
from explorer.reel import reel_of as fold
from explorer.replay import replay_html
from explorer.runs import Run
from explorer.session import Studio, recorded_events
from explorer.trace import Comparison
from explorer.trace_io import no_collecting, read_comparison, to_json
from explorer.ui.controls import read_request

LOG = logging.getLogger(__name__)
YIELD_SECONDS = 0.1
MAX_GAP_SECONDS = 0.6
MAX_SESSIONS = 1000
INSIDE = "Something went wrong inside; the run was stopped."

Json = dict[str, Any]


class Stops:
    """One stop flag per browser session; a new run of a session stops its earlier one."""

    def __init__(self) -> None:
        self._flags: OrderedDict[str, threading.Event] = OrderedDict()
        self._lock = threading.Lock()

    def begin(self, session: str | None) -> threading.Event:
        """The flag of a run that starts now."""
        flag = threading.Event()
        if session is None:
            return flag
        with self._lock:
            earlier = self._flags.pop(session, None)
            if earlier is not None:
                earlier.set()
            self._flags[session] = flag
            while len(self._flags) > MAX_SESSIONS:
                self._flags.popitem(last=False)
        return flag

    def end(self, session: str | None) -> None:
        """Stop what the session runs, if anything."""
        with self._lock:
            flag = self._flags.pop(session or "", None)
        if flag is not None:
            flag.set()


class Handlers:
    """The page's events, on top of a studio."""

    def __init__(self, studio: Studio) -> None:
        self._studio = studio
        self.stops = Stops()
        self._replaying = threading.Lock()

    def run(self, prompt: str, setup: Any, request: gr.Request) -> Iterator[Json]:
        """Decode; each yield is the reel so far."""
        stop = self.stops.begin(request.session_hash)
        run = self._studio.runs.new()
        reel = Reel(run)
        try:
            wanted = read_request(prompt, setup)
            yield from paced(self._studio.compare(wanted, stop), reel)
        except ExplorerError as error:
            yield failed(reel, str(error))
        except Exception:
            LOG.exception("a run failed")
            yield failed(reel, INSIDE)
        finally:
            stop.set()

    def stop(self, request: gr.Request) -> None:
        """The run keeps what it has, and ends within a step."""
        self.stops.end(request.session_hash)

    def open_file(self, path: str | None, request: gr.Request) -> Json:
        """Play a downloaded comparison. A run of the same viewer ends: nobody would see it any more."""
        self.stops.end(request.session_hash)
        run = self._studio.runs.new(recorded=True)
        reel = Reel(run)
        try:
            with no_collecting():
                for event in recorded_events(read_comparison(Path(path or ""))):
                    reel.apply(event)
        except ExplorerError as error:
            return failed(reel, str(error))
        except Exception:
            LOG.exception("a file could not be opened")
            return failed(Reel(self._studio.runs.new()), "This file cannot be played: its steps do not fit together.")
        return dict(reel.value)

    def example(self) -> Json:
        """The recorded example, ready to play; nothing where it is missing, for the page can do without."""
        try:
            run = self._studio.example()
        except ExplorerError as error:
            LOG.warning("no example: %s", error)
            run = Run(id="")
        return reel_of(run) if run.comparison is not None else dict(Reel(Run(id="", state="done")).value)

    def frames(self, request: Any) -> Json:
        """Figures of some steps, built between two decode steps."""
        return self._answer(frames, request)

    def overview(self, request: Any) -> Json:
        """A figure of the whole run."""
        return self._answer(overview, request)

    def _answer(self, build: Callable[[Any, Any], Json], request: Any) -> Json:
        try:
            with self._studio.quiet():
                return build(self._studio.runs, request)
        except Exception:
            LOG.exception("a figure failed")
            return {"ok": False, "error": "This figure could not be built."}

    def recording(self, request: Any) -> Json:
        """The comparison as the text of a file."""
        return self._file(request, "comparison-{}.json", to_json)

    def replay(self, request: Any) -> Json:
        """The run as one HTML file that plays from disk. One is made at a time, in pieces between two decode steps."""
        if not self._replaying.acquire(blocking=False):
            return {"ok": False, "error": "Another replay is being made; try again in a moment."}
        try:
            return self._file(
                request, "replay-{}.html", lambda record: replay_html(record, recorded_events, self._studio.quiet)
            )
        except ExplorerError as error:
            return {"ok": False, "error": str(error)}
        except Exception:
            LOG.exception("a replay failed")
            return {"ok": False, "error": "The replay could not be made."}
        finally:
            self._replaying.release()

    def _file(self, request: Any, name: str, text_of: Callable[[Comparison], str]) -> Json:
        run = self._studio.runs.get(request.get("run")) if isinstance(request, dict) else None
        if run is None:
            return {"ok": False, "error": "This run is no longer held; run it again."}
        if run.comparison is None:
            return {"ok": False, "error": "There is nothing to download before the run has ended."}
        return {"ok": True, "name": name.format(run.id[:8]), "text": text_of(run.comparison)}


def paced(events: Iterator[Event], reel: Reel, clock: Callable[[], float] = time.monotonic) -> Iterator[Json]:
    """The reel after each batch of events. What a viewer must not miss is sent at once, steps are bundled.

    Sending takes longer as the reel grows; the gap grows with it, so that decoding gets most of the time.
    """
    due = 0.0
    sent = True
    try:
        for event in events:
            reel.apply(event)
            sent = False
            together = isinstance(event, Stepped) and event.more
            if together or (isinstance(event, Stepped | Prefilled) and clock() < due):
                continue
            began = clock()
            yield dict(reel.value)
            sent = True
            due = clock() + min(max(YIELD_SECONDS, 3 * (clock() - began)), MAX_GAP_SECONDS)
        if not sent:
            yield dict(reel.value)
    finally:
        close = getattr(events, "close", None)
        if close is not None:
            close()


def failed(reel: Reel, sentence: str) -> Json:
    """The reel with an error; the page keeps the earlier run on screen."""
    reel.apply(Ended("error", sentence, None))
    return dict(reel.value)


def reel_of(run: Run) -> Json:
    """A finished run as a reel."""
    events = recorded_events(run.comparison) if run.comparison is not None else ()
    return dict(fold(run, events).value)
