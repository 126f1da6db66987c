"""The page as Gradio will serve it: parts, ids, and nothing from elsewhere."""

import json
import re
from typing import Any

import gradio as gr
import pytest

from explorer.reel import BASELINE
from explorer.session import Studio
from explorer.ui.controls import ASSETS, presets
from explorer.ui.pages import PLOTLY_JS, build, launch_options


@pytest.fixture(scope="module")
def page(studio: Studio) -> gr.Blocks:
    return build(studio)


@pytest.fixture(scope="module")
def config(page: gr.Blocks) -> dict[str, Any]:
    return page.get_config_file()


def by_id(config: dict[str, Any], elem_id: str) -> dict[str, Any]:
    return next(part for part in config["components"] if part["props"].get("elem_id") == elem_id)


@pytest.mark.parametrize("elem_id", ["prompt", "run", "stop", "player", "setup"])
def test_the_handles_are_there(config: dict[str, Any], elem_id: str) -> None:
    assert by_id(config, elem_id)


def test_templates_hold_no_values(config: dict[str, Any]) -> None:
    """Gradio evaluates a template: a value in it could run as code."""
    for elem_id in ("player", "setup", "model"):
        assert not re.search(r"\$\{|\{\{", by_id(config, elem_id)["props"]["html_template"])


def test_scripts_never_write_markup() -> None:
    for path in [*sorted(ASSETS.glob("*.js")), *sorted((ASSETS / "player").glob("*.js"))]:
        text = path.read_text(encoding="utf-8")
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
            assert word not in text, f"{path.name} uses {word}"


def test_scripts_and_styles_know_no_method(studio: Studio) -> None:
    texts = [path for kind in ("*.js", "*.css") for path in ASSETS.rglob(kind)]
    names = {row["name"] for row in studio.methods()} - {BASELINE}  # the speed-up's tooltip names what it is against
    assert texts
    for path in texts:
        code = re.sub(r"//.*|/\*[\s\S]*?\*/", "", path.read_text(encoding="utf-8")).lower()
        for method in names:
            assert method not in code, f"{path.name} names {method}"


def test_files_are_short() -> None:
    for path in [*ASSETS.rglob("*.js"), *ASSETS.rglob("*.css")]:
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 400, path.name


def test_nothing_comes_from_elsewhere(config: dict[str, Any]) -> None:
    options = launch_options()
    assert "http" not in options["head"]
    assert options["run_history"] is False
    assert options["ssr_mode"] is False
    assert PLOTLY_JS.exists()
    player = by_id(config, "player")["props"]
    assert player["props"]["plotly"].startswith("gradio_api/file=")


def test_methods_reach_the_editor(config: dict[str, Any], studio: Studio) -> None:
    props = by_id(config, "setup")["props"]["props"]
    assert [method["name"] for method in props["methods"]] == [method["name"] for method in studio.methods()]
    assert json.dumps(props["methods"])


def test_presets_cover_the_categories() -> None:
    names = [preset.category for preset in presets()]
    assert names == ["Code", "Maths", "Summarise", "Translate", "Chat", "List", "Repetitive log"]
    for preset in presets():
        assert len(preset.prompts) >= 2
        assert all(10 < len(prompt) < 600 for prompt in preset.prompts)


def test_the_interface_is_not_an_open_api(config: dict[str, Any]) -> None:
    named = {event["api_name"] for event in config["dependencies"] if event["api_visibility"] == "public"}
    assert not named & {"run", "stop", "open_file"}
