"""The replay file in a real Chromium, opened from disk with the network off: it plays, and it asks for nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from explorer.csv_tables import TABLES, csv_text
from explorer.figures.serve import frames
from explorer.reel import reel_of
from explorer.replay import BLOCK_STEPS, replay_html, without_paths
from explorer.runs import RunStore
from explorer.session import EXAMPLE_FILE, recorded_events
from explorer.trace import Comparison
from explorer.trace_io import read_comparison
from tests.browser.test_share import picture, saved, words_of
from tests.browser.viewer import Viewer
from tests.test_replay import hostile_comparison

Open = Callable[..., Viewer]


@pytest.fixture(scope="session")
def example() -> str:
    return replay_html(read_comparison(EXAMPLE_FILE), recorded_events)


@pytest.fixture
def play(browser: Any, tmp_path: Path) -> Iterator[Open]:
    """Opens the text of a replay as a file; afterwards nothing may have been asked for, and nothing gone wrong."""
    viewers: list[Viewer] = []
    asked: list[str] = []

    def opened(text: str, drawn: bool = True, **options: Any) -> Viewer:
        path = tmp_path / "replay.html"
        path.write_text(text, encoding="utf-8")
        viewer = Viewer(browser, path.as_uri(), offline=True, **options)
        viewers.append(viewer)
        viewer.page.on("request", lambda request: asked.append(request.url))
        return viewer.open() if drawn else viewer

    yield opened
    for viewer in viewers:
        viewer.close()
    assert [url for url in asked if not url.startswith((tmp_path.as_uri(), "blob:", "data:"))] == []


def test_all_views_of_all_lanes_are_drawn(play: Open, example: str) -> None:
    viewer = play(example)
    page = viewer.page
    assert viewer.data("state") == "recorded"
    for number, trace in enumerate(read_comparison(EXAMPLE_FILE).lanes, start=1):
        page.keyboard.press(str(number))
        viewer.step()
        assert viewer.data("selectedLane") == trace.lane
        tabs = page.locator(".dx-inspect [role=tab]")
        for tab in range(tabs.count()):
            tabs.nth(tab).click()
            viewer.step()
            shown = page.locator(".dx-inspect .dx-figure:not([hidden])")
            assert shown.count() == 2
            assert not any(note for note in shown.locator(".dx-note:not([hidden])").all_inner_texts())
    page.wait_for_function("document.querySelectorAll('.dx-overviews .js-plotly-plot').length >= 4")


def test_stepping_shows_what_the_server_would_show(play: Open, example: str) -> None:
    store = RunStore()
    run = store.new("replay", recorded=True)
    lane = max(
        reel_of(run, recorded_events(read_comparison(EXAMPLE_FILE))).value["lanes"], key=lambda one: len(one["steps"])
    )
    assert len(lane["steps"]) > 2 * BLOCK_STEPS
    viewer = play(example)
    page = viewer.page
    page.locator(f"[data-lane='{lane['id']}'] .dx-name").click()
    page.keyboard.press("Home")
    for step in range(BLOCK_STEPS + 2):
        assert viewer.step() == step
        asked = {"run": "replay", "lane": lane["id"], "lo": step, "hi": step + 1, "views": ["tree"], "theme": "light"}
        wanted = frames(store, asked)["views"]["tree"]["steps"][0]["data"]
        drawn = page.evaluate("document.querySelector('.dx-inspect [data-view=tree] .js-plotly-plot').data")
        for one, other in zip(drawn, wanted, strict=True):
            for name in ("x", "y", "text", "customdata", "marker", "line"):
                assert one.get(name) == json.loads(json.dumps(other.get(name)))
        page.keyboard.press("ArrowRight")
    page.keyboard.press("End")
    assert viewer.step() == len(lane["steps"]) - 1


def test_the_theme_follows_the_browser(play: Open, example: str) -> None:
    viewer = play(example, color_scheme="dark")
    page = viewer.page
    colours = "JSON.stringify(document.querySelector('.dx-inspect .js-plotly-plot').data)"
    viewer.step()
    dark, ground = page.evaluate(colours), page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    page.emulate_media(color_scheme="light")
    page.wait_for_function(f"before => {colours} !== before", arg=dark)
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") != ground


def test_hostile_texts_stay_texts(play: Open) -> None:
    viewer = play(replay_html(hostile_comparison(), recorded_events))
    page = viewer.page
    page.keyboard.press("Home")
    for step in range(int(viewer.data("steps") or 0)):
        assert viewer.step() == step
        page.keyboard.press("ArrowRight")
    assert page.locator("main b:text-is('bold'), main script, main img, main iframe").count() == 0
    assert "<!--<script>" in str(page.locator("#asked").text_content())
    assert page.evaluate("typeof window.hacked") == "undefined"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 1024, 390])
def test_no_accessibility_violation_and_no_sideways_scrolling(
    play: Open, example: str, width: int, scheme: str
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    viewer = play(example, viewport={"width": width, "height": 900}, color_scheme=scheme)
    viewer.step()
    found = axe.Axe().run(viewer.page).response["violations"]
    assert [(one["id"], [node["target"] for node in one["nodes"]]) for one in found] == []
    size = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert viewer.page.evaluate(size) <= 1


def test_the_recording_can_be_taken_out(play: Open, example: str, tmp_path: Path) -> None:
    viewer = play(example)
    with viewer.page.expect_download() as download:
        viewer.save("recording (JSON)")
    taken = tmp_path / download.value.suggested_filename
    download.value.save_as(taken)
    assert isinstance(read_comparison(taken), Comparison)
    assert viewer.page.get_by_role("button", name="replay").count() == 0


def test_a_damaged_file_says_so(play: Open, example: str) -> None:
    broken = re.sub(r'(id="block-index">).{40}', r"\1", example)
    viewer = play(broken, drawn=False)
    viewer.page.goto(viewer.server)
    viewer.page.get_by_text("the file may be damaged").wait_for()
    index_only = re.sub(r'(id="block-\d+">)[^<]*', r"\1AAAA", example)
    viewer = play(index_only, drawn=False)
    viewer.page.goto(viewer.server)
    viewer.page.wait_for_selector("#player .dx-note:has-text('may be damaged')")
    assert viewer.count("#player [data-lane]") == 4


def test_the_page_makes_the_file(viewer: Viewer, play: Open, tmp_path: Path) -> None:
    viewer.open()
    with viewer.page.expect_download() as download:
        viewer.save("replay (HTML)")
    assert download.value.suggested_filename.endswith(".html")
    saved = tmp_path / "saved.html"
    download.value.save_as(saved)
    other = play(saved.read_text(encoding="utf-8"))
    assert other.count("#player [data-lane]") == viewer.count("#player [data-lane]")
    assert other.data("run") == "replay"


def test_pictures_and_tables_can_be_taken_along_offline(play: Open, example: str) -> None:
    viewer = play(example)
    name, drawing = picture(viewer, "tree", "SVG")
    assert name.endswith("-tree.svg")
    assert "Draft tree" in words_of(drawing)
    assert picture(viewer, "tree", "PNG")[1].startswith(b"\x89PNG")
    for table in TABLES:
        name, text = saved(viewer, lambda table=table: viewer.save(f"numbers by {table.removesuffix('s')}"))
        assert name == f"{table}.csv"
        assert text.decode("utf-8-sig").replace("\r\n", "\n") == csv_text(
            without_paths(read_comparison(EXAMPLE_FILE)), table
        ).replace("\r\n", "\n")
    assert viewer.page.get_by_role("button", name="copy link").count() == 0, "a file has no address for others"


def test_the_panel_and_the_algorithm_play_from_the_file(example: str, play: Open) -> None:
    page = play(example).page
    page.wait_for_selector("[data-aside=code] li.ran")
    words = set()
    for _ in range(12):
        page.keyboard.press("j")
        words.add(page.locator("[data-aside=details] [data-why]").inner_text())
    assert len(words) > 3
    page.keyboard.press(".")
    assert page.locator("[data-aside=code] li.lit").first.get_attribute("data-phase") == "draft"
