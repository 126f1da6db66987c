"""What if, in a real Chromium: branches, lanes run again, and guesses that nothing on the page gives away."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from explorer.branches import place_of
from explorer.replay import replay_html
from explorer.session import EXAMPLE_FILE, recorded_events
from explorer.trace import Trace
from explorer.trace_io import read_comparison
from tests.browser.viewer import Viewer

PROMPT = "1 2 3 1 2 3 1 2 3"


def run_short(viewer: Viewer) -> None:
    """A run of few tokens."""
    viewer.set_tokens("24")
    viewer.page.locator("#edit-lanes").click()
    viewer.run(PROMPT)


def added(viewer: Viewer, lane: str) -> Any:
    """The lane's row, once it is there and at its end."""
    row = viewer.page.locator(f".dx-lane[data-lane={lane}][data-lane-state=done]")
    row.wait_for()
    viewer.page.wait_for_selector("#player:not([data-state=preparing]):not([data-state=running])")
    return row


def pin(viewer: Viewer, lane: str, step: int) -> None:
    """Go to a step and pin the target's own token there."""
    token = viewer.page.locator(f".dx-lane[data-lane={lane}] .dx-step[data-step='{step}'] .dx-t").last
    token.click()
    viewer.step()
    token.click()
    viewer.page.locator(".dx-whatif .dx-what-token").first.wait_for()


def in_sight(place: Any) -> bool:
    """Above the deck and below the window's top."""
    return bool(
        place.evaluate(
            "(box) => { const { top, bottom } = box.getBoundingClientRect(); return top >= 0 && bottom > top"
            " && bottom <= document.querySelector('.dx-deck').getBoundingClientRect().top + 1; }"
        )
    )


def check_axe(viewer: Viewer) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    found = axe.Axe().run(viewer.page, context="#player").response["violations"]
    assert [violation["id"] for violation in found] == []


def test_a_forced_token_becomes_a_lane_and_the_viewer_stays(viewer: Viewer) -> None:
    page = viewer.open().page
    run_short(viewer)
    run = viewer.data("run")
    pin(viewer, "eagle", 4)
    check_axe(viewer)
    place = re.search(r"\d+", page.locator(".dx-whatif b").inner_text())
    assert place is not None
    forced = page.locator(".dx-whatif .dx-what-token").nth(1)
    text = forced.locator(".tok").inner_text()
    forced.click()
    row = added(viewer, "eagle-2")
    assert (viewer.data("run"), viewer.data("selectedLane"), viewer.step()) == (run, "eagle", 4)
    assert f"branch of EAGLE at token {place[0]}: " in row.inner_text()
    assert "not compared" in row.locator(".dx-badge").inner_text()
    assert row.locator(".dx-t.given").count() == int(place[0]) - 1
    assert row.locator(".dx-t.forced").count() == 1
    assert row.locator(".dx-t.forced").get_attribute("title").startswith('"') or not text.isprintable()
    # it plays like any other lane, and what was there before is there still
    row.locator(".dx-name").click()
    page.keyboard.press("End")
    assert viewer.step() == row.locator(".dx-step:not(.given):not(.prefill)").count() - 1
    assert viewer.count(".dx-lane") == 5
    assert page.locator(".dx-lane[data-lane=medusa] .dx-badge").get_attribute("data-kind") == "equal"


def test_the_same_token_gives_the_same_text_and_hostile_text_stays_text(viewer: Viewer) -> None:
    page = viewer.open().page
    run_short(viewer)
    pin(viewer, "lookahead", 2)
    page.locator(".dx-what-token", has_text="as it was").click()
    row = added(viewer, "lookahead-2")
    assert row.locator(".dx-badge").inner_text() == "same 24 tokens"
    assert row.locator(".dx-badge").get_attribute("data-kind") == "equal"
    pin(viewer, "autoregressive", 3)
    page.locator(".dx-what-own input").fill("<b>&\u202e")
    page.keyboard.press("Enter")
    row = added(viewer, "autoregressive-2")
    assert "<b>&⟨202E⟩" in row.inner_text()
    assert row.locator("b").count() == 0
    assert row.locator(".dx-t.forced").count() > 3


def test_a_lane_runs_again_by_keys_alone(viewer: Viewer) -> None:
    page = viewer.open().page
    run_short(viewer)
    page.keyboard.press("3")
    page.keyboard.press("r")
    form = page.locator("#dx-rerun form")
    form.wait_for()
    assert page.evaluate("document.getElementById('dx-rerun').contains(document.activeElement)")
    check_axe(viewer)
    page.keyboard.press("Escape")
    assert page.locator("#dx-rerun").is_hidden()
    page.keyboard.press("r")
    form.locator("input[name=depth]").fill("99")
    page.keyboard.press("Enter")
    told = form.get_by_role("alert")
    told.get_by_text("depth is 99").wait_for()
    assert viewer.data("state") == "done", "the run is as it was"
    assert "depth is 99" not in viewer.message()
    assert in_sight(told)
    assert form.locator("input[name=depth]").input_value() == "99", "what was typed stays"
    check_axe(viewer)
    bubble, go = form.locator(".dx-field small:visible").bounding_box(), form.locator(".dx-what-go").bounding_box()
    assert bubble["y"] + bubble["height"] <= go["y"], "what a field means does not lie over the button"
    assert viewer.count(".dx-lane") == 4
    form.locator("input[name=depth]").fill("1")
    page.keyboard.press("Enter")
    row = added(viewer, "eagle-2")
    assert page.locator("#dx-rerun").is_hidden()
    assert "depth 1, not 5" in row.inner_text()
    assert row.locator(".dx-badge").get_attribute("data-kind") == "equal"


