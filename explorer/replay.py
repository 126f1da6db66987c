"""A recorded comparison as one HTML file that plays from disk: no server, no network. docs/design/reel.md, "Replay".

The file holds the same player as the page, plotly.js, and the answers that the page's server would have given,
as blocks: gzipped, base64, one script element each. A browser unpacks a block when the viewer comes near it.
"""

from __future__ import annotations

import base64
import gzip
import html
import json
import re
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from explorer.csv_tables import TABLES, csv_text
from explorer.errors import ExplorerError
from explorer.events import Event
from explorer.figures import OVERVIEWS
from explorer.figures.serve import frames, overview
from explorer.figures.theme import THEMES
from explorer.player import ASSETS, PLAYER_STYLES, PLOTLY_JS, player_script, styles
from explorer.reel import reel_of
from explorer.runs import RunStore
from explorer.trace import Comparison

RUN_ID = "replay"
"""In place of the run's own id, which opens its figures on the server that made it."""
BLOCK_STEPS = 32
"""Steps in one block of figures: fewer pack worse, more take longer to unpack than a key press may."""
TITLE_CHARACTERS = 60
ROOT = r"(?:[A-Za-z]:[\\/]|~[\\/]|\.{0,2}/|\\\\)"
FOLDERS = re.compile(rf"(?<![\w.:/]){ROOT}(?:[^\s/\\'\"]+[\\/])*")
"""The folders of a path in a sentence."""

Json = dict[str, Any]
Guard = Callable[[], AbstractContextManager[Any]]
Play = Callable[[Comparison], Iterable[Event]]


@dataclass
class Blocks:
    """Packed contents by number."""

    packed: list[str] = field(default_factory=list)

    def add(self, content: bytes | Json) -> int:
        """Pack a content; its number."""
        if isinstance(content, dict):  # in ASCII, where a lone surrogate is an escape like any other
            content = json.dumps(content, allow_nan=False, separators=(",", ":")).encode()
        # without a time, so that equal recordings give equal files
        self.packed.append(base64.b64encode(gzip.compress(content, 9, mtime=0)).decode("ascii"))
        return len(self.packed) - 1


def replay_html(comparison: Comparison, play: Play, guard: Guard = nullcontext) -> str:
    """The file's text.

    `play` gives the events of a recorded comparison; `guard` is held while a piece is made, never for long, so that
    a server can make a replay between measured steps. ExplorerError where a figure cannot be built.
    """
    record = without_paths(comparison)
    store = RunStore()
    run = store.new(RUN_ID, recorded=True)
    with guard():
        value = reel_of(run, play(record)).value
        first = Blocks()
        library = first.add(PLOTLY_JS.read_bytes())
    blocks = Blocks()
    index: Json = {"value": value, "block_steps": BLOCK_STEPS}
    index["frames"] = {lane["id"]: _frames(store, lane, blocks, guard) for lane in value["lanes"]}
    index["overviews"] = {picture.name: _overviews(store, picture.name, blocks, guard) for picture in OVERVIEWS}
    with guard():
        index["recording"] = blocks.add(record.model_dump(mode="json"))
        index["tables"] = {name: blocks.add(csv_text(record, name).encode()) for name in TABLES}
        return page(_title(value["prompt"]), {"index": _pack(index), "plotly": first.packed[library]}, blocks.packed)


def _pack(content: Json) -> str:
    blocks = Blocks()
    blocks.add(content)
    return blocks.packed[0]


def _frames(store: RunStore, lane: Json, blocks: Blocks, guard: Guard) -> Json:
    """View -> theme -> number of its first block; a view's blocks are consecutive. Asides have no colours."""
    first: Json = {}
    for view in [*lane["views"], *lane["asides"]]:
        first[view] = {}
        for theme in THEMES:
            if view in lane["asides"] and first[view]:
                first[view][theme] = next(iter(first[view].values()))
                continue
            first[view][theme] = len(blocks.packed)
            for lo in range(0, len(lane["steps"]), BLOCK_STEPS):
                asked = {"lane": lane["id"], "lo": lo, "hi": lo + BLOCK_STEPS, "views": [view], "theme": theme}
                with guard():
                    answer = _checked(frames(store, {"run": RUN_ID} | asked))
                    blocks.add(answer["views"][view])
    return first


