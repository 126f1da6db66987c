"""What a viewer takes along and comes back with: links and tables. Everything posted is checked."""

from __future__ import annotations

import logging
from typing import Any

from explorer.csv_tables import BYTE_ORDER_MARK, csv_text
from explorer.errors import ExplorerError
from explorer.runs import Run
from explorer.session import EXAMPLE_ID, Studio
from explorer.ui.lessons import RUN_ID as LESSON_ID
from explorer.ui.links import VERSION, Link, linked, read_link

LOG = logging.getLogger(__name__)
GONE = "This run is no longer held; run it again."

Json = dict[str, Any]


class Sharing:
    """Links and tables of the runs that a studio holds."""

    def __init__(self, studio: Studio) -> None:
        self._studio = studio

    def link(self, question: Any) -> Json:
        """The query of a link to a run: {run} -> {ok, query, lanes}. The page adds lane and step.

        `lanes` has the names of the run's lanes in the link, where they are not all the same.
        """
        try:
            run = self._run(question)
            if run.id == EXAMPLE_ID:
                return {"ok": True, "query": f"v={VERSION}&open={EXAMPLE_ID}"}
            if run.id.startswith(LESSON_ID.format("")):
                return {"ok": True, "query": f"v={VERSION}&lesson={run.id.removeprefix(LESSON_ID.format(''))}"}
            query, lanes = linked(run)
            return {"ok": True, "query": query, "lanes": lanes}
        except ExplorerError as error:
            return {"ok": False, "error": str(error)}
        except Exception:
            LOG.exception("a link failed")
            return {"ok": False, "error": "A link to this run could not be made."}

    def table(self, question: Any) -> Json:
        """The numbers of a run as the text of a file: {run, table} -> {ok, name, text}."""
        try:
            run, what = self._run(question), question.get("table")
            if run.comparison is None:
                raise ExplorerError("There are no numbers to download before the run has ended.")
            with self._studio.quiet():
                text = csv_text(run.comparison, what if isinstance(what, str) else "")
            return {"ok": True, "name": f"{what}-{run.id[:8]}.csv", "text": BYTE_ORDER_MARK + text}
        except ExplorerError as error:
            return {"ok": False, "error": str(error)}
        except Exception:
            LOG.exception("a table failed")
            return {"ok": False, "error": "The table could not be made."}

    def arrive(self, question: Any) -> tuple[Link, Json]:
        """Somebody opened a link: what it asks for, and what the player is told of it."""
        query = question.get("query") if isinstance(question, dict) else None
        try:
            link = read_link(query, {row["name"]: row["reason"] for row in self._studio.methods()})
        except Exception:
            LOG.exception("a link could not be read")
            link = Link(problems=["This link cannot be read; nothing was taken from it."])
        told = {"message": link.message, "runs": link.runs, "show": link.show, "step": link.step}
        return link, told | {"open": link.open, "lesson": link.lesson, "stop": link.stop}

    def _run(self, question: Any) -> Run:
        run = self._studio.runs.get(question.get("run")) if isinstance(question, dict) else None
        if run is None:
            raise ExplorerError(GONE)
        return run
