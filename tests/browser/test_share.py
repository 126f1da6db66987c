"""Taking things along and coming back: links, remembered settings, playback speed, pictures, tables."""

from __future__ import annotations

import csv
import io
import json
import struct
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.browser.test_page import HOSTILE
from tests.browser.viewer import Viewer

COPIED = "[...document.querySelectorAll('.dx-actions button')].some((one) => one.textContent === 'copied')"


def copied(viewer: Viewer) -> str:
    """The link that the button "copy link" puts into the clipboard."""
    viewer.context.grant_permissions(["clipboard-read", "clipboard-write"])
    viewer.page.get_by_role("button", name="copy link").click()
    viewer.page.wait_for_function(COPIED)
    return str(viewer.page.evaluate("navigator.clipboard.readText()"))


def saved(viewer: Viewer, press: Any) -> tuple[str, bytes]:
    with viewer.page.expect_download() as download:
        press()
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


def picture(viewer: Viewer, view: str, kind: str) -> tuple[str, bytes]:
    """A choice of the menu "image" of a view."""
    figure = viewer.page.locator(f"[data-view={view}]")
    figure.get_by_role("button", name="image").click()
    return saved(viewer, figure.get_by_role("button", name=kind, exact=True).click)


def words_of(picture: bytes) -> str:
    """All text of an SVG; it must be sound XML."""
    return " ".join("".join(node.itertext()) for node in ElementTree.fromstring(picture).iter() if "text" in node.tag)


def two_lanes(viewer: Viewer) -> None:
    """Lookahead with a window of 3 beside EAGLE, 14 tokens; the editor is open then."""
    page = viewer.page
    viewer.set_tokens("14")
    for _ in range(2):
        page.get_by_role("button", name="Remove lane 1").click()
    page.locator(".dx-lane-card").nth(1).get_by_label("window").fill("3")
    page.wait_for_function("document.getElementById('run').textContent.includes('Run 2 lanes')")


def test_a_link_brings_up_the_same_view_elsewhere(viewer: Viewer, slow_viewer: Viewer) -> None:
    """The other server knows nothing of the first one."""
    viewer.open()
    two_lanes(viewer)
    viewer.run("Say <b>hi</b> & 100%\n\u4f60\u597d?")
    viewer.page.keyboard.press("2")
    viewer.page.keyboard.press("Home")
    viewer.page.keyboard.press("ArrowRight")
    assert viewer.step() == 1
    link = copied(viewer)
    assert parse_qs(urlsplit(link).query)["lane"] == ["eagle", "lookahead:window=3"]
    slow_viewer.page.goto(slow_viewer.server + "?" + urlsplit(link).query)
    slow_viewer.page.wait_for_selector("#player[data-state=done][data-step='1']")
    assert slow_viewer.step() == 1
    assert slow_viewer.data("selectedLane") == viewer.data("selectedLane") == "lookahead"
    shown = ["#prompt textarea", "[data-lane=lookahead] .dx-stream", ".dx-chips", ".dx-settings-words"]
    read = "(css) => css.map((one) => document.querySelector(one).value ?? document.querySelector(one).textContent)"
    assert slow_viewer.page.evaluate(read, shown) == viewer.page.evaluate(read, shown)
    assert slow_viewer.page.evaluate("localStorage.getItem('dx-setup')") is None, "the viewer chose nothing"


def test_the_address_follows_a_link_and_forgets_it_with_the_next_run(viewer: Viewer) -> None:
    page = viewer.page
    page.goto(viewer.server + "?v=1&open=example&show=medusa&step=4&__theme=light")
    page.wait_for_selector("#player[data-selected-lane=medusa][data-step='3']")
    assert viewer.data("state") == "recorded"
    page.keyboard.press("ArrowRight")
    page.wait_for_url("**/?v=1&open=example&show=medusa&step=5&__theme=light")
    viewer.set_tokens("4")
    viewer.run("Hi")
    page.wait_for_url("**/?__theme=light")


def test_a_link_with_bad_values_says_so_and_runs_the_rest(viewer: Viewer) -> None:
    hostile = "%3Cimg+src%3Dx+onerror%3D%22window.hacked=1%22%3E%00"
    query = f"v=1&prompt={hostile}&lane=autoregressive&lane=%3Cscript%3E&max_new_tokens=4&show=%3Cb%3E&step=99999"
    viewer.page.goto(viewer.server + "?" + query)
    viewer.page.wait_for_selector("#player[data-state=done]")
    assert "There is no method '<script>'" in viewer.page.locator(".dx-link-note").inner_text()
    assert viewer.count("#player [data-lane]") == 1
    assert viewer.page.evaluate("window.hacked === undefined")
    viewer.run("Hi")
    assert viewer.count(".dx-link-note") == 0, "the note was about the link"


def test_where_the_clipboard_is_refused_the_link_can_be_copied_by_hand(viewer: Viewer) -> None:
    viewer.open()
    viewer.page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('refused')); }")
    viewer.page.get_by_role("button", name="copy link").click()
    field = viewer.page.get_by_role("textbox", name="Link to this view")
    assert "open=example" in field.input_value()
    assert field.evaluate("(one) => one === document.activeElement && one.selectionEnd === one.value.length")
    field.press("Escape")
    assert viewer.page.get_by_role("button", name="copy link").evaluate("(one) => one === document.activeElement")


