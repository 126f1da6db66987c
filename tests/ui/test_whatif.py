"""Added lanes on the page, without a browser."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from explorer.branches import ExtendRequest
from explorer.events import Event, Queued
from explorer.runs import Run
from explorer.session import Studio
from explorer.ui.handlers import Handlers
from explorer.ui.whatif import INSIDE, WhatIf
from tests.ui.test_handlers import Request, setup_of

FORCE = {"lane": "eagle", "force": {"step": 1, "node": "next", "text": "cat"}}


@pytest.fixture
def ran(studio: Studio) -> dict[str, Any]:
    """A finished run's last value."""
    values = Handlers(studio).run("1 2 3 1 2 3", setup_of("autoregressive", "eagle", max_new_tokens=16), Request())
    return list(values)[-1]


def what_if(studio: Studio) -> WhatIf:
    return WhatIf(studio, Handlers(studio).stops)


def test_each_value_is_the_whole_run_with_the_lane_so_far(studio: Studio, ran: dict[str, Any]) -> None:
    values = list(what_if(studio).add({"run": ran["run"], **FORCE}, "one"))
    assert {value["run"] for value in values} == {ran["run"]}
    assert all(value["lanes"][:2] == ran["lanes"] for value in values)
    assert values[-1]["state"] == "done"
    assert values[-1]["lanes"][2]["badge"]["kind"] == "branch"
    counts = [len(value["lanes"][2]["steps"]) for value in values if len(value["lanes"]) > 2]
    assert counts == sorted(counts)
    assert counts[-1] > 0


@pytest.mark.parametrize("posted", [None, 3, [], {}, {"run": "nobody", **FORCE}, {"run": None, **FORCE}])
def test_a_refusal_leaves_the_screen_as_it_is(posted: Any, studio: Studio) -> None:
    values = list(what_if(studio).add(posted, "one"))
    assert len(values) == 1
    assert (values[0]["run"], values[0]["state"], values[0]["lanes"]) == ("", "error", [])
    assert values[0]["message"].endswith(".")
    assert values[0]["refused"] is True


def test_a_failure_before_the_lane_has_begun_leaves_the_run_as_it_was(studio: Studio, ran: dict[str, Any]) -> None:
    class Broken(Studio):
        """A studio that fails in a way that nobody thought of."""

        def extend(self, run: Run, request: ExtendRequest, stop: threading.Event) -> Iterator[Event]:
            yield Queued(1)
            raise ZeroDivisionError("secret of the inside")

    broken = Broken()
    broken.runs = studio.runs
    last = list(what_if(broken).add({"run": ran["run"], **FORCE}, "one"))[-1]
    assert (last["state"], last["message"], last["refused"]) == ("done", INSIDE, True)
    assert last["lanes"] == ran["lanes"]
    held = studio.runs.get(ran["run"])
    assert held is not None
    assert (held.state, held.message) == ("done", ""), "the run is as it was"
    again = list(what_if(studio).add({"run": ran["run"], **FORCE}, "one"))[-1]
    assert again["state"] == "done", "the run can still be extended"


def test_a_viewer_who_leaves_frees_the_device_and_the_run(studio: Studio, ran: dict[str, Any]) -> None:
    values = what_if(studio).add({"run": ran["run"], **FORCE}, "one")
    next(values)
    values.close()  # type: ignore[attr-defined]
    run = studio.runs.get(ran["run"])
    assert run is not None
    assert run.over
    assert run.comparison is not None
    assert list(what_if(studio).add({"run": ran["run"], **FORCE}, "two"))[-1]["state"] == "done"


def test_another_wish_of_the_session_stops_the_first(studio: Studio, ran: dict[str, Any]) -> None:
    page = what_if(studio)
    first = page.add({"run": ran["run"], **FORCE}, "one")
    next(first)
    (refused,) = page.add({"run": ran["run"], **FORCE}, "one")
    assert refused["state"] == "error"
    assert list(first)[-1]["state"] == "cancelled"


def test_questions_get_an_answer_or_a_sentence(studio: Studio, ran: dict[str, Any]) -> None:
    page, run = what_if(studio), ran["run"]
    assert page.choices({"run": run, "lane": "eagle", "step": 1, "node": 1})["ok"]
    assert page.parameters({"run": run, "lane": "eagle"})["ok"]
    for question in (None, {}, {"run": run}, {"run": run, "lane": [], "step": {}, "node": None}, {"run": [1]}):
        for answer in (page.choices(question), page.parameters(question)):
            assert answer["ok"] is False
            assert answer["error"].endswith(".")


def test_a_refused_wish_on_a_shared_run_pushes_nobody_out(studio: Studio, ran: dict[str, Any]) -> None:
    example = studio.example()
    wish = {"run": example.id, "lane": "eagle", "force": {"step": 1, "node": "next", "token_id": 1}}
    for _ in range(70):  # more than runs are held
        (refused,) = what_if(studio).add(wish, "one")  # its model is not the one that answers here
        assert refused["state"] == "error"
    assert studio.runs.get(ran["run"]) is not None
    assert studio.example() is example
