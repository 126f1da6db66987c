"""Linked views: one token lights up everywhere, the panel explains it, the algorithm shows what ran."""

from __future__ import annotations

from typing import Any

from tests.browser.viewer import Viewer

PANEL = "[data-aside=details]"
CODE = "[data-aside=code]"


def shown_node(viewer: Viewer) -> str:
    return str(viewer.page.locator(PANEL).get_attribute("data-shown-node"))


def rows_of_phase(viewer: Viewer, css: str) -> set[str]:
    return set(viewer.page.eval_on_selector_all(f"{CODE} {css}", "rows => rows.map(row => row.dataset.phase)"))


def in_eagle(viewer: Viewer, step: int = 1) -> Viewer:
    """A step of the recorded example's EAGLE lane that accepts and rejects drafts."""
    page = viewer.open().page
    page.locator("[data-lane=eagle] .dx-name").click()
    page.locator("input[data-scrub]").fill(str(step))
    viewer.step()
    page.wait_for_selector(f"{PANEL} [data-why]:not(:empty)")
    return viewer


def test_hover_previews_click_pins_and_escape_lets_go_without_a_jump(viewer: Viewer) -> None:
    page = in_eagle(viewer).page
    decided = shown_node(viewer)
    assert "decided this step" in page.locator(f"{PANEL} .dx-hint").inner_text()
    token = page.locator(".dx-step.now .dx-t.draft").first
    node = token.get_attribute("data-node")
    place = "() => document.querySelector('.dx-overviews').getBoundingClientRect().top + scrollY"
    before = page.evaluate(place)
    token.hover()
    page.wait_for_selector(f"{PANEL}[data-shown-node='{node}']")
    assert page.locator(f"{PANEL} [data-why]").inner_text().startswith("Accepted: after the root the target chooses")
    assert page.evaluate(place) == before
    assert viewer.count("[data-view=tree] .dx-ring.box") == 1
    token.click()
    page.mouse.move(2, 2)
    assert shown_node(viewer) == node
    page.keyboard.press("Escape")
    assert shown_node(viewer) == decided


def test_the_same_token_lights_up_in_every_view_and_the_same_place_in_every_lane(viewer: Viewer) -> None:
    page = in_eagle(viewer).page
    page.locator(".dx-step.now .dx-t.draft").first.click()
    assert viewer.count(".dx-t.linked") == 1
    texts = page.eval_on_selector_all(".dx-lane .dx-t.same", "tokens => tokens.map(token => token.textContent)")
    assert len(texts) == viewer.count("#player [data-lane]")
    assert len(set(texts)) == 1, "the lanes' outputs are equal"
    for tab, mark in (("probs", "td.linked"), ("mask", ".dx-band"), ("frontier", ".dx-ring"), ("cache", "td.linked")):
        page.locator(f"[data-tab={tab}]").click()
        viewer.step()
        page.wait_for_selector(f"[data-view={tab}] {mark}")
    assert viewer.count("[data-view=tree] .dx-ring.pinned") == 1


def test_a_pin_is_there_again_when_one_comes_back_to_its_step(viewer: Viewer) -> None:
    page = in_eagle(viewer).page
    page.locator(".dx-step.now .dx-t.draft").first.click()
    pinned = shown_node(viewer)
    page.keyboard.press("ArrowRight")
    viewer.step()
    assert "decided this step" in page.locator(f"{PANEL} .dx-hint").inner_text()
    page.keyboard.press("ArrowLeft")
    viewer.step()
    assert shown_node(viewer) == pinned
    assert "pinned" in page.locator(f"{PANEL} .dx-hint").inner_text()


def test_keys_alone_reach_a_rejected_node_and_the_targets_own_token(viewer: Viewer) -> None:
    page = in_eagle(viewer).page
    words = set()
    for _ in range(20):
        page.keyboard.press("j")
        words.add(page.locator(f"{PANEL} .dx-d-status").inner_text())
    assert {"root", "accepted", "rejected", "target's own"} <= words


def test_the_lines_of_the_chosen_phase_light_up(viewer: Viewer) -> None:
    page = in_eagle(viewer).page
    phases = page.eval_on_selector_all(f"{CODE} .dx-phase", "all => all.map(each => each.dataset.phase)")
    assert phases == ["draft", "verify", "accept", "commit"]
    assert rows_of_phase(viewer, "li.ran") == set(phases)
    assert rows_of_phase(viewer, "li:not(.ran)") >= {"prefill", "drafter-prefill"}
    page.mouse.move(2, 2)
    for phase in phases:
        page.keyboard.press(".")
        assert rows_of_phase(viewer, "li.lit") == {phase}
        assert page.locator(f"{CODE} .dx-phase[aria-pressed=true]").get_attribute("data-phase") == phase
    page.keyboard.press("ArrowRight")
    viewer.step()
    assert rows_of_phase(viewer, "li.lit") == {"commit"}, "the choice outlives the step"
    page.keyboard.press(".")
    assert rows_of_phase(viewer, "li.lit") == set()
    page.keyboard.press(",")
    assert rows_of_phase(viewer, "li.lit") == {"commit"}


def test_every_lane_has_its_own_algorithm(viewer: Viewer) -> None:
    page = viewer.open().page
    seen: set[Any] = set()
    for lane in page.eval_on_selector_all("#player [data-lane]", "rows => rows.map(row => row.dataset.lane)"):
        page.locator(f"[data-lane='{lane}'] .dx-name").click()
        viewer.step()
        page.wait_for_function(
            "known => !known.includes(document.querySelector('.dx-code-lines').innerText)", arg=list(seen)
        )
        seen.add(page.locator(".dx-code-lines").inner_text())
    assert len(seen) == 4
