"""All methods side by side on the toy model: every lane runs, says what its rule is, and each of its views draws."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.viewer import Viewer

PROMPT = "the cat and the dog and the cat and the dog"
OWN_VIEW = {
    "autoregressive": ["tree", "probs", "mask", "cache"],
    "draft-model": ["tree", "probs", "mask", "cache"],
    "prompt-lookup": ["lookup", "tree", "probs", "mask", "cache"],
    "jacobi": ["jacobi", "tree", "probs", "mask", "cache"],
    "lookahead": ["tree", "probs", "window", "pool", "mask", "cache"],
    "medusa": ["tree", "probs", "heads", "mask", "cache"],
    "eagle": ["tree", "probs", "frontier", "mask", "cache"],
    "eagle3": ["tree", "probs", "frontier", "mask", "cache"],
}


def add_all(viewer: Viewer, **settings: str) -> Any:
    """The page with one lane a method, and these settings."""
    page = viewer.open().page
    page.locator("#edit-lanes").click()
    page.get_by_role("button", name="that are missing").click()
    for name, value in settings.items():
        page.locator(f".dx-settings [name={name}]").fill(value)
    page.wait_for_function("document.getElementById('run').textContent.includes('Run 8 lanes')")
    return page


def views_of(page: Any) -> list[str]:
    """The views of the selected lane, the wide one first."""
    return page.eval_on_selector_all("#player .dx-panels [data-view]", "views => views.map(view => view.dataset.view)")


def look_at_every_view(viewer: Viewer, lane: str) -> None:
    """Open each tab, and wait until the step is drawn."""
    page = viewer.page
    for tab in page.eval_on_selector_all("#player .dx-panels [role=tab]", "tabs => tabs.map(tab => tab.dataset.tab)"):
        page.locator(f"#player [data-tab={tab}]").click()
        viewer.step()
        figure = page.locator(f"#player [data-view={tab}]")
        figure.wait_for(state="visible")
        drawn = "svg.main-svg, table, .dx-lines, .dx-note:not([hidden])"
        assert figure.locator(drawn).count() > 0, f"{tab} of {lane}"


def test_eight_methods_greedy(viewer: Viewer) -> None:
    page = add_all(viewer, max_new_tokens="24")
    viewer.run(PROMPT)
    lanes = page.eval_on_selector_all("#player [data-lane]", "rows => rows.map(row => row.dataset.method)")
    assert sorted(lanes) == sorted(OWN_VIEW)
    texts = page.eval_on_selector_all(
        "#player [data-lane]",
        "rows => rows.map(r => [...r.querySelectorAll('.dx-t')].map(t => t.textContent).join(''))",
    )
    assert len(set(texts)) == 1, "all lanes give the same text"
    marks = page.eval_on_selector_all("#player .dx-rule:not([hidden])", "all => all.map(mark => mark.textContent)")
    assert marks == ["lossless"] * 7
    assert page.locator("[data-lane=jacobi] .dx-rule").get_attribute("title").startswith("Match by prefix: ")
    for lane in lanes:
        page.locator(f"[data-lane={lane}] .dx-name").click()
        viewer.step()
        assert views_of(page) == OWN_VIEW[lane]
        look_at_every_view(viewer, lane)


def test_trials_under_sampling(viewer: Viewer) -> None:
    page = add_all(viewer, max_new_tokens="16", temperature="0.9")
    viewer.run(PROMPT)
    page.locator("[data-lane=draft-model] .dx-name").click()
    page.locator("#player [data-tab=trials]").click()
    page.keyboard.press("Home")
    viewer.step()
    words = page.locator("#player [data-view=trials] .dx-legend").inner_text()
    assert "drafter's probability" in words
    assert "chance of acceptance" in words


def test_lossy_rules_are_marked_and_their_fields_folded(viewer: Viewer) -> None:
    page = viewer.open().page
    page.locator("#edit-lanes").click()
    card = page.locator(".dx-lane-card").nth(1)
    assert card.get_by_label("acceptance rule").is_hidden()
    card.locator("summary").click()
    assert card.get_by_label("epsilon").is_hidden(), "it matters under typical acceptance only"
    card.get_by_label("acceptance rule").select_option("typical")
    assert card.get_by_label("epsilon").is_visible()
    assert card.locator("summary").inner_text() == "acceptance: typical · not lossless"
    page.locator(".dx-settings [name=temperature]").fill("0.9")
    viewer.set_tokens("12")
    viewer.run("Hello.")
    assert page.locator("[data-lane=medusa] .dx-rule").inner_text() == "not lossless"
    assert page.locator("[data-lane=eagle] .dx-rule").inner_text() == "lossless"
    page.locator("[data-lane=medusa] .dx-name").click()
    page.locator("#player [data-tab=trials]").click()
    page.keyboard.press("Home")  # there is always a draft in the first step
    viewer.step()
    assert "threshold" in page.locator("#player [data-view=trials] .dx-legend").inner_text()


def test_a_field_explains_itself_where_the_focus_is(viewer: Viewer) -> None:
    page = viewer.open().page
    page.locator("#edit-lanes").click()
    field = page.locator(".dx-settings [name=min_p]")
    bubble = page.locator(f"#{field.get_attribute('aria-describedby')}")
    assert bubble.is_hidden()
    field.focus()
    assert bubble.is_visible()
    assert "0 to 1" in bubble.inner_text()


@pytest.mark.parametrize("width", [390, 1440])
def test_eight_lanes_keep_the_sentence_in_sight_and_the_page_narrow(browser: Any, server: str, width: int) -> None:
    viewer = Viewer(browser, server, viewport={"width": width, "height": 900})
    page = add_all(viewer, max_new_tokens="16")
    viewer.run(PROMPT)
    viewer.step()
    for field in page.locator("#dx-editor .dx-input").all():  # each with its bubble
        field.focus()
        assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 1
    page.locator("#edit-lanes").click()
    page.evaluate("window.scrollTo(0, 0)")
    box = page.locator("[data-narration]").bounding_box()
    assert width < 721 or 0 < box["y"] < 900 - box["height"]
    hint = page.locator("[data-view=timeline] .dx-more")
    page.wait_for_selector("[data-view=timeline] svg.main-svg")
    assert hint.is_visible() == (width < 721), "what scrolls sideways says so"
    viewer.close()


def test_the_status_line_keeps_its_height(slow_viewer: Viewer) -> None:
    page = slow_viewer.open().page
    slow_viewer.set_tokens("40")
    page.locator("#edit-lanes").click()
    measure = "document.querySelector('#player .dx-status').offsetHeight"
    heights = {page.evaluate(measure)}
    slow_viewer.run("A long prompt. " * 20, until="running")
    heights.add(page.evaluate(measure))
    page.wait_for_selector("#player[data-state=done]")
    heights.add(page.evaluate(measure))
    assert len(heights) == 1
