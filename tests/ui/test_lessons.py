"""Lessons on the page: anybody may ask for one, nothing in the question is trusted, and one is read once."""

from __future__ import annotations

from typing import Any

import pytest

from explorer.figures.serve import frames
from explorer.lessons import names
from explorer.session import Studio
from explorer.ui.lessons import Lessons


@pytest.mark.parametrize("request_", [None, [], "medusa", {}, {"name": None}, {"name": ["medusa"]}, {"name": "../x"}])
def test_a_strange_question_gets_a_sentence(studio: Studio, request_: Any) -> None:
    assert Lessons(studio).open(request_) == {"ok": False, "error": "There is no such lesson here."}


def test_a_lesson_comes_with_its_run_which_everybody_may_see(studio: Studio) -> None:
    lessons = Lessons(studio)
    held = studio.runs.get("lesson-medusa")
    assert held is None
    answer = lessons.open({"name": "medusa"})
    assert answer["ok"]
    assert answer["value"]["run"] == "lesson-medusa"
    assert answer["value"]["state"] == "recorded"
    assert lessons.open({"name": "medusa"}) is answer
    lanes = {lane["id"]: lane for lane in answer["value"]["lanes"]}
    for stop in answer["lesson"]["stops"]:
        lane = lanes[stop["lane"]]
        assert stop["step"] < len(lane["steps"])
        view = stop["look"] if stop["look"] in lane["views"] else lane["views"][0]
        question = {"run": "lesson-medusa", "lane": stop["lane"], "lo": stop["step"], "hi": stop["step"] + 1}
        shown = frames(studio.runs, question | {"views": [view], "theme": "light"})
        assert shown["ok"]
        assert shown["views"][view]["steps"][0] is not None


def test_what_is_offered_is_what_can_be_opened(studio: Studio) -> None:
    assert [row["name"] for row in Lessons(studio).offered()] == list(names())
