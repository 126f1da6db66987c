"""Lecture mode, lessons, the list of keys and the tour: by keyboard alone, in a real Chromium."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from explorer.lessons import names, read_lesson
from tests.browser.test_replay import example, play  # noqa: F401  fixtures
from tests.browser.viewer import Viewer

SHOWN = "document.documentElement.dataset.lecture === 'on'"
TYPE_SIZE = "parseFloat(getComputedStyle(document.documentElement).fontSize)"
FOCUS_INSIDE = "(css) => document.activeElement === document.body || Boolean(document.activeElement.closest(css))"


def violations(viewer: Viewer, context: str = "#player") -> list[Any]:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    found = axe.Axe().run(viewer.page, context=context).response["violations"]
    return [(each["id"], [node["html"][:200] for node in each["nodes"]][:3]) for each in found]


def open_lesson(viewer: Viewer, title: str) -> None:
    """As a keyboard does it."""
    page = viewer.page
    page.get_by_role("button", name="lessons").press("Enter")
    page.locator(".dx-menu-list").get_by_role("button", name=title, exact=True).press("Enter")
    page.get_by_role("region", name=f"Lesson: {title}", exact=True).wait_for()
    viewer.step()


def in_sight(viewer: Viewer) -> bool:
    """Is what the stop points at on screen, above the deck?"""
    return bool(
        viewer.page.evaluate(
            """() => {
            const box = document.querySelector('[data-look]').getBoundingClientRect();
            const deck = document.querySelector('.dx-deck').getBoundingClientRect().top;
            return box.top > -2 && box.top < deck - 40;
        }"""
        )
    )


def test_a_lecture_by_keys_alone(viewer: Viewer) -> None:
    page = viewer.open().page
    usual = page.evaluate(TYPE_SIZE)
    page.keyboard.press("l")
    assert page.evaluate(SHOWN)
    assert page.evaluate(TYPE_SIZE) > usual * 1.1
    assert not page.locator("#prompt").is_visible()
    assert not page.locator("#open").is_visible()
    page.keyboard.press("Home")
    assert viewer.step() == 0
    page.keyboard.press("PageDown")
    assert viewer.step() == 1
    page.keyboard.press("PageUp")
    assert viewer.step() == 0
    page.keyboard.press("2")
    assert viewer.data("selectedLane") == "medusa"
    page.keyboard.press("End")
    assert viewer.step() == int(viewer.data("steps") or 0) - 1
    assert page.locator("[data-narration]").is_visible()
    scale = page.locator("[data-view=tree] .dx-scaled").evaluate(
        "node => node.getBoundingClientRect().width / node.offsetWidth"
    )
    assert scale > 1.1, "pictures grow with the type"
    assert violations(viewer) == []
    page.keyboard.press("Escape")
    assert not page.evaluate(SHOWN)
    assert page.evaluate(TYPE_SIZE) == usual
    assert page.locator("#prompt").is_visible()
    viewer.step()


@pytest.mark.parametrize("width", [1440, 1024, 390])
def test_a_lecture_fits_the_screen(viewer: Viewer, width: int) -> None:
    page = viewer.page
    page.set_viewport_size({"width": width, "height": 800})
    viewer.open()
    page.get_by_role("button", name="lecture", exact=True).press("Enter")
    viewer.step()
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert page.locator(".dx-lane.chosen .dx-stream").is_visible()
    assert page.get_by_role("button", name="leave lecture").is_visible()


def test_a_lesson_leads_from_stop_to_stop_and_back_to_what_was_there(viewer: Viewer) -> None:
    page = viewer.open().page
    page.keyboard.press("4")
    page.keyboard.press("ArrowRight")
    step, lane, run = viewer.step(), viewer.data("selectedLane"), viewer.data("run")
    open_lesson(viewer, "Medusa")
    assert viewer.data("run") == "lesson-medusa"
    count = page.locator(".dx-lesson-count")
    text = page.locator(".dx-lesson-text")
    told = []
    for key in ("n", "PageDown", "n"):
        told.append(text.inner_text())
        assert in_sight(viewer)
        page.keyboard.press(key)
        viewer.step()
    assert count.inner_text() == "stop 4 of 6"
    page.keyboard.press("b")
    page.keyboard.press("PageUp")
    viewer.step()
    assert text.inner_text() == told[1]
    assert len(set(told)) == len(told)
    assert violations(viewer) == []
    page.keyboard.press("Escape")
    assert (viewer.step(), viewer.data("selectedLane"), viewer.data("run")) == (step, lane, run)
    assert not page.locator(".dx-lesson").is_visible()
    assert page.locator("[data-narration]").is_visible()


def test_every_lesson_opens_and_the_comparison_points_at_the_whole_run(viewer: Viewer) -> None:
    page = viewer.open().page
    for name in reversed(names()):
        lesson = read_lesson(name)
        open_lesson(viewer, lesson.title)
        assert viewer.data("run") == f"lesson-{name}"
        assert in_sight(viewer)
        while name == "comparison" and page.get_by_role("button", name="Next stop").is_enabled():
            page.keyboard.press("n")
            viewer.step()
            assert in_sight(viewer)
            assert not page.locator("[data-look]").get_by_text("nothing to show").is_visible()


def test_a_run_ends_a_lesson_and_the_lesson_opens_again(viewer: Viewer) -> None:
    page = viewer.open().page
    open_lesson(viewer, "EAGLE")
    viewer.set_tokens("8")
    viewer.run("Count to ten.")
    assert not page.locator(".dx-lesson").is_visible()
    viewer.step()
    run = viewer.data("run")
    open_lesson(viewer, "EAGLE")
    assert viewer.data("run") == "lesson-eagle"
    page.get_by_role("button", name="Leave the lesson").press("Enter")
    assert viewer.data("run") == run
    viewer.step()


def test_the_list_of_keys_is_a_dialog(viewer: Viewer) -> None:
    page = viewer.open().page
    step = viewer.step()
    opener = page.get_by_role("button", name="Keys and words (?)")
    opener.press("Enter")
    dialog = page.get_by_role("dialog", name="Help")
    for words in ("one step back", "that lane", "lecture mode: large type, only the player", "next stop of a lesson"):
        assert dialog.get_by_text(words, exact=True).is_visible()
    assert violations(viewer, ".dx-help") == []
    for _ in range(12):
        page.keyboard.press("Tab")
        assert page.evaluate(FOCUS_INSIDE, ".dx-help")
    dialog.get_by_role("tab", name="What the words mean").click()
    for term in (
        "tokens per target pass",
        "acceptance rate",
        "accepted prefix",
        "bonus token",
        "KV cache",
        "n-gram pool",
    ):
        assert dialog.get_by_text(term, exact=True).is_visible()
    page.keyboard.press("ArrowLeft")
    assert dialog.get_by_role("tab", name="Keys").get_attribute("aria-selected") == "true"
    assert violations(viewer, ".dx-help") == []
    page.keyboard.press("Escape")
    assert not dialog.is_visible()
    assert opener.evaluate("node => node === document.activeElement")
    assert viewer.step() == step, "the arrow key belonged to the dialog"


def test_the_tour_is_offered_once_and_goes_by_keys(viewer: Viewer) -> None:
    page = viewer.open().page
    page.get_by_role("button", name="Take the tour").press("Enter")
    card = page.get_by_role("dialog", name="Tour of the page")
    titles = []
    while card.is_visible():
        titles.append(card.locator("h2").inner_text())
        assert card.locator(":focus").count() == 1
        box = card.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= 900
        if len(titles) == 2:
            assert violations(viewer, ".dx-tour") == []
        page.keyboard.press("ArrowRight")
    assert 6 <= len(titles) == len(set(titles)) <= 8
    page.reload()
    viewer.open()
    assert page.get_by_role("button", name="Take the tour").count() == 0
    page.keyboard.press("?")
    page.get_by_role("button", name="take the tour of the page").press("Enter")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    assert card.locator("h2").inner_text() == titles[0]
    page.keyboard.press("Escape")
    assert not card.is_visible()


def test_a_lecture_in_the_replay_file(play: Callable[..., Viewer], example: str) -> None:  # noqa: F811
    viewer = play(example)
    page = viewer.page
    page.keyboard.press("l")
    viewer.step()
    assert not page.locator("#asked").is_visible()
    page.keyboard.press("PageDown")
    viewer.step()
    assert violations(viewer) == []
    page.keyboard.press("?")
    assert page.get_by_role("dialog", name="Help").is_visible()
    page.keyboard.press("Escape")
    assert page.evaluate(SHOWN), "the first Escape closes the dialog alone"
    page.keyboard.press("Escape")
    assert page.locator("#asked").is_visible()
    assert page.get_by_role("button", name="lessons").count() == 0
