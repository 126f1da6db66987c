"""The replay file holds what the page would be told, and nothing that a browser could take for code."""

import base64
import gzip
import html
import json
import re
from contextlib import contextmanager
from html.parser import HTMLParser

import pytest

from explorer.cli import main
from explorer.errors import ExplorerError
from explorer.figures import OVERVIEWS
from explorer.figures.serve import frames, overview
from explorer.figures.theme import THEMES
from explorer.player import player_script
from explorer.reel import reel_of
from explorer.replay import BLOCK_STEPS, Blocks, page, replay_html, without_paths, write_replay
from explorer.runs import RunStore
from explorer.session import EXAMPLE_FILE, recorded_events
from explorer.trace import Comparison
from explorer.trace_io import read_comparison, to_json, write
from explorer.ui.handlers import Handlers
from tests.traces import HOSTILE, make_comparison, make_trace

NASTY = [
    *HOSTILE,
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "]]>",
    "${alert(1)}",
    "{{blocks}}",
    "\u2028",
    "\ud800",
]


class Elements(HTMLParser):
    """Script elements by id, and every attribute that could fetch or run something."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.scripts: list[tuple[dict, str]] = []
        self.links: list[tuple[str, str]] = []
        self.title = ""
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self._inside = tag
        if tag == "script":
            self.scripts.append((dict(attrs), ""))
        self.links += [(tag, name) for name, _ in attrs if name in ("src", "href", "srcset") or name.startswith("on")]

    def handle_endtag(self, tag):
        self._inside = ""

    def handle_data(self, data):
        if self._inside == "script":
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
        elif self._inside == "title":
            self.title += data


def blocks_of(text: str) -> dict[str, bytes]:
    packed = {kept["id"].removeprefix("block-"): body for kept, body in Elements(text).scripts if "id" in kept}
    return {name: gzip.decompress(base64.b64decode(body, validate=True)) for name, body in packed.items()}


def hostile_comparison() -> Comparison:
    """All texts of a lane replaced by nasty ones; the prompt too."""
    data = make_comparison().lanes[1].model_dump()
    texts = iter(NASTY * 10_000)

    def soil(value):
        if isinstance(value, dict):
            return {key: next(texts) if key == "text" else soil(each) for key, each in value.items()}
        return [soil(each) for each in value] if isinstance(value, list | tuple) else value

    trace = make_comparison().lanes[1]
    prompt = trace.prompt.model_copy(update={"text": "".join(NASTY)})
    dirty = {"steps": soil(data["steps"]), "tokens": soil(data["tokens"]), "prompt": prompt}
    return Comparison(lanes=(type(trace).model_validate({**data, **dirty}),))


@pytest.fixture(scope="module")
def made() -> str:
    return replay_html(make_comparison(), recorded_events)


@pytest.fixture(scope="module")
def hostile() -> str:
    return replay_html(hostile_comparison(), recorded_events)


def test_every_answer_of_the_server_is_in_the_file(made) -> None:
    blocks = blocks_of(made)
    index = json.loads(blocks["index"])
    store = RunStore()
    run = store.new("replay", recorded=True)
    assert index["value"] == json.loads(json.dumps(reel_of(run, recorded_events(make_comparison())).value))
    for lane in index["value"]["lanes"]:
        assert lane["views"]
        assert index["frames"][lane["id"]].keys() == {*lane["views"], *lane["asides"]}
        for view, themes in index["frames"][lane["id"]].items():
            for theme, first in themes.items():
                for part in range(-(-len(lane["steps"]) // BLOCK_STEPS)):
                    asked = {"lo": part * BLOCK_STEPS, "hi": (part + 1) * BLOCK_STEPS, "views": [view], "theme": theme}
                    answer = frames(store, {"run": "replay", "lane": lane["id"], **asked})
                    assert json.loads(blocks[str(first + part)]) == json.loads(json.dumps(answer["views"][view]))
    for picture in OVERVIEWS:
        for axis in picture.axes:
            for theme in THEMES:
                answer = overview(store, {"run": "replay", "view": picture.name, "theme": theme, "axis": axis})
                number = index["overviews"][picture.name][axis][theme]
                assert json.loads(blocks[str(number)]) == json.loads(json.dumps(answer["view"]))


def test_the_recording_inside_opens_again(made, tmp_path) -> None:
    blocks = blocks_of(made)
    inside = tmp_path / "inside.json"
    inside.write_bytes(blocks[str(json.loads(blocks["index"])["recording"])])
    assert json.loads(inside.read_bytes()) == json.loads(to_json(make_comparison()))
    assert len(read_comparison(inside).lanes) == len(make_comparison().lanes)


def test_the_player_is_the_pages_own(made) -> None:
    (code,) = (body for kept, body in Elements(made).scripts if "id" not in kept)
    assert player_script() in code


def test_equal_recordings_give_equal_files(made) -> None:
    assert replay_html(make_comparison(), recorded_events) == made


def test_hostile_texts_are_data_and_nothing_else(made, hostile) -> None:
    plain, dirty = Elements(made), Elements(hostile)
    # as many elements as blocks need, one piece of code, the same in both files
    assert [kept.get("type") for kept, _ in dirty.scripts].count(None) == 1
    code = [body for kept, body in dirty.scripts if "type" not in kept]
    assert code == [body for kept, body in plain.scripts if "type" not in kept]
    assert dirty.links == []
    outside = re.sub(r"<title>[^<]*</title>", "", hostile)
    for _, body in dirty.scripts:
        outside = outside.replace(body, "")
    for text in ("alert(1)", "onerror", "\u2028", "\u202e", "\ud800"):
        assert text not in outside
    hostile.encode("utf-8")  # no lone surrogate outside the blocks
    index = json.loads(blocks_of(hostile)["index"])
    words = [token[0] for step in index["value"]["lanes"][0]["steps"] for token in step["t"]]
    assert set(words) <= set(NASTY)
    assert index["value"]["prompt"] == "".join(NASTY)


def test_the_policy_allows_that_code_only(made) -> None:
    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', made)[1])
    assert policy.startswith("default-src 'none'")
    assert "http" not in policy
    assert "unsafe-eval" not in policy
    assert "unsafe-inline" not in policy.split("script-src")[1].split(";")[0]


def test_a_part_that_looks_like_a_place_is_left_alone() -> None:
    text = page("{{blocks}}", {"index": "e30="}, ["cGFydA=="])
    assert "<title>{{blocks}}" in text
    assert text.count("cGFydA==") == 1


def test_no_folder_of_this_machine_is_inside() -> None:
    lane = make_comparison().lanes[1]
    model = lane.model.model_copy(update={"id": "/disks/lovelace 2/models/Tiny-1M", "label": "C:\\models\\Tiny-1M"})
    changes = {
        "model": model,
        "error": "No file /srv/secret/weights.bin; see https://example.org/a.",
        "stop_reason": "error",
    }
    record = Comparison(
        lanes=(lane.model_copy(update={**changes, "params": {"drafter": "~/heads/one", "tree": "auto"}}),)
    )
    clean = without_paths(record).lanes[0]
    assert clean.model.id == "Tiny-1M"
    assert clean.model.label == "Tiny-1M"
    assert clean.params == {"drafter": "one", "tree": "auto"}
    assert clean.error == "No file weights.bin; see https://example.org/a."
    assert to_json(without_paths(make_comparison())) == to_json(make_comparison())
    blocks = blocks_of(replay_html(record, recorded_events))
    del blocks["plotly"]  # minified code has all sorts of short words
    for word in (b"lovelace", b"C:", b"/srv", b"heads/"):
        assert not any(word in content for content in blocks.values())


def test_it_is_made_in_pieces() -> None:
    """A server holds its lock for one piece at a time, never inside another."""
    held = []

    @contextmanager
    def guard():
        assert not held or held[-1] == "free"
        held.append("held")
        yield
        held.append("free")

    replay_html(Comparison(lanes=make_comparison().lanes[:1]), recorded_events, guard)
    assert held.count("held") > 5
    assert held[-1] == "free"


def test_a_lane_longer_than_a_block() -> None:
    lane = make_comparison().lanes[0]
    long = make_trace("autoregressive", "autoregressive", [*lane.steps, *lane.steps])
    blocks = blocks_of(replay_html(Comparison(lanes=(long,)), recorded_events))
    index = json.loads(blocks["index"])
    first = index["frames"]["autoregressive"]["tree"]["dark"]
    parts = [json.loads(blocks[str(first + part)])["steps"] for part in range(2)]
    assert [len(part) for part in parts] == [BLOCK_STEPS, len(long.steps) - BLOCK_STEPS]


def test_packing_is_lossless() -> None:
    blocks = Blocks()
    assert [blocks.add(content) for content in (b"\x00\xff", {"a": ["\ud800", 1.5]})] == [0, 1]
    raw = [gzip.decompress(base64.b64decode(packed)) for packed in blocks.packed]
    assert raw[0] == b"\x00\xff"
    assert json.loads(raw[1]) == {"a": ["\ud800", 1.5]}


def test_the_example_is_small_enough_to_mail() -> None:
    text = replay_html(read_comparison(EXAMPLE_FILE), recorded_events)
    assert len(text.encode()) < 6_000_000


def test_the_command_writes_a_file(tmp_path, capsys) -> None:
    record, out = tmp_path / "one.json", tmp_path / "one.html"
    write(make_comparison().lanes[1], record)
    assert main(["replay", str(record), "--out", str(out)]) == 0
    assert "1 lane, 10 steps" in capsys.readouterr().out
    assert out.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert str(tmp_path) not in out.read_text(encoding="utf-8")


def test_the_page_gives_the_file_of_a_run_that_it_holds(studio) -> None:
    handlers = Handlers(studio)
    run = studio.open_recording(EXAMPLE_FILE)
    answer = handlers.replay({"run": run.id})
    assert answer["ok"], answer
    assert answer["name"].endswith(".html")
    assert run.id not in answer["text"]
    assert not any(run.id.encode() in content for content in blocks_of(answer["text"]).values())


@pytest.mark.parametrize("question", [None, [], "example", {}, {"run": None}, {"run": ["x"]}, {"run": "nobody's"}])
def test_the_page_answers_any_other_question_with_a_sentence(studio, question) -> None:
    answer = Handlers(studio).replay(question)
    assert not answer["ok"]
    assert answer["error"].endswith(".")


def test_an_unfinished_run_has_no_replay(studio) -> None:
    answer = Handlers(studio).replay({"run": studio.runs.new().id})
    assert answer == {"ok": False, "error": "There is nothing to download before the run has ended."}


def test_one_replay_is_made_at_a_time(studio, monkeypatch) -> None:
    handlers = Handlers(studio)
    run = studio.open_recording(EXAMPLE_FILE)
    inner = []

    def nested(*_):
        inner.append(handlers.replay({"run": run.id}))
        return "made"

    monkeypatch.setattr("explorer.ui.handlers.replay_html", nested)
    assert handlers.replay({"run": run.id})["text"] == "made"
    assert "Another replay is being made" in inner[0]["error"]
    assert handlers.replay({"run": run.id})["ok"], "the next one may come"


@pytest.mark.parametrize(
    "arguments", [["missing.json", "--out", "x.html"], ["missing.json", "--out", "no/such/x.html"]]
)
def test_what_cannot_be_read_or_written_is_one_sentence(arguments, capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["replay", *arguments]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
    with pytest.raises(ExplorerError, match="cannot be written"):
        write_replay("text", tmp_path / "no" / "such.html")
