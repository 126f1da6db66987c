"""The page for everybody: what axe finds in every state, keys alone, tables for pictures, large type, spoken words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from explorer.replay import replay_html
from explorer.session import EXAMPLE_FILE, recorded_events
from explorer.trace_io import read_comparison
from tests.browser.conftest import CHROMIUM, running
from tests.browser.viewer import Viewer

axe = pytest.importorskip("axe_playwright_python.sync_playwright")

SCREENS = [("light", 1440), ("dark", 390)]
SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
PICTURES = ".dx-inspect [data-view]:not([hidden]), .dx-overviews [data-view]"
TABBABLE = """() => [...document.querySelectorAll('a[href], button, input, select, textarea, summary, [tabindex]')]
  .filter(each => each.tabIndex >= 0 && !each.disabled && each.checkVisibility({ checkVisibilityCSS: true })
    && !each.closest('[inert], [aria-hidden=true]'))"""


@pytest.fixture(params=SCREENS, ids=["light-1440", "dark-390"])
def screen(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Options of a browser session."""
    scheme, width = request.param
    return {"color_scheme": scheme, "viewport": {"width": width, "height": 900}}


@pytest.fixture
def open_on(browser: Any) -> Iterator[Any]:
    """Opens a page with options; afterwards nothing may have gone wrong in it."""
    opened: list[Viewer] = []

    def on(address: str, screen: dict[str, Any], **how: Any) -> Viewer:
        viewer = Viewer(browser, address, **screen)
        opened.append(viewer)
        return viewer.open(**how)

    yield on
    for viewer in opened:
        viewer.close()


def assert_open_to_all(viewer: Viewer, state: str) -> None:
    """No violation that axe can find, and nothing to scroll sideways."""
    found = axe.Axe().run(viewer.page).response["violations"]
    bars = [(each["id"], [(node["target"], node["failureSummary"][:200]) for node in each["nodes"]]) for each in found]
    assert bars == [], state
    assert viewer.page.evaluate(SIDEWAYS) <= 1, state


def all_as_tables(viewer: Viewer) -> None:
    for tool in viewer.page.locator(".dx-table-tool:visible").all():
        tool.click()
    viewer.step()


def test_recorded_edited_refused_and_done(open_on: Any, server: str, screen: dict[str, Any]) -> None:
    viewer = open_on(server, screen)
    page = viewer.page
    page.wait_for_selector("[data-view=curves] svg.main-svg")
    assert_open_to_all(viewer, "recorded")
    for opener in page.locator("#player .dx-menu > button:visible").all():
        opener.click()
        assert_open_to_all(viewer, f"menu {opener.inner_text()}")
        page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    all_as_tables(viewer)
    assert_open_to_all(viewer, "tables, a node pinned")
    page.locator("#edit-lanes").click()
    assert_open_to_all(viewer, "editor")
    viewer.run("  ", until="error")
    assert_open_to_all(viewer, "refused")
    viewer.set_tokens("8")
    viewer.run("Hi")
    viewer.step()
    assert_open_to_all(viewer, "done")


def test_running_and_stopped(open_on: Any, slow_server: str, screen: dict[str, Any]) -> None:
    viewer = open_on(slow_server, screen)
    viewer.set_tokens("512")
    viewer.run("Tell a long story.", until="running")
    viewer.page.wait_for_selector("#player[data-state=running][data-drawn-step]")
    assert_open_to_all(viewer, "running")
    viewer.page.locator("#stop").click()
    viewer.page.wait_for_selector("#player[data-state=cancelled]")
    assert_open_to_all(viewer, "stopped")


def test_before_anything_has_run(open_on: Any, screen: dict[str, Any], tmp_path: Path) -> None:
    with running("tests/browser/empty_app.py", tmp_path / "log") as address:
        viewer = open_on(address, screen, drawn=False)
        viewer.page.wait_for_selector("#player.empty")
        assert_open_to_all(viewer, "empty")
        assert "type a prompt above and press Run" in viewer.page.locator("#player").inner_text()
        viewer.set_tokens("6")
        viewer.run("Hello.")
        viewer.step()
        viewer.page.close()  # before the server goes


