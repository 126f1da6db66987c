"""Files: what is written is read back; every broken file gets one sentence; version 1 loads for ever."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from explorer import trace_io
from explorer.errors import ExplorerError
from explorer.runs import Run
from explorer.session import EXAMPLE_FILE, recorded_events
from explorer.trace import Comparison
from explorer.trace_io import MAX_FILE_BYTES, read_comparison, to_json, write
from tests.traces import HOSTILE, example_step, make_comparison, make_trace

DATA = Path(__file__).parent / "data"


def plain() -> dict[str, Any]:
    """A small comparison as JSON data."""
    return dict(Comparison(lanes=(make_trace("a", "eagle", [example_step()]),)).model_dump(mode="json"))


def refusal(path: Path) -> str:
    """The sentence with which a file is refused."""
    with pytest.raises(ExplorerError) as caught:
        read_comparison(path)
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 500
    assert path.name in text
    return text


def refused(tmp_path: Path, content: str | bytes) -> str:
    path = tmp_path / "some.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return refusal(path)


def changed(place: str, value: Any) -> str:
    """The plain comparison as text, with the value at a dotted place replaced."""
    data = plain()
    *way, last = (int(part) if part.isdigit() else part for part in place.split("."))
    holder: Any = data
    for part in way:
        holder = holder[part]
    holder[last] = value
    return json.dumps(data)


@pytest.mark.parametrize(("name", "lanes"), [("comparison_v1.json", 4), ("trace_v1.json", 1)])
def test_version_one_files_load_for_ever(name: str, lanes: int) -> None:
    comparison = read_comparison(DATA / name)
    assert len(comparison.lanes) == lanes
    assert set(comparison.lossless) == ({"medusa", "eagle", "lookahead"} if lanes == 4 else set())
    if lanes == 4:
        assert json.loads(to_json(comparison)) == json.loads((DATA / name).read_text(encoding="utf-8"))
    run = Run(id="x", recorded=True)
    for event in recorded_events(comparison):
        run.apply(event)
    assert run.state == "recorded"
    assert run.prompt == "a naïve 🙂 cat"


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    comparison = Comparison.model_validate(make_comparison().model_dump())
    write(comparison, tmp_path / "c.json")
    assert to_json(read_comparison(tmp_path / "c.json")) == to_json(comparison)
    write(comparison.lanes[1], tmp_path / "t.json")
    assert to_json(read_comparison(tmp_path / "t.json").lanes[0]) == to_json(comparison.lanes[1])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.json", "t.json"]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_go_through_a_file_unchanged(text: str, tmp_path: Path) -> None:
    step = example_step().model_copy(update={"payload": {"kind": "odd", "text": text}})
    trace = make_trace("a", "eagle", [step])
    write(trace, tmp_path / "t.json")
    read = read_comparison(tmp_path / "t.json").lanes[0]
    assert read.steps[0].payload == {"kind": "odd", "text": text}


def test_a_file_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    for path in (tmp_path / "missing" / "t.json", tmp_path):
        with pytest.raises(ExplorerError, match="cannot be written") as caught:
            write(make_comparison(), path)
        assert "\n" not in str(caught.value)


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.json"
    write(make_comparison(), path)
    before = path.read_bytes()

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(ExplorerError, match="No space left on device"):
        write(make_trace("a", "eagle", []), path)
    assert path.read_bytes() == before


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    whole = json.dumps(plain())
    for end in (0, 1, 2, len(whole) // 3, len(whole) // 2, len(whole) - 2, len(whole) - 1):
        assert "is not valid JSON; was the download cut short?" in refused(tmp_path, whole[:end])


@pytest.mark.parametrize(
    "content",
    [b"\xff\xfe\x00", b"\x00" * 40, "nonsense", "{", "[1, 2", "{'a': 1}", "<html></html>", b"PK\x03\x04\x14\x00"],
)
def test_files_that_are_no_json_are_refused(content: str | bytes, tmp_path: Path) -> None:
    assert "is not valid JSON" in refused(tmp_path, content)


@pytest.mark.parametrize("content", ["null", "3", '"text"', "[]", "{}", '{"a": 1}', '[{"schema_version": 1}]'])
def test_json_that_is_no_trace_is_refused(content: str, tmp_path: Path) -> None:
    assert "is not a trace of this project: it has no schema_version." in refused(tmp_path, content)


@pytest.mark.parametrize("version", [0, 2, 99, "1", "one" * 400, None, [1], {"a": 1}, -1, 1.5])
def test_other_versions_are_refused_by_number(version: Any, tmp_path: Path) -> None:
    text = refused(tmp_path, changed("schema_version", version))
    assert f"has schema version {str(version)[:20]}" in text
    assert "this program reads version 1." in text


@pytest.mark.parametrize("place", ["lanes.0.totals.decode_ms", "lanes.0.params.seed", "lanes.0.steps.0.payload"])
@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
def test_numbers_that_are_not_finite_are_refused(place: str, number: str, tmp_path: Path) -> None:
    """1e999 is valid JSON, and Python reads it as infinity. Fields of any type must not take it either."""
    text = changed(place, {"kind": "x", "y": ["@"]} if place.endswith("payload") else "@")
    assert refused(tmp_path, text.replace('"@"', number))


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("lanes", []),
        ("lanes", "eagle"),
        ("lanes.0", 3),
        ("lanes.0.tokens", {"0": 1}),
        ("lanes.0.tokens.0.id", "x"),
        ("lanes.0.tokens.0.text", 5),
        ("lanes.0.tokens.0.source", "elsewhere"),
        ("lanes.0.steps.0.nodes.0.parent", 0),
        ("lanes.0.steps.0.nodes.2.parent", 2),
        ("lanes.0.steps.0.nodes.2.id", 9),
        ("lanes.0.steps.0.accepted", [1, 200]),
        ("lanes.0.steps.0.nodes.1.target_prob", 7.0),
        ("lanes.0.steps.0.spans.0.duration_ms", -3.0),
        ("lanes.0.stop_reason", "bored"),
        ("lanes.0.totals.output_tokens", -4),
        ("lanes.0.model", None),
        ("lanes.0.prompt.token_ids", ["a"]),
        ("lossless", {"a": {"equal": "perhaps"}}),
        ("lanes.0.schema_version", 2),
    ],
)
def test_values_of_a_wrong_kind_are_refused_with_their_place(place: str, value: Any, tmp_path: Path) -> None:
    text = refused(tmp_path, changed(place, value))
    assert "is not a trace of this project: " in text
    assert place.rpartition(".")[0].split(".")[0] in text


@pytest.mark.parametrize("place", ["lanes.0.steps.0.payload", "lanes.0.params", "lanes.0"])
@pytest.mark.parametrize("depth", [400, 5_000, 100_000])
def test_deep_nesting_is_refused(place: str, depth: int, tmp_path: Path) -> None:
    """It must not break whoever handles the data later: JSON, copies, comparisons."""
    nested = '{"a":' * depth + "1" + "}" * depth
    text = changed(place, "@").replace('"@"', nested)
    assert refused(tmp_path, text)


def test_two_lanes_of_one_id_are_refused(tmp_path: Path) -> None:
    data = plain()
    data["lanes"] *= 2
    assert "is not a trace of this project" in refused(tmp_path, json.dumps(data))


@pytest.mark.parametrize("value", ["many", None, [], {}, -3, 10**30, True])
def test_a_recording_with_odd_parameters_can_be_opened_or_is_refused(value: Any, tmp_path: Path) -> None:
    """Parameters may hold anything; whoever opens the file must not stumble over that."""
    path = tmp_path / "odd.json"
    path.write_text(changed("lanes.0.params", {"max_new_tokens": value, "temperature": value, "seed": value}))
    run = Run(id="x", recorded=True)
    try:
        for event in recorded_events(read_comparison(path)):
            run.apply(event)
    except ExplorerError:
        return
    assert run.state == "recorded"
    assert isinstance(run.max_new_tokens, int)


def test_an_oversized_file_is_refused_without_being_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "huge.json"
    with path.open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    monkeypatch.setattr(trace_io.json, "loads", lambda *_, **__: pytest.fail("it was read"))
    assert "has 32 MiB; a trace file may have 32 at most." in refusal(path)


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    assert "cannot be read" in refusal(tmp_path / "missing.json")
    assert "cannot be read" in refusal(tmp_path)
    if os.geteuid() != 0:
        closed = tmp_path / "closed.json"
        closed.write_text("{}")
        closed.chmod(0)
        assert "cannot be read" in refusal(closed)


def test_an_endless_file_is_refused() -> None:
    """A device reports no size; reading it whole would never end."""
    assert refusal(Path(os.devnull))
    if Path("/dev/zero").exists():
        assert "32 at most" in refusal(Path("/dev/zero"))


def test_a_packed_file_reads_as_what_was_packed(tmp_path: Path) -> None:
    comparison = read_comparison(EXAMPLE_FILE)
    path = tmp_path / "example.json.gz"
    write(comparison, path)
    assert path.stat().st_size < EXAMPLE_FILE.stat().st_size / 4
    assert read_comparison(path) == comparison
    first = path.read_bytes()
    write(comparison, path)
    assert path.read_bytes() == first, "equal records give equal files"


def test_a_packed_file_that_is_broken_or_a_bomb_is_refused_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "file.json.gz"
    packed = gzip.compress(b" " * (MAX_FILE_BYTES + 2))
    for content, complaint in [
        (b"{}", "is not a packed file"),
        (packed, "may have 32 at most"),
        (gzip.compress(b'{"schema_version": 1}')[:-9], "is not valid JSON"),
    ]:
        path.write_bytes(content)
        with pytest.raises(ExplorerError, match=complaint):
            read_comparison(path)
