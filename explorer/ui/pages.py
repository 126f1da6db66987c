"""The page: what stands where. Behaviour is in handlers.py, looks in assets/*.css."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import gradio as gr

from explorer.figures.labels import plural
from explorer.params import describe
from explorer.player import PLAYER_STYLES, PLOTLY_JS, player_script, script, styles
from explorer.session import Studio
from explorer.ui.api import add_api
from explorer.ui.controls import MAX_LANES, Preset, RunSettings, first_setup, presets
from explorer.ui.handlers import Handlers
from explorer.ui.lessons import Lessons, lesson_functions
from explorer.ui.models import follow, model_value, picker, wire_picker
from explorer.ui.sharing import Sharing
from explorer.ui.whatif import WhatIf, what_if_functions, wire_what_if

TITLE = "Decoding explorer"
TAGLINE = "watch decoders race on one prompt, then step through each"
STYLES = (PLAYER_STYLES[0], "page", "picker", "setup", *PLAYER_STYLES[1:])
MAX_FILE = "32mb"
SYSTEM_FONT = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif")
MONO_FONT = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace")
ARRIVED_JS = "() => { document.getElementById('player').dispatchEvent(new Event('dx-arrived')); }"
LANE_COUNT_JS = "(setup) => 'Run ' + setup.lanes.length + (setup.lanes.length === 1 ? ' lane' : ' lanes')"


def build(studio: Studio) -> gr.Blocks:
    """The whole page on top of a studio."""
    gr.set_static_paths([PLOTLY_JS.parent])
    handlers = Handlers(studio)
    example = handlers.example()
    with gr.Blocks(title=TITLE, analytics_enabled=False, fill_width=True) as page:
        model, opened = _header(studio)
        with gr.Column(elem_classes="ask"):
            methods = studio.methods()
            first = first_setup(methods)
            prompt, run, stop = _ask(example["prompt"], len(first["lanes"]))
            with gr.Row(elem_classes="presets"):
                _presets(prompt)
                setup = _setup(first, methods)
        sharing = Sharing(studio)
        what_if = WhatIf(studio, handlers.stops)
        player = _player(handlers, sharing, what_if, Lessons(studio), example)
        ran = _wire(handlers, prompt, setup, run, stop, player, opened)
        _wire_links(sharing, prompt, setup, player)
        wire_what_if(what_if, player)
        wire_picker(studio, model, setup)
        add_api(studio)
        for tell in (page.load, ran.then):  # the model may not be loaded yet, and somebody may choose another one
            tell(
                lambda: (model_value(studio), follow(studio)),
                outputs=[model, setup],
                show_progress="hidden",
                api_visibility="private",
            )
        page.unload(handlers.stop)
    return page.queue(default_concurrency_limit=None, max_size=200)


def launch_options() -> dict[str, Any]:
    """What Gradio wants at launch: looks, and nothing from other hosts."""
    return {
        "theme": gr.themes.Base(font=SYSTEM_FONT, font_mono=MONO_FONT),
        "head": _styles(),
        "footer_links": [],
        "run_history": False,
        "ssr_mode": False,
        "pwa": False,
        "max_file_size": MAX_FILE,
        "max_threads": 200,
        "state_session_capacity": 200,
        "show_error": False,
    }


def _styles() -> str:
    """A style element of our own: what Gradio takes as `css` it rewrites, and loses shorthands with variables.

    All but the colours is nested twice under Gradio's container, so that it outranks Gradio's rules.
    """
    return f"<style>\n{styles(STYLES, '.gradio-container.gradio-container')}\n</style>"


def _header(studio: Studio) -> tuple[gr.HTML, gr.UploadButton]:
    with gr.Row(elem_classes="top"):
        gr.HTML(
            f"<header><h1>{TITLE}</h1><span>{TAGLINE}</span></header>",
            apply_default_css=False,
            elem_classes="masthead",
        )
        model = picker(studio, script("player/dom", "picker"))
        opened = gr.UploadButton(
            "Open a recording", file_types=[".json"], type="filepath", size="sm", elem_id="open", scale=0
        )
    return model, opened


def _ask(text: str, lanes: int) -> tuple[gr.Textbox, gr.Button, gr.Button]:
    with gr.Row(elem_classes="ask-row"):
        prompt = gr.Textbox(
            text,
            label="Prompt",
            show_label=False,
            placeholder="Type a prompt. Shift + Enter runs it.",
            lines=2,
            max_lines=8,
            elem_id="prompt",
            container=False,
            scale=1,
            html_attributes=gr.InputHTMLAttributes(spellcheck=False),
        )
        stop = gr.Button("Stop", elem_id="stop", scale=0, min_width=80)
        run = gr.Button(f"Run {plural(lanes, 'lane')}", variant="primary", elem_id="run", scale=0, min_width=140)
    return prompt, run, stop


def _presets(prompt: gr.Textbox) -> None:
    gr.HTML("<span>Try</span>", apply_default_css=False, elem_classes="try")
    for preset in presets():
        made = gr.Button(preset.category, size="sm", elem_classes="preset", scale=0, min_width=0)
        made.click(None, inputs=prompt, outputs=prompt, js=_next_prompt(preset), api_visibility="private")


def _next_prompt(preset: Preset) -> str:
    """The category's prompts in turn, in the browser: no round trip."""
    listed = json.dumps(preset.prompts)
    return f"(now) => {{ const all = {listed}; return all[(all.indexOf(now) + 1) % all.length]; }}"