def test_a_replay_file(open_on: Any, screen: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "replay.html"
    path.write_text(replay_html(read_comparison(EXAMPLE_FILE), recorded_events), encoding="utf-8")
    viewer = open_on(path.as_uri(), screen | {"offline": True})
    all_as_tables(viewer)
    viewer.page.keyboard.press("j")
    assert viewer.page.locator("[data-spoken]").text_content()
    assert_open_to_all(viewer, "replay, tables")


def test_every_picture_has_a_table_that_steps_with_it_and_is_remembered(viewer: Viewer) -> None:
    page = viewer.open().page
    page.wait_for_selector("[data-view=curves] svg.main-svg")
    all_as_tables(viewer)
    for view in page.locator(PICTURES).all():
        view.locator("table:visible, .dx-lines:visible, form:visible").first.wait_for()
        assert view.locator(".js-plotly-plot:visible").count() == 0
    page.keyboard.press("Home")
    for _ in range(3):
        step = viewer.step()
        tree = page.locator("[data-view=tree]")
        caption = tree.locator("caption").inner_text()
        drafted = int(re.search(r"(\d+) drafted tokens?", caption)[1])
        assert tree.locator("td[data-node]").count() == drafted + 2, "the root and the target's own token too"
        assert f"step {step + 1}: " in caption
        assert tree.locator("td[data-node=next]").count() == 1
        page.keyboard.press("ArrowRight")
    page.reload()
    page.wait_for_selector("#player[data-drawn-step]")
    tool = page.locator("[data-view=tree] .dx-table-tool")
    assert tool.get_attribute("aria-pressed") == "true"
    tool.click()
    page.wait_for_selector("[data-view=tree] svg.main-svg")
    assert page.locator("[data-view=tree] table:visible").count() == 0


def test_nodes_are_walked_pinned_and_said_by_keys(viewer: Viewer) -> None:
    page = viewer.open().page
    said = []
    for key in ("j", "j", "k", "j"):
        page.keyboard.press(key)
        said.append(page.locator("[data-spoken]").text_content())
    assert len(set(said)) == 2
    assert said[1] == said[3] != said[0]
    assert viewer.count("[data-view=tree] .dx-ring") == 1
    page.keyboard.press("Enter")
    assert viewer.count("[data-view=tree] .dx-ring.pinned") == 1
    page.keyboard.press("Escape")
    page.mouse.move(3, 3)
    assert viewer.count(".dx-ring.pinned") == 0
    before = page.locator("#player [role=tab][aria-selected=true]").inner_text()
    page.keyboard.press("v")
    viewer.step()
    assert page.locator("#player [role=tab][aria-selected=true]").inner_text() != before
    page.keyboard.press("Shift+V")
    assert page.locator("#player [role=tab][aria-selected=true]").inner_text() == before


def test_the_tab_key_reaches_everything_visibly_and_leaves_again(viewer: Viewer) -> None:
    page = viewer.open().page
    page.wait_for_selector("[data-view=curves] svg.main-svg")
    wanted = page.evaluate(f"window.wanted = ({TABBABLE})(); wanted.length")
    page.evaluate("document.activeElement.blur()")
    reached, unseen = set(), []
    for _ in range(wanted + 20):
        page.keyboard.press("Tab")
        place, visible, name = page.evaluate(
            """() => {
              const at = document.activeElement;
              const framed = [at, at.closest('.dx-scrub')].filter(Boolean).map(each => getComputedStyle(each));
              const seen = framed.some(look => look.outlineStyle !== 'none' && parseFloat(look.outlineWidth) >= 2);
              return [window.wanted.indexOf(at), seen, at.outerHTML.slice(0, 90)];
            }"""
        )
        reached.add(place)
        if place >= 0 and not visible:
            unseen.append(name)
    assert unseen == []
    left = [page.evaluate("at => window.wanted[at].outerHTML.slice(0, 120)", at) for at in set(range(wanted)) - reached]
    assert left == []


def test_what_scrolls_in_its_frame_scrolls_by_keys(browser: Any, server: str) -> None:
    viewer = Viewer(browser, server, viewport={"width": 390, "height": 844})
    page = viewer.open().page
    before = viewer.step()
    frame = page.locator("[data-view=tree] .dx-scroller")
    frame.focus()
    page.keyboard.press("Shift+ArrowRight")
    assert frame.evaluate("frame => frame.scrollLeft") > 0
    assert viewer.step() == before
    viewer.close()


def test_a_step_is_narrated_once_and_not_while_it_plays(viewer: Viewer) -> None:
    page = viewer.open().page
    page.keyboard.press("Home")
    viewer.step()
    page.evaluate(
        """() => { window.told = 0;
          new MutationObserver(() => { window.told += 1; }).observe(document.querySelector('[data-narration]'),
            { childList: true, characterData: true, subtree: true }); }"""
    )
    for _ in range(3):
        page.keyboard.press("ArrowRight")
        viewer.step()
    assert page.evaluate("window.told") == 3
    narration = page.locator("[data-narration]")
    assert narration.get_attribute("aria-live") == "polite"
    page.keyboard.press(" ")
    assert narration.get_attribute("aria-live") == "off"
    page.keyboard.press(" ")
    assert narration.get_attribute("aria-live") == "polite"


def test_states_are_spoken(viewer: Viewer) -> None:
    page = viewer.open().page
    assert page.locator("[data-spoken]").text_content() == ""
    page.evaluate(
        """() => { window.spoken = [];
          const box = document.querySelector('[data-spoken]');
          new MutationObserver(() => window.spoken.push(box.textContent)).observe(box, { childList: true }); }"""
    )
    viewer.set_tokens("0")
    viewer.run("Hi", until="error")
    viewer.set_tokens("12")
    viewer.run("Hi")
    spoken = page.evaluate("window.spoken")
    assert any("whole number" in words for words in spoken)
    assert spoken[-1].startswith("done")
    assert len(spoken) < 12, "not with every token"


def test_zoom_survives_stepping_and_a_double_click_ends_it(viewer: Viewer) -> None:
    page = viewer.open().page
    drawing = page.locator("[data-view=tree] .dx-sheet")
    page.keyboard.press("Home")
    viewer.step()
    scale = "box => box.getBoundingClientRect().width / box.querySelector('.main-svg').clientWidth"
    assert drawing.evaluate(scale) == pytest.approx(1, abs=0.02)
    page.locator("[data-view=tree]").get_by_role("button", name="Larger picture").click()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
        viewer.step()
        page.wait_for_function(
            "() => document.querySelector('[data-view=tree] .dx-scaled').style.transform === 'scale(1.4)'"
        )
        assert drawing.evaluate(scale) == pytest.approx(1.4, abs=0.03)
    node = page.locator(".dx-step.now .dx-t").first
    node.hover()
    ring, text = (page.locator(css).first.bounding_box() for css in ("[data-view=tree] .dx-ring", "[data-view=tree]"))
    assert text["x"] <= ring["x"] + ring["width"] / 2 <= text["x"] + text["width"]
    page.locator("[data-view=tree] .dx-scroller").dblclick(position={"x": 5, "y": 5})
    page.wait_for_function("() => !document.querySelector('[data-view=tree] .dx-scaled').style.transform")


def test_four_times_as_large_it_still_fits(browser: Any, server: str) -> None:
    """320 pixels are 400 % of 1280."""
    viewer = Viewer(browser, server, viewport={"width": 320, "height": 256}, reduced_motion="reduce")
    page = viewer.open().page
    assert page.evaluate(SIDEWAYS) <= 1
    assert page.evaluate("getComputedStyle(document.querySelector('.dx-sheet')).transitionDuration") == "0s"
    deck = page.locator(".dx-deck").bounding_box()
    assert deck["height"] < 160, "what sticks to the foot leaves room to read"
    viewer.close()


def test_type_follows_the_browser_and_nothing_is_cut_off(browser: Any, server: str) -> None:
    """A browser that is set to 32 pixels instead of 16."""
    flags = ["--no-sandbox", "--disable-gpu", "--blink-settings=defaultFontSize=32"]
    large = browser.browser_type.launch(executable_path=str(CHROMIUM), args=flags)
    viewer = Viewer(large, server)
    page = viewer.open().page
    assert page.locator("[data-narration]").evaluate("box => parseFloat(getComputedStyle(box).fontSize)") == 32
    page.wait_for_function("() => document.querySelector('[data-view=tree] .dx-scaled').style.transform === 'scale(2)'")
    for width in (1280, 640):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_timeout(300)
        viewer.step()
        assert page.evaluate(SIDEWAYS) <= 1
        cut = page.evaluate(
            """() => [...document.querySelectorAll('#player button, #player h2, #player h3, .dx-nums dd, #run')]
              .filter(each => each.offsetParent && each.scrollWidth > each.clientWidth + 2 && each.clientWidth
                && getComputedStyle(each).overflow !== 'visible').map(each => each.outerHTML.slice(0, 90))"""
        )
        assert cut == []
    viewer.close()
    large.close()


@pytest.mark.parametrize("width", [1440, 390])
def test_nothing_jumps_while_a_run_streams(browser: Any, slow_server: str, width: int) -> None:
    viewer = Viewer(browser, slow_server, viewport={"width": width, "height": 900})
    page = viewer.open().page
    viewer.set_tokens("24")
    page.locator("#edit-lanes").click()
    viewer.run("Tell a long story.", until="running")
    page.evaluate(
        """() => { window.shift = 0;
          new PerformanceObserver(list => { for (const each of list.getEntries())
            if (!each.hadRecentInput) window.shift += each.value; }).observe({ type: 'layout-shift' }); }"""
    )
    page.wait_for_selector("#player[data-state=done]")
    viewer.step()
    assert page.evaluate("window.shift") < 0.1
    viewer.close()
