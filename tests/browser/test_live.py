"""A run while it runs: stopping it, waiting for another viewer's, leaving. The model takes its time here."""

from __future__ import annotations

from typing import Any

from tests.browser.viewer import Viewer


def test_stop_keeps_what_was_recorded(slow_viewer: Viewer) -> None:
    page = slow_viewer.open().page
    slow_viewer.set_tokens("512")
    slow_viewer.run("Tell a long story.", until="running")
    page.wait_for_function("document.querySelectorAll('[data-lane=autoregressive] .dx-step').length > 3")
    page.locator("#stop").click()
    page.wait_for_selector("#player[data-state=cancelled]")
    assert 3 < slow_viewer.count("[data-lane=autoregressive] .dx-step") < 512
    assert page.locator("#stop").is_hidden()
    page.keyboard.press("Home")
    assert slow_viewer.step() == 0


def test_figures_are_drawn_and_steps_picked_during_the_run(slow_viewer: Viewer) -> None:
    page = slow_viewer.open().page
    slow_viewer.set_tokens("512")
    slow_viewer.run("Tell a long story.", until="running")
    page.wait_for_selector("#player[data-state=running][data-drawn-step]")
    page.wait_for_function("document.querySelectorAll('[data-lane=medusa] .dx-step').length > 3")
    page.locator("[data-lane=medusa] .dx-step[data-step='1']").last.click()
    assert slow_viewer.step() == 1
    assert slow_viewer.data("selectedLane") == "medusa"
    assert slow_viewer.data("state") == "running"
    page.locator("#stop").click()
    page.wait_for_selector("#player[data-state=cancelled]")
    assert slow_viewer.step() == 1, "the step that the viewer chose stays"


def test_a_double_click_on_run_during_a_run_is_one_press(slow_viewer: Viewer) -> None:
    page = slow_viewer.open().page
    slow_viewer.set_tokens("512")
    slow_viewer.run("first words", until="running")
    slow_viewer.set_tokens("8")
    page.locator("#prompt textarea").fill("second words")
    page.locator("#run").dblclick()
    page.wait_for_selector("#player[data-state=done]")
    assert "second words" in page.locator(".dx-status").inner_text()


def test_two_viewers_wait_for_each_other_and_see_only_their_own(slow_viewer: Viewer, other_slow_viewer: Viewer) -> None:
    slow_viewer.open()
    other_slow_viewer.open()
    slow_viewer.set_tokens("512")
    other_slow_viewer.set_tokens("8")
    slow_viewer.run("first secret", until="running")
    other_slow_viewer.run("second secret", until="queued")
    assert "place 1" in other_slow_viewer.message()
    slow_viewer.page.locator("#stop").click()
    slow_viewer.page.wait_for_selector("#player[data-state=cancelled]")
    other_slow_viewer.page.wait_for_selector("#player[data-state=done]")
    assert "second secret" not in slow_viewer.page.locator("#player").inner_text()
    assert "first secret" not in other_slow_viewer.page.locator("#player").inner_text()
    assert slow_viewer.data("run") != other_slow_viewer.data("run")


def test_leaving_frees_the_device(browser: Any, slow_server: str, slow_viewer: Viewer) -> None:
    leaving = Viewer(browser, slow_server)
    leaving.open()
    leaving.set_tokens("512")
    leaving.run("I leave soon.", until="running")
    slow_viewer.open()
    slow_viewer.set_tokens("4")
    slow_viewer.run("I stay.", until="queued")
    leaving.close()
    slow_viewer.page.wait_for_selector("#player[data-state=done]")
    assert slow_viewer.count("[data-lane=autoregressive] .dx-step") == 4


def test_running_again_replaces_the_run(slow_viewer: Viewer) -> None:
    slow_viewer.open()
    slow_viewer.set_tokens("512")
    slow_viewer.run("The first.", until="running")
    first = slow_viewer.data("run")
    slow_viewer.set_tokens("4")
    slow_viewer.run("The second.")
    assert slow_viewer.data("run") != first
    assert slow_viewer.page.locator(".dx-prompt").inner_text() == "The second."