def setup_line(viewer: Viewer) -> str:
    return str(viewer.page.locator(".dx-setup-line").inner_text()).replace("close", "edit")


def test_lanes_settings_and_speed_are_remembered_until_they_are_reset(viewer: Viewer) -> None:
    viewer.open(drawn=False)
    first = setup_line(viewer)
    two_lanes(viewer)
    viewer.page.get_by_role("combobox", name="Speed").select_option("4")
    chosen = setup_line(viewer)
    page = viewer.open_again().page
    page.wait_for_function("document.getElementById('run').textContent.includes('Run 2 lanes')")
    assert setup_line(viewer) == chosen
    assert page.get_by_role("combobox", name="Speed").input_value() == "4"
    page.locator("#edit-lanes").click()
    page.get_by_role("button", name="reset").click()
    page.wait_for_function("document.getElementById('run').textContent.includes('Run 4 lanes')")
    viewer.open_again()
    assert setup_line(viewer) == first


def test_what_is_remembered_wrongly_does_no_harm(viewer: Viewer) -> None:
    viewer.open(drawn=False)
    first = setup_line(viewer)
    good = {"method": "medusa", "params": {"nodes": 9999, "tree": "<b>", "size": 3, "x": 1}}
    kept = {
        "lanes": [{"method": "gone"}, good, 7, None],
        "settings": {"seed": "3", "max_new_tokens": 0, "raw": 1, "top_k": 5},
    }
    for text in ("{", json.dumps(kept | {"version": 9})):
        viewer.page.evaluate("(text) => localStorage.setItem('dx-setup', text)", text)
        viewer.open_again()
        assert setup_line(viewer) == first
    viewer.page.evaluate("(text) => localStorage.setItem('dx-setup', text)", json.dumps(kept | {"version": 1}))
    page = viewer.open_again().page
    page.wait_for_function("document.getElementById('run').textContent.includes('Run 1 lane')")
    assert page.locator(".dx-chip").all_inner_texts() == ["Medusa"]
    assert page.locator(".dx-settings-words").inner_text() == "96 tokens \u00b7 greedy \u00b7 top k 5 \u00b7 seed 0"


def test_speed_by_keys_and_by_the_lanes_own_clock(viewer: Viewer) -> None:
    page = viewer.open().page
    speed = page.get_by_role("combobox", name="Speed")
    page.keyboard.press("-")
    assert speed.input_value() == "0.5"
    for _ in range(5):
        page.keyboard.press("+")
    assert speed.input_value() == "own"
    page.keyboard.press("Home")
    page.keyboard.press(" ")
    page.wait_for_function(
        "(({ step, steps }) => Number(step) === steps - 1)(document.getElementById('player').dataset)"
    )
    page.get_by_role("button", name="Play (space)").wait_for()
    viewer.step()


def test_pictures_explain_themselves(viewer: Viewer) -> None:
    page = viewer.open().page
    page.locator("input[data-scrub]").fill("11")
    viewer.step()
    name, drawing = picture(viewer, "tree", "SVG")
    assert name == "eagle-step-12-tree.svg"
    words = words_of(drawing)
    for said in ("Draft tree", "EAGLE", "step 12 of", "accepted draft", "Fibonacci", "SmolLM2-135M-Instruct", "seed 0"):
        assert said in words
    assert "foreignObject" not in drawing.decode()
    name, table = picture(viewer, "probs", "SVG")
    assert name == "eagle-step-12-probs.svg"
    for cell in page.locator("[data-view=probs] td").all_inner_texts():
        assert all(part in words_of(table) for part in cell.split())
    name, pixels = picture(viewer, "tree", "PNG")
    width, height = struct.unpack(">II", pixels[16:24])
    root = ElementTree.fromstring(drawing)
    assert (width, height) == (2 * int(root.attrib["width"]), 2 * int(root.attrib["height"]))


def test_hostile_tokens_stay_text_in_pictures_and_tables(viewer: Viewer) -> None:
    page = viewer.open().page
    viewer.set_tokens("6")
    viewer.run(HOSTILE)
    page.keyboard.press("3")
    viewer.step()
    for view in ("tree", "probs", "timeline"):
        page.locator(f"[data-view={view}] .dx-menu").wait_for()
        name, drawing = picture(viewer, view, "SVG")
        assert name.replace("-", "").replace(".", "").isalnum()
        tags = {node.tag.rsplit("}", 1)[-1] for node in ElementTree.fromstring(drawing).iter()}
        assert not tags & {"script", "foreignObject", "a", "img", "iframe"}
    for table in ("lane", "step"):
        name, text = saved(viewer, lambda table=table: viewer.save(f"numbers by {table}"))
        assert name.endswith(".csv")
        assert text.startswith(b"\xef\xbb\xbf")
        rows = list(csv.DictReader(io.StringIO(text.decode("utf-8-sig"), newline="")))
        assert {row["lane"] for row in rows} == {"autoregressive", "medusa", "eagle", "lookahead"}
    assert page.evaluate("window.hacked === undefined")
