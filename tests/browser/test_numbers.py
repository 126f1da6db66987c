"""The cost model and the numbers across steps, as a viewer meets them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from explorer.figures import FIGURES
from explorer.figures.roofline import ROOFLINE
from explorer.figures.theme import THEMES
from explorer.player import script
from explorer.roofline import PRESETS, SIZES, Hardware, Workload, evaluated, speedup
from explorer.session import Studio
from explorer.trace import LosslessCheck
from explorer.trace_io import write
from tests.browser.viewer import Viewer
from tests.traces import make_comparison

CARD = ".dx-overviews > div:has([data-view='roofline'])"
RESULT = f"{CARD} .dx-cost .dx-table"


@pytest.fixture(scope="module")
def lanes() -> list[dict[str, Any]]:
    """What the page was given of the example."""
    return ROOFLINE.build(Studio().example(), THEMES["light"], "all")["cost"]["lanes"]


def work_of(lane: dict[str, Any]) -> Workload:
    own = {name: lane[name] for name in Workload.__dataclass_fields__}
    return Workload(**own | {"rows": tuple(lane["rows"]), "cached": tuple(lane["cached"])})


def shown(viewer: Viewer) -> dict[str, float]:
    """Speed-up by the model, by lane, as the page shows it."""
    rows = viewer.page.locator(f"{RESULT} tbody tr").evaluate_all(
        "rows => rows.map(row => [row.cells[0].innerText, row.cells[row.cells.length - 1].innerText])"
    )
    return {name: float(text.split("×")[0]) for name, text in rows}


def field(viewer: Viewer, name: str) -> Any:
    return viewer.page.locator(f"{CARD} [data-cost={name}]").first


def open_card(viewer: Viewer) -> None:
    viewer.open()
    viewer.page.wait_for_selector(f"{RESULT} tbody tr")


def test_the_page_works_out_what_python_does(viewer: Viewer, lanes: list[dict[str, Any]]) -> None:
    open_card(viewer)
    hardware, model = viewer.page.get_by_label("Hardware: start from"), viewer.page.get_by_label("Model: start from")
    for place in (PRESETS[0], PRESETS[-2]):
        hardware.select_option(place.name)
        for size in SIZES[:2]:
            model.select_option(size.name)
            found = shown(viewer)
            for lane in lanes:
                assert abs(found[lane["title"]] - speedup(work_of(lane), place, size)) < 0.006


def test_numbers_of_ones_own_count_at_once(viewer: Viewer, lanes: list[dict[str, Any]]) -> None:
    open_card(viewer)
    viewer.page.get_by_label("Model: start from").select_option(SIZES[0].name)
    for name, text in (("bandwidth", "1000"), ("rate", "20"), ("overhead", "7"), ("batch", "64")):
        field(viewer, name).fill(text)
    field(viewer, "overlap").select_option("max")
    own, found = Hardware("own", 1000, 20, None, 7), shown(viewer)
    for lane in lanes:
        work = work_of(lane)
        times = [
            evaluated(own.names(2) | each.names(SIZES[0]) | {"batch": 64})["time_ms"] for each in (work.plain(), work)
        ]
        assert abs(found[lane["title"]] - times[0] / times[1]) < 0.006
    words = viewer.page.locator(".dx-cost-words").inner_text()
    assert "compute-bound" in words
    assert "The hardware of your numbers" in words


def test_what_is_no_number_is_refused_in_a_sentence_and_nothing_is_lost(viewer: Viewer) -> None:
    open_card(viewer)
    before = shown(viewer)
    for wrong in ("", "-3", "0"):
        field(viewer, "bandwidth").fill(wrong)
        assert viewer.page.locator(".dx-cost-problem").is_visible()
        assert "must be a number from" in viewer.page.locator(".dx-cost-problem").inner_text()
        assert shown(viewer) == before
    field(viewer, "layers").fill("12")
    assert field(viewer, "bandwidth").input_value() == "0"
    assert field(viewer, "bandwidth").get_attribute("aria-invalid") == "true"
    assert viewer.page.locator(".dx-cost-problem").is_visible()
    field(viewer, "bandwidth").fill("50")
    assert not viewer.page.locator(".dx-cost-problem").is_visible()


def test_both_languages_round_alike(viewer: Viewer) -> None:
    values = [2.125, 85 / 40, 2.375, 0.5, 1.5, 2.5, 0.125, 1.005, 2.675, 0.0, 1e-9, 12.345, 99.995, 1 / 3]
    for digits in (0, 1, 2):
        found = viewer.page.evaluate(
            f"values => {{ {script('player/dom')}; return values.map(value => number(value, {digits})); }}", values
        )
        assert found == [f"{value:.{digits}f}" for value in values]


def test_tabs_are_named_before_their_views_are_fetched(viewer: Viewer) -> None:
    viewer.open()
    titles = {view.name: view.title for view in FIGURES}
    for tab in viewer.page.locator(".dx-inspect .dx-tab[data-tab]").all():
        assert tab.inner_text() == titles[str(tab.get_attribute("data-tab"))]


def test_the_keyboard_opens_formula_and_definitions(viewer: Viewer) -> None:
    open_card(viewer)
    for summary, sight in (
        (f"{CARD} .dx-cost-formula summary", "max(target bytes ÷ bandwidth, target operations ÷ rate)"),
        (".dx-overviews > div:has([data-view='acceptance']) .dx-terms summary", "mean acceptance length"),
    ):
        viewer.page.get_by_label("Hardware: start from").select_option(PRESETS[-1].name)
        viewer.page.locator(summary).focus()
        viewer.page.keyboard.press("Enter")
        assert sight in viewer.page.locator(summary).locator("xpath=..").inner_text()


def test_a_lane_says_why_it_is_slower(viewer: Viewer) -> None:
    viewer.open()
    card = viewer.page.locator(".dx-overviews > div:has([data-view='timeline'])")
    card.locator(".dx-verdicts li").first.wait_for()
    words = card.locator(".dx-verdicts").inner_text()
    assert "Lookahead is slower than plain decoding" in words
    assert "plain ones" in words
    card.get_by_role("button", name="by phase, a token").click()
    viewer.page.wait_for_function(
        '() => /Where the time of a token goes/.test(document.querySelector("[data-view=timeline] .dx-plot").ariaLabel)'
    )


def test_the_first_token_that_differs_is_marked(viewer: Viewer, tmp_path: Path) -> None:
    comparison = make_comparison()
    check = LosslessCheck(equal=False, first_difference=4, margin=0.5)
    write(comparison.model_copy(update={"lossless": {"eagle": check}}), tmp_path / "parted.json")
    viewer.open().page.locator("input[type=file]").first.set_input_files(tmp_path / "parted.json")
    marked = viewer.page.locator(".dx-t.parting")
    marked.wait_for()
    assert marked.count() == 1
    assert marked.locator("xpath=ancestor::article").get_attribute("data-lane") == "eagle"
    tokens = viewer.page.locator(".dx-lane[data-lane=eagle] .dx-t")
    assert tokens.nth(4).get_attribute("class") == marked.get_attribute("class")
    assert "logit margin 0.5" in str(marked.get_attribute("title"))