def _setup(first: dict[str, Any], methods: list[dict[str, Any]]) -> gr.HTML:
    return gr.HTML(
        first,
        html_template="",
        js_on_load=script("player/dom", "player/fields", "remember", "setup"),
        apply_default_css=False,
        elem_id="setup",
        methods=methods,
        fields=describe(RunSettings),
        limit=MAX_LANES,
    )


def _player(
    handlers: Handlers, sharing: Sharing, what_if: WhatIf, lessons: Lessons, example: dict[str, Any]
) -> gr.HTML:
    return gr.HTML(
        example,
        html_template="",
        js_on_load=player_script(),
        apply_default_css=False,
        elem_id="player",
        server_functions=[
            *_server_functions(handlers, sharing),
            *what_if_functions(what_if),
            *lesson_functions(lessons),
        ],
        lessons=lessons.offered(),
        link=None,
        plotly=f"gradio_api/file={PLOTLY_JS}",
    )


def _server_functions(handlers: Handlers, sharing: Sharing) -> list[Callable[[Any], dict[str, Any]]]:
    """Gradio marks what it may call by an attribute, which a bound method cannot have."""

    def frames(request: Any) -> dict[str, Any]:
        return handlers.frames(request)

    def overview(request: Any) -> dict[str, Any]:
        return handlers.overview(request)

    def recording(request: Any) -> dict[str, Any]:
        return handlers.recording(request)

    def replay(request: Any) -> dict[str, Any]:
        return handlers.replay(request)

    def link(request: Any) -> dict[str, Any]:
        return sharing.link(request)

    def table(request: Any) -> dict[str, Any]:
        return sharing.table(request)

    return [frames, overview, recording, replay, link, table]


def _wire(
    handlers: Handlers,
    prompt: gr.Textbox,
    setup: gr.HTML,
    run: gr.Button,
    stop: gr.Button,
    player: gr.HTML,
    opened: gr.UploadButton,
) -> Any:
    ran = gr.on(
        [run.click],
        handlers.run,
        inputs=[prompt, setup],
        outputs=player,
        show_progress="hidden",
        concurrency_limit=None,
        trigger_mode="multiple",
        api_visibility="private",
    )
    stop.click(handlers.stop, queue=False, show_progress="hidden", api_visibility="private")
    setup.change(None, inputs=setup, outputs=run, js=LANE_COUNT_JS, api_visibility="private")
    opened.upload(handlers.open_file, inputs=opened, outputs=player, show_progress="hidden", api_visibility="private")
    return ran


def _wire_links(sharing: Sharing, prompt: gr.Textbox, setup: gr.HTML, player: gr.HTML) -> None:
    """The player tells the query that the page was opened with; prompt and lanes follow, then it presses Run."""

    def arrive(event: gr.EventData) -> tuple[Any, Any, gr.HTML]:
        link, told = sharing.arrive(event._data)
        return link.prompt or gr.skip(), link.setup or gr.skip(), gr.HTML(link=told)

    listen: Any = player.arrive
    filled = listen(arrive, outputs=[prompt, setup, player], show_progress="hidden", api_visibility="private")
    filled.then(None, js=ARRIVED_JS, api_visibility="private")
