"""The HTTP call `compare`: a comparison, streamed as small events to a program. docs/api.md shows how to call it.

It goes through the same line as the page's runs. Closing the stream, or cancelling the job, ends the run.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import Any

import gradio as gr

from explorer.errors import ExplorerError
from explorer.events import Checked, Ended, Event, LaneEnded, Prefilled, Preparing, Queued, Started, Stepped
from explorer.metrics import drafts_kept, step_ms
from explorer.session import Studio
from explorer.ui.controls import read_request
from explorer.ui.handlers import INSIDE

LOG = logging.getLogger(__name__)
EVERY_SECONDS = 0.1
"""Events are sent in bundles: a message each would cost more than the steps themselves."""

Json = dict[str, Any]


def add_api(studio: Studio) -> None:
    """The named endpoint, in the page that is being built; everything else of the page stays private."""

    def compare(prompt: str, lanes: list[Any], settings: dict[str, Any]) -> Iterator[list[dict[str, Any]]]:
        """Run lanes on a prompt; each answer is a list of events, the last event holds the whole comparison.

        prompt: the text. lanes: a list of method names, or of {"method": name, "params": {...}}. settings:
        max_new_tokens, temperature, top_k, top_p, min_p, repetition_penalty, seed, raw; {} for the defaults.
        """
        yield from compared(studio, prompt, lanes, settings)

    gr.api(compare, api_name="compare", concurrency_limit=None)


def compared(studio: Studio, prompt: Any, lanes: Any, settings: Any) -> Iterator[list[Json]]:
    """Lists of events, the last one with the comparison. gr.Error holds the sentence where the input is refused."""
    stop = threading.Event()
    try:
        wanted = read_request(prompt, {"lanes": named(lanes), "settings": checked(settings)})
        with closing(bundles(studio.compare(wanted, stop))) as sent:
            yield from sent
    except ExplorerError as error:
        raise gr.Error(str(error), print_exception=False) from None
    except Exception:
        LOG.exception("a called run failed")
        raise gr.Error(INSIDE, print_exception=False) from None
    finally:
        stop.set()


def named(lanes: Any) -> Any:
    """The lanes as the page writes them: a bare name is a method at its defaults."""
    if not isinstance(lanes, list) or not all(isinstance(lane, str | dict) for lane in lanes):
        raise ExplorerError('Lanes must be a list of method names, or of objects like {"method": "eagle"}.')
    return [{"method": lane} if isinstance(lane, str) else lane for lane in lanes]


def checked(settings: Any) -> Json:
    """The settings, which may be left out."""
    if settings is not None and not isinstance(settings, dict):
        raise ExplorerError('Settings must be an object like {"max_new_tokens": 48}; {} takes the defaults.')
    return settings or {}


def bundles(events: Iterator[Event], clock: Callable[[], float] = time.monotonic) -> Generator[list[Json], None, None]:
    """What happened, in lists; steps wait for one another, other events are sent at once."""
    held: list[Json] = []
    due = clock()
    numbers: dict[str, int] = {}
    try:
        for event in events:
            held.append(_words(event, numbers))
            together = isinstance(event, Stepped) and event.more
            if together or (isinstance(event, Stepped | Prefilled | LaneEnded) and clock() < due):
                continue
            yield held
            held, due = [], clock() + EVERY_SECONDS
    finally:
        close = getattr(events, "close", None)
        if close is not None:
            close()


def _words(event: Event, written: dict[str, int]) -> Json:
    """An event as plain data; `written` counts each lane's output tokens."""
    match event:
        case Queued():
            return {"event": "queued", "place": event.place}
        case Preparing():
            return {"event": "preparing", "message": event.message, "share": event.fraction}
        case Started():
            lanes = [{"lane": each.lane, "method": each.method, "title": each.title} for each in event.headers]
            return {"event": "started", "lanes": lanes, "settings": event.settings}
        case Prefilled():
            written[event.lane] = 1
            return {"event": "first", "lane": event.lane, "token": event.token.id, "text": event.token.text}
        case Stepped():
            written[event.lane] = written.get(event.lane, 0) + len(event.step.committed)
            return _step_words(event, written[event.lane])
        case LaneEnded():
            totals = event.trace.totals.model_dump()
            return {"event": "lane", "lane": event.trace.lane, "stop": event.trace.stop_reason, "totals": totals}
        case Checked():
            checks = {lane: check.model_dump() for lane, check in event.lossless.items()}
            return {"event": "checked", "lossless": checks}
        case Ended():
            record = None if event.comparison is None else event.comparison.model_dump(mode="json")
            return {"event": "end", "state": event.state, "message": event.message, "comparison": record}
    raise TypeError(f"a comparison has no event like {type(event).__name__}")


def _step_words(event: Stepped, written: int) -> Json:
    step = event.step
    return {
        "event": "step",
        "lane": event.lane,
        "step": step.index + 1,
        "text": "".join(token.text for token in event.tokens),
        "tokens": [token.id for token in event.tokens],
        "drafted": len(step.nodes) - 1,
        "accepted": drafts_kept(step),
        "output_tokens": written,
        "step_ms": round(step_ms(step), 3),
    }