def _overviews(store: RunStore, name: str, blocks: Blocks, guard: Guard) -> Json:
    """Axis -> theme -> number of the block; the first axis is the default."""
    first: Json = {}
    axes = next(picture.axes for picture in OVERVIEWS if picture.name == name)
    for axis in axes:
        first[axis] = {}
        for theme in THEMES:
            with guard():
                answer = _checked(overview(store, {"run": RUN_ID, "view": name, "theme": theme, "axis": axis}))
                first[axis][theme] = blocks.add(answer["view"])
    return first


def _checked(answer: Json) -> Json:
    if not answer["ok"]:
        raise ExplorerError(f"The replay cannot be made: {answer['error']}")
    return answer


def page(title: str, named: dict[str, str], packed: list[str]) -> str:
    """The HTML text: what starts the player first, then the blocks, so that playing need not wait for the last one.

    All that was recorded is in blocks, whose alphabet holds no markup; the policy refuses every other code and
    every request.
    """
    code = (
        f"function startPlayer(element, props, server, watch, trigger) {{\n{player_script()}\n}}\n{_asset('replay.js')}"
    )
    code = code.replace("</script", "<\\/script").replace("<!--", "<\\!--")
    policy = (
        f"default-src 'none'; script-src 'sha256-{base64.b64encode(sha256(code.encode()).digest()).decode()}' blob:; "
        "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    shell = _asset("replay.html")
    parts = {
        "policy": html.escape(policy, quote=True),
        "title": title,
        "styles": styles((*PLAYER_STYLES, "replay/replay"), ".replay.replay"),
        "first": "\n".join(_element(name, text) for name, text in named.items()),
        "script": code,
        "blocks": "\n".join(_element(str(number), text) for number, text in enumerate(packed)),
    }
    # in one pass, since a part may hold what looks like a place for another
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], shell)


def _element(name: str, packed: str) -> str:
    return f'<script type="text/plain" id="block-{name}">{packed}</script>'


def _asset(name: str) -> str:
    return (ASSETS / "replay" / name).read_text(encoding="utf-8")


def _title(prompt: str) -> str:
    """Words for the browser's tab, as HTML in ASCII."""
    words = " ".join("".join(char if char.isprintable() else " " for char in prompt).split())
    short = words if len(words) <= TITLE_CHARACTERS else words[: TITLE_CHARACTERS - 1] + "\u2026"
    return html.escape(short or "Replay").encode("ascii", "xmlcharrefreplace").decode("ascii")


def without_paths(comparison: Comparison) -> Comparison:
    """The comparison without names of folders of this machine: a model may have been given as one."""
    lanes = []
    for trace in comparison.lanes:
        changes: Json = {"model": _renamed(trace.model), "drafter": _renamed(trace.drafter)}
        changes |= {"params": _named(trace.params), "error": FOLDERS.sub("", trace.error) if trace.error else None}
        lanes.append(trace.model_copy(update=changes))
    return comparison.model_copy(update={"lanes": tuple(lanes)})


def _renamed(record: Any) -> Any:
    """The record with bare names; None stays None."""
    return None if record is None else type(record).model_validate(_named(record.model_dump()))


def _named(value: Any) -> Any:
    """The value, with the last part of each text that is a path."""
    if isinstance(value, str):
        return re.split(r"[\\/]", value.rstrip("\\/"))[-1] if re.match(ROOT, value) else value
    if isinstance(value, dict):
        return {key: _named(each) for key, each in value.items()}
    return [_named(each) for each in value] if isinstance(value, list | tuple) else value


def write_replay(text: str, path: Path) -> None:
    """Write the file under another name first, so that nobody opens half of one."""
    partial = path.with_name(path.name + ".part")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise ExplorerError(f"{path} cannot be written: {error.strerror or error}.") from error
