"""The page in a real Chromium, on the toy model: what a viewer does from opening it to stepping through a run."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.viewer import Viewer

HOSTILE = (
    '<script>window.hacked = 1</script><img src=x onerror="window.hacked = 1"> ${window.hacked = 1} {{constructor}} '
    "\u202eright to left\u202c a\u0301\u0302 \u200f\u05d0\u05d1 \u0007\u0000 "
    "\U0001f469\u200d\U0001f469\u200d\U0001f467 </textarea>"
)


def test_first_paint_shows_the_recorded_example(viewer: Viewer) -> None:
    viewer.open()
    assert viewer.data("state") == "recorded"
    assert viewer.count("#player [data-lane]") == 4
    assert viewer.page.locator("#player .dx-state").inner_text() == "recorded example"
    assert "press Run for your own" in viewer.message()
    assert viewer.page.locator("[data-narration]").inner_text()
    assert viewer.count("[data-view=tree] .js-plotly-plot") == 1


def test_a_run_of_four_lanes(viewer: Viewer) -> None:
    viewer.open().run("Count to ten.")
    assert viewer.data("run") != "example"
    assert viewer.count("#player [data-lane]") == 4
    methods = viewer.page.eval_on_selector_all("#player [data-lane]", "rows => rows.map(row => row.dataset.method)")
    assert methods == ["autoregressive", "medusa", "eagle", "lookahead"]
    texts = viewer.page.eval_on_selector_all(
        "#player [data-lane]",
        "rows => rows.map(r => [...r.querySelectorAll('.dx-t')].map(t => t.textContent).join(''))",
    )
    assert len(set(texts)) == 1, "all lanes give the same text"
    assert viewer.page.locator("#stop").is_hidden()
    assert viewer.step() == int(viewer.data("steps") or 0) - 1


def test_stepping_by_keys(viewer: Viewer) -> None:
    page = viewer.open().page
    page.keyboard.press("Home")
    assert viewer.step() == 0
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert viewer.step() == 2
    page.keyboard.press("ArrowLeft")
    assert viewer.step() == 1
    first = page.locator("[data-narration]").inner_text()
    page.keyboard.press("End")
    assert viewer.step() == int(viewer.data("steps") or 0) - 1
    assert page.locator("[data-narration]").inner_text() != first
    page.keyboard.press("1")
    assert viewer.data("selectedLane") == "autoregressive"
    page.keyboard.press("ArrowDown")
    assert viewer.data("selectedLane") == "medusa"
    viewer.step()


def test_keys_stay_out_of_the_prompt_box(viewer: Viewer) -> None:
    page = viewer.open().page
    before = viewer.step()
    page.locator("#prompt textarea").click()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Home")
    page.keyboard.type(" 12")
    assert viewer.step() == before
    assert " 12" in page.locator("#prompt textarea").input_value()


def test_scrubbing_and_clicking_capsules(viewer: Viewer) -> None:
    page = viewer.open().page
    page.locator("input[data-scrub]").fill("5")
    assert viewer.step() == 5
    page.locator("[data-lane=medusa] .dx-step[data-step='3']").last.click()
    assert viewer.data("selectedLane") == "medusa"
    assert viewer.step() == 3
    assert viewer.count(".dx-step.now") == 1


def test_play_and_pause(viewer: Viewer) -> None:
    page = viewer.open().page
    page.keyboard.press("Home")
    page.keyboard.press(" ")
    page.wait_for_function("Number(document.getElementById('player').dataset.step) >= 2")
    page.keyboard.press(" ")
    assert page.get_by_role("button", name="Play (space)").is_visible()


def test_every_view_of_every_lane_draws(viewer: Viewer) -> None:
    page = viewer.open().page
    for lane in page.eval_on_selector_all("#player [data-lane]", "rows => rows.map(row => row.dataset.lane)"):
        page.locator(f"[data-lane='{lane}'] .dx-name").click()
        viewer.step()
        tabs = "tabs => tabs.map(tab => tab.dataset.tab)"
        for tab in page.eval_on_selector_all("#player .dx-panels [role=tab]", tabs):
            page.locator(f"[data-tab={tab}]").click()
            viewer.step()
            figure = page.locator(f"[data-view={tab}]")
            figure.wait_for(state="visible")
            assert figure.locator("svg.main-svg, table, .dx-note:not([hidden])").count() > 0
    for name in ("timeline", "race"):
        page.wait_for_selector(f"[data-view={name}] svg.main-svg")


def test_hover_links_and_pins(viewer: Viewer) -> None:
    page = viewer.open().page
    token = page.locator(".dx-step.now .dx-t.draft").first
    token.hover()
    page.wait_for_selector(".dx-t.linked")
    token.click()
    page.mouse.move(2, 2)
    assert viewer.count(".dx-t.linked") == 1
    page.keyboard.press("Escape")
    assert viewer.count(".dx-t.linked") == 0


def test_hostile_text_stays_text(viewer: Viewer) -> None:
    viewer.open().run(HOSTILE)
    assert viewer.page.evaluate("window.hacked === undefined")
    assert viewer.count("#player script, #player img") == 0


@pytest.mark.parametrize(
    ("prompt", "tokens", "sentence"),
    [("   ", "96", "prompt is empty"), ("Hi", "0", "must be a whole number from 1 to 512"), ("Hi", "513", "1 to 512")],
)
def test_bad_input_gets_a_sentence_and_keeps_the_earlier_run(
    viewer: Viewer, prompt: str, tokens: str, sentence: str
) -> None:
    viewer.open()
    viewer.set_tokens(tokens)
    viewer.run(prompt, until="error")
    assert sentence in viewer.message()
    assert viewer.count("#player [data-lane]") == 4
    viewer.set_tokens("8")
    viewer.run("Hi")


def test_two_lanes_of_one_method(viewer: Viewer) -> None:
    page = viewer.open().page
    page.locator("#edit-lanes").click()
    while page.get_by_role("button", name="Remove lane 2").is_enabled():
        page.get_by_role("button", name="Remove lane 2").click()
        if viewer.count(".dx-lane-card") == 2:
            break
    page.locator("[data-method-choice]").nth(0).select_option("lookahead")
    page.locator("[data-method-choice]").nth(1).select_option("lookahead")
    page.locator(".dx-lane-card").nth(1).get_by_label("window").fill("3")
    page.wait_for_function("document.getElementById('run').textContent.includes('Run 2 lanes')")
    viewer.set_tokens("12")
    viewer.run("Twice.")
    rows = page.eval_on_selector_all(
        "#player [data-lane]", "rows => rows.map(row => [row.dataset.lane, row.dataset.method])"
    )
    assert len({lane for lane, _ in rows}) == 2
    assert [method for _, method in rows] == ["lookahead", "lookahead"]


@pytest.mark.parametrize("width", [390, 1024, 1440])
def test_nothing_scrolls_sideways(browser: Any, server: str, width: int) -> None:
    viewer = Viewer(browser, server, viewport={"width": width, "height": 844})
    viewer.open()
    for lane in ("1", "2", "3", "4"):
        viewer.page.keyboard.press(lane)
        viewer.step()
        extra = viewer.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert extra <= 1
    viewer.close()


def test_dark_and_light_follow_the_browser(browser: Any, server: str) -> None:
    grounds = []
    for scheme in ("light", "dark"):
        viewer = Viewer(browser, server, color_scheme=scheme)
        viewer.open()
        grounds.append(viewer.page.evaluate("getComputedStyle(document.querySelector('.dx-lane')).backgroundColor"))
        viewer.close()
    assert grounds[0] != grounds[1]


@pytest.mark.parametrize(("scheme", "width"), [("light", 1440), ("dark", 390)])
def test_nothing_that_a_machine_can_find_bars_anybody(browser: Any, server: str, scheme: str, width: int) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    viewer = Viewer(browser, server, color_scheme=scheme, viewport={"width": width, "height": 900})
    viewer.open().page.locator("#edit-lanes").click()
    viewer.page.wait_for_selector("[data-view=race] svg.main-svg")
    found = axe.Axe().run(viewer.page, context="#player, #setup").response["violations"]
    assert [(each["id"], [node["target"] for node in each["nodes"]]) for each in found] == []
    viewer.close()


def test_arrow_keys_work_right_after_pressing_run(viewer: Viewer) -> None:
    viewer.open().set_tokens("8")
    viewer.run("Hello.")
    last = viewer.step()
    viewer.page.keyboard.press("ArrowLeft")
    assert viewer.step() == last - 1


def test_a_made_up_question_to_the_server_functions(viewer: Viewer) -> None:
    viewer.open()
    answers = viewer.page.evaluate(
        """async () => {
          const player = window.gradio_config.components.find((c) => c.props.elem_id === 'player');
          const ask = (fn_name, data) => fetch('gradio_api/component_server', {
            method: 'POST', headers: {'Content-Type': 'application/json'},
            body: JSON.stringify({data, fn_name, component_id: player.id, session_hash: 'made-up'}),
          }).then(async (answer) => [answer.status, await answer.json()]);
          const frames = {run: 'nobody', lane: 'medusa', lo: 0, hi: 4, views: ['tree'], theme: 'light'};
          return Promise.all([
            ask('frames', frames), ask('frames', {...frames, run: 'example', lo: -5, hi: 1e9}),
            ask('frames', null), ask('frames', [1, 2]), ask('overview', {run: {}, view: 7}), ask('recording', 'x'),
          ]);
        }"""
    )
    for status, answer in answers:
        assert status == 200
        assert answer["ok"] is False
        assert answer["error"].endswith(".")


def test_download_and_open_again(viewer: Viewer, tmp_path: Any) -> None:
    page = viewer.open().page
    with page.expect_download() as waiting:
        viewer.save("recording (JSON)")
    path = tmp_path / waiting.value.suggested_filename
    waiting.value.save_as(path)
    page.locator("input[type=file]").set_input_files(path)
    page.wait_for_function("document.getElementById('player').dataset.run !== 'example'")
    assert viewer.data("state") == "recorded"
    assert viewer.count("#player [data-lane]") == 4
    viewer.step()


@pytest.mark.parametrize("keys", ["Shift+Enter", "Control+Enter"])
def test_the_prompt_box_runs_by_keys(viewer: Viewer, keys: str) -> None:
    page = viewer.open().page
    page.locator("#prompt textarea").fill("By keys")
    page.locator("#prompt textarea").press(keys)
    page.wait_for_function("document.getElementById('player').dataset.run !== 'example'")
    page.wait_for_selector("#player[data-state=done]")
    assert page.locator("#prompt textarea").input_value() == "By keys"


def test_opening_something_else_gets_a_sentence(viewer: Viewer, tmp_path: Any) -> None:
    page = viewer.open().page
    wrong = tmp_path / "wrong.json"
    wrong.write_text('{"lanes": [', encoding="utf-8")
    page.locator("input[type=file]").set_input_files(wrong)
    page.wait_for_selector("#player[data-state=error]")
    assert "not valid JSON" in viewer.message()
    assert viewer.count("#player [data-lane]") == 4
