"""What if, on the page: one more lane for the run on screen, and what a viewer may choose for it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr

from explorer.branches import choices, parameters, read_extension
from explorer.errors import ExplorerError
from explorer.events import Ended
from explorer.reel import Reel
from explorer.runs import Run
from explorer.session import Studio
from explorer.ui.handlers import Stops, failed, paced

LOG = logging.getLogger(__name__)
INSIDE = "Something went wrong inside; the lane was not added."

Json = dict[str, Any]


class WhatIf:
    """The page's events around added lanes, on top of a studio."""

    def __init__(self, studio: Studio, stops: Stops) -> None:
        self._studio, self._stops = studio, stops

    def add(self, posted: Any, session: str | None) -> Iterator[Json]:
        """Decode the lane that is asked for; each value is the whole reel so far. Nothing is lost where that fails."""
        stop = self._stops.begin(session)
        run: Run | None = None
        copied, earlier = "", ""
        reel = Reel(Run(id=""))
        try:
            asked = dict(posted) if isinstance(posted, dict) else {}
            held = asked.pop("run", None)
            wanted = read_extension(asked)
            extended = self._studio.extendable(held, wanted)
            if extended.id != held:
                copied = extended.id
            resumed, earlier, count = Reel.resumed(extended), extended.state, len(extended.lanes)
            for value in paced(self._studio.extend(extended, wanted, stop), resumed):
                run, reel = extended, resumed  # before the first value it is not ours: another lane may be coming
                if len(extended.lanes) > count:
                    earlier = ""  # the lane has begun
                yield value
        except ExplorerError as error:
            yield _ended(reel, run, earlier, str(error))
        except Exception:
            LOG.exception("a lane could not be added")
            yield _ended(reel, run, earlier, INSIDE)
        finally:
            stop.set()
            if run is None and copied:
                self._studio.runs.drop(copied)  # refused before anything was decoded
            if run is not None and not run.over:
                reel.apply(Ended("cancelled", "Stopped; what was decoded so far is kept.", run.comparison))

    def choices(self, question: Any) -> Json:
        """What may be chosen at a node."""
        return self._answer(choices, question)

    def parameters(self, question: Any) -> Json:
        """What may be changed of a lane."""
        return self._answer(parameters, question)

    def _answer(self, tell: Callable[[Run, Any], Json], question: Any) -> Json:
        held = question.get("run") if isinstance(question, dict) else None
        run = self._studio.runs.get(held)
        if run is None:
            return {"ok": False, "error": "This run is no longer held; run it again."}
        try:
            return {"ok": True, **tell(run, question)}
        except ExplorerError as error:
            return {"ok": False, "error": str(error)}
        except Exception:
            LOG.exception("a question about a lane failed")
            return {"ok": False, "error": "This lane cannot be read."}


def _ended(reel: Reel, run: Run | None, earlier: str, sentence: str) -> Json:
    """The reel with the sentence; what the run held before stays.

    Where no lane has begun (`earlier` is the run's state before), the addition was refused and the run is as it was:
    the player is told the sentence, and the run does not keep it.
    """
    if run is None:
        return {**failed(reel, sentence), "refused": True}
    reel.apply(Ended(earlier or "error", "" if earlier else sentence, run.comparison))
    return {**reel.value, "message": sentence, "refused": bool(earlier)}


def what_if_functions(what_if: WhatIf) -> list[Callable[[Any], Json]]:
    """What the player may ask. Gradio marks functions by an attribute, which a bound method cannot have."""

    def choices(request: Any) -> Json:
        return what_if.choices(request)

    def parameters(request: Any) -> Json:
        return what_if.parameters(request)

    return [choices, parameters]


def wire_what_if(what_if: WhatIf, player: gr.HTML) -> None:
    """The player's event `whatif` carries {run, lane, force} or {run, lane, params}."""

    def add(event: gr.EventData, request: gr.Request) -> Iterator[Json]:
        yield from what_if.add(event._data, request.session_hash)

    listen: Any = player.whatif
    listen(
        add,
        outputs=player,
        show_progress="hidden",
        concurrency_limit=None,
        trigger_mode="multiple",
        api_visibility="private",
    )