def test_a_run_with_the_editor_open_is_answered_in_sight(viewer: Viewer) -> None:
    page = viewer.open().page
    page.locator("#edit-lanes").click()
    page.set_viewport_size({"width": 1000, "height": 600})
    page.locator("#run").scroll_into_view_if_needed()
    assert not in_sight(page.locator(".dx-status"))
    viewer.run(PROMPT)
    assert in_sight(page.locator(".dx-status"))
    page.evaluate("scrollTo(0, 0)")
    viewer.run("", until="error")
    assert in_sight(page.locator(".dx-status"))


def test_the_example_of_another_model_is_refused_and_stays(viewer: Viewer) -> None:
    """The toy answers here, and the example ran on the default model."""
    page = viewer.open().page
    lane, step = viewer.data("selectedLane"), viewer.step()
    pin(viewer, "eagle", 6)
    page.locator(".dx-what-token").first.click()
    told = page.locator(".dx-whatif").get_by_role("alert")
    told.get_by_text("cannot go on").wait_for()
    assert "toy model" in told.inner_text()
    assert in_sight(told)
    assert viewer.data("state") in ("recorded", "done"), "the run is as it was"
    assert viewer.count(".dx-lane") == 4
    assert (viewer.data("selectedLane"), viewer.step()) == ("eagle", 6)
    fresh = Viewer(page.context.browser, viewer.server).open()
    assert (fresh.data("run"), fresh.data("selectedLane"), fresh.step()) == ("example", lane, step)
    fresh.close()


# Predict, then reveal


def eagle() -> Trace:
    return next(trace for trace in read_comparison(EXAMPLE_FILE).lanes if trace.lane == "eagle")


def shown_tokens(viewer: Viewer, lane: str) -> int:
    """Output tokens of a lane that can be seen."""
    return int(
        viewer.page.evaluate(
            "(lane) => [...document.querySelectorAll(`.dx-lane[data-lane=${lane}] .dx-t`)]"
            ".filter((token) => token.offsetParent !== null).length",
            lane,
        )
    )


def check_nothing_tells(viewer: Viewer, step: int) -> None:
    """While a guess is awaited: no later text, no verdict, no figure, no bar of another height."""
    page, known = viewer.page, len(place_of(eagle(), step, 0).before) + 1
    for lane in ("autoregressive", "medusa", "eagle", "lookahead"):
        assert shown_tokens(viewer, lane) <= known
    assert shown_tokens(viewer, "eagle") == known
    assert page.locator(".dx-panels").is_hidden()
    assert page.locator(".dx-asides").is_hidden()
    assert page.locator(".dx-overviews .dx-card").first.is_hidden()
    assert page.locator(".dx-nums").first.is_hidden()
    assert "How many will the target accept?" in page.locator(".dx-say").inner_text()
    heights = page.evaluate("[...document.querySelectorAll('.dx-bars i')].map((bar) => bar.offsetHeight)")
    assert len(set(heights[step:])) == 1
    visible = page.locator("#player").inner_text()
    for word in ("agreed", "rejected", "accepted:", "tokens from one pass"):
        assert word not in visible


def check_guessing(viewer: Viewer) -> None:
    page, steps = viewer.page, eagle().steps
    page.keyboard.press("3")
    page.keyboard.press("Home")
    viewer.step()
    page.keyboard.press("p")
    right = 0
    for step, said in ((1, len(steps[1].accepted)), (2, 0), (3, len(steps[3].accepted))):
        page.keyboard.press("ArrowRight")
        page.locator(".dx-guess-number").first.wait_for()
        page.locator(".dx-guess-token").nth(len(steps[step].nodes) - 1).wait_for()
        check_nothing_tells(viewer, step)
        assert in_sight(page.locator(".dx-guess-numbers"))
        check_axe(viewer) if step == 1 else None
        page.keyboard.press("j")
        assert page.locator(".dx-guess-number").count() == max(node.depth for node in steps[step].nodes) + 1
        page.keyboard.press(str(said))
        accepted = len(steps[step].accepted)
        right += said == accepted
        answer = page.locator(".dx-guess-answer").inner_text()
        assert answer.startswith("Right:" if said == accepted else f"You said {said}; ")
        assert viewer.step() == step
        assert page.locator(".dx-panels").is_visible()
        assert page.locator(".dx-guess-score").inner_text().startswith(f"{right} of {step} right")
    page.keyboard.press("ArrowLeft")
    assert viewer.step() == 2
    assert page.locator(".dx-panels").is_visible()
    page.keyboard.press("Escape")
    assert page.locator(".dx-guess").is_hidden()
    assert shown_tokens(viewer, "eagle") == len(eagle().tokens)
    assert viewer.step() == 2


def test_guesses_are_asked_before_each_step(viewer: Viewer) -> None:
    viewer.open()
    check_guessing(viewer)
    # a new run ends the guessing
    viewer.page.keyboard.press("p")
    viewer.run(PROMPT)
    assert viewer.page.locator(".dx-guess").is_hidden()
    assert viewer.page.locator(".dx-nums").first.is_visible()


def test_guesses_are_asked_in_a_replay_where_nothing_can_be_run(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "replay.html"
    path.write_text(replay_html(read_comparison(EXAMPLE_FILE), recorded_events), encoding="utf-8")
    viewer = Viewer(browser, path.as_uri(), offline=True, viewport={"width": 390, "height": 800}).open()
    check_guessing(viewer)
    assert viewer.count(".dx-rerun-open") == 0
    token = viewer.page.locator(".dx-lane[data-lane=eagle] .dx-step.now .dx-t").last
    token.click()
    viewer.page.locator(".dx-details", has_text="pinned").wait_for()
    assert viewer.count(".dx-whatif") == 0
    viewer.close()
