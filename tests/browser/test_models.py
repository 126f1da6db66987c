"""The model picker in a real Chromium: a hub with a tiny model under a pair's name, and one that has nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from explorer.pairs import PAIRS
from tests.browser.conftest import running
from tests.browser.viewer import Viewer
from tests.hub_server import FakeHub

TINY = Path(__file__).resolve().parents[1] / "data" / "conformance" / "tiny-target"
GOOD, MISSING = PAIRS[0], PAIRS[1]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("picker")
    hub = FakeHub()
    hub.add(GOOD.target.name, TINY, str(GOOD.target.revision))
    with pytest.MonkeyPatch.context() as patch, hub.serve() as endpoint:
        patch.setenv("HF_ENDPOINT", endpoint)
        patch.setenv("HF_HUB_CACHE", str(folder / "cache"))
        patch.setenv("DECODING_EXPLORER_HOME", str(folder / "home"))
        patch.delenv("DECODING_EXPLORER_OFFLINE", raising=False)
        with running("app.py", folder / "log") as found:
            yield found


@pytest.fixture
def viewer(browser: Any, address: str) -> Iterator[Viewer]:
    one = Viewer(browser, address)
    yield one
    one.close()


def pick(viewer: Viewer, name: str) -> str:
    """Choose a model and load it; what the picker says in the end."""
    page = viewer.page
    if page.locator("#model-choice").is_hidden():
        page.locator("#model-line").click()
    page.select_option("#model-choice", name)
    page.locator("#model button").click()
    page.wait_for_function(
        "() => { const box = document.querySelector('.dx-models');"
        " return !box.dataset.busy && box.querySelector('[role=status]').textContent; }",
        timeout=60_000,
    )
    return str(page.locator("#model [role=status]").inner_text())


def test_a_model_that_cannot_be_had_leaves_the_old_one_answering(viewer: Viewer) -> None:
    viewer.open().run("Count to ten.")
    said = pick(viewer, MISSING.id)
    assert f"There is no model {MISSING.target.name} on the Hugging Face hub" in said
    assert "toy model" in viewer.page.locator("#model-line").inner_text()
    viewer.run("Count to three.")
    assert viewer.count("#player [data-lane]") == 4


def test_another_model_answers_and_the_lanes_follow(viewer: Viewer) -> None:
    page = viewer.open().page
    page.locator("#model-line").click()
    labels = page.eval_on_selector_all("#model-choice option", "all => all.map(o => [o.textContent, o.disabled])")
    assert labels[0][0].endswith("(answers now)")
    assert len(labels) == len(PAIRS) + 2
    assert all(("of memory" in text) == disabled for text, disabled in labels)
    assert pick(viewer, GOOD.id) == f"{GOOD.title} answers now."
    assert GOOD.title in page.locator("#model-line").inner_text()
    page.wait_for_function("() => document.querySelectorAll('.dx-chip').length === 2")
    chips = page.eval_on_selector_all("#setup .dx-chip", "all => all.map(chip => chip.textContent)")
    assert [text.split(",")[0] for text in chips] == ["Autoregressive", "Lookahead"]
    page.keyboard.press("Escape")
    assert page.locator("#model-choice").is_hidden()


def test_the_panel_holds_its_place_on_a_phone(browser: Any, address: str) -> None:
    viewer = Viewer(browser, address, viewport={"width": 375, "height": 740})
    page = viewer.open().page
    page.locator("#model-line").click()
    box = page.locator(".dx-models-panel").bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 375
    page.mouse.click(200, 700)
    assert page.locator("#model-choice").is_hidden()
    viewer.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_in_the_picker_bars_anybody(browser: Any, address: str, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    viewer = Viewer(browser, address, color_scheme=scheme)
    page = viewer.open().page
    page.locator("#model-line").click()
    found = axe.Axe().run(page, context="#model").response["violations"]
    assert [(each["id"], each["nodes"][0]["html"][:120]) for each in found] == []
    viewer.close()
