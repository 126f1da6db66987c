"""Models by hub id: what is downloaded, what is pinned, what needs no network, and a sentence for each failure."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from explorer import hub
from explorer.errors import ExplorerError
from explorer.hub import RepoId, get_model, model_files, parse_id, pinned
from tests.hub_server import NEW, OLD, FakeHub

TINY = Path(__file__).parent / "data" / "conformance" / "tiny-target"
NAME = "somebody/tiny"


def quiet(text: str, fraction: float | None) -> None:
    """Nobody listens."""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A hub with one model, an empty cache and an empty model home."""
    made = FakeHub()
    made.add(NAME, TINY, README__md=b"# a card", code__py=b"raise SystemExit", pytorch_model__bin=b"a pickle")
    monkeypatch.setenv("DECODING_EXPLORER_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("DECODING_EXPLORER_OFFLINE", raising=False)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    with made.serve() as address:
        monkeypatch.setenv("HF_ENDPOINT", address)
        yield made


def refusal(repo: RepoId) -> str:
    with pytest.raises(ExplorerError) as caught:
        get_model(repo, quiet)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a/b", RepoId("a/b")),
        ("Qwen/Qwen2.5-0.5B-Instruct", RepoId("Qwen/Qwen2.5-0.5B-Instruct")),
        (f"a/b@{OLD}", RepoId("a/b", OLD)),
        ("a/b@refs/pr/1", RepoId("a/b", "refs/pr/1")),
        ("toy", None),
        ("a/b/c", None),
        ("../b", None),
        ("a/b@", None),
        ("a b/c", None),
        ("", None),
    ],
)
def test_ids(text: str, expected: RepoId | None) -> None:
    assert parse_id(text) == expected


def test_a_model_is_got_without_code_and_without_the_pickle_beside_safetensors(world: FakeHub) -> None:
    told: list[tuple[str, float | None]] = []
    got = get_model(RepoId(NAME), lambda text, fraction: told.append((text, fraction)))
    names = {path.name for path in got.folder.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= names
    assert not names & {"README.md", "code.py", "pytorch_model.bin"}
    assert (got.folder / "model.safetensors").read_bytes() == (TINY / "model.safetensors").read_bytes()
    assert (got.commit, pinned(NAME)) == (OLD, OLD)
    assert told
    assert all(text.startswith(f"downloading {NAME}: ") for text, _ in told)
    assert all(fraction is not None and 0 <= fraction <= 1 for _, fraction in told)


def test_a_second_load_asks_nobody(world: FakeHub) -> None:
    first = get_model(RepoId(NAME), quiet)
    world.asked.clear()
    assert get_model(RepoId(NAME), quiet) == first
    assert world.asked == []


def test_the_first_download_pins_the_name(world: FakeHub) -> None:
    """The author pushes something else; whoever ran the model before gets the same weights as before."""
    get_model(RepoId(NAME), quiet)
    world.add(NAME, TINY, NEW)
    assert get_model(RepoId(NAME), quiet).commit == OLD
    shutil.rmtree(hub.cache_dir())
    assert get_model(RepoId(NAME), quiet).commit == OLD
    assert get_model(RepoId(NAME, "main"), quiet).commit == NEW
    assert get_model(RepoId(NAME), quiet).commit == OLD
    world.asked.clear()
    assert get_model(RepoId(NAME, NEW), quiet).commit == NEW
    assert world.asked == []


def test_a_pin_of_the_catalogue_goes_before_the_branch(world: FakeHub) -> None:
    world.add(NAME, TINY, NEW)
    assert get_model(RepoId(NAME), quiet, pin=OLD).commit == OLD
    assert get_model(RepoId(NAME, NEW), quiet, pin=OLD).commit == NEW


def test_a_lost_file_is_got_again(world: FakeHub) -> None:
    got = get_model(RepoId(NAME), quiet)
    (got.folder / "tokenizer.json").unlink()
    assert (get_model(RepoId(NAME), quiet).folder / "tokenizer.json").is_file()


@pytest.mark.parametrize("text", ["", "[]", "{", '{"somebody/tiny": 3}'])
def test_a_damaged_list_of_pins_is_no_pin(world: FakeHub, text: str) -> None:
    get_model(RepoId(NAME), quiet)
    (hub.model_dir() / "revisions.json").write_text(text)
    assert pinned(NAME) is None
    assert get_model(RepoId(NAME), quiet).commit == OLD
    assert json.loads((hub.model_dir() / "revisions.json").read_text())[NAME]["commit"] == OLD


def test_offline_takes_what_is_there(world: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DECODING_EXPLORER_OFFLINE", "1")
    assert "DECODING_EXPLORER_OFFLINE=1 forbids to download it" in refusal(RepoId(NAME))
    monkeypatch.delenv("DECODING_EXPLORER_OFFLINE")
    got = get_model(RepoId(NAME), quiet)
    monkeypatch.setenv("DECODING_EXPLORER_OFFLINE", "1")
    (hub.model_dir() / "revisions.json").unlink()
    world.asked.clear()
    assert get_model(RepoId(NAME, OLD), quiet) == got
    assert world.asked == []


def test_a_missing_repository(world: FakeHub) -> None:
    assert "There is no model nobody/nothing on the Hugging Face hub, or it is private" in refusal(
        RepoId("nobody/nothing")
    )


def test_a_gated_repository(world: FakeHub) -> None:
    world.gated.add(NAME)
    assert f"{NAME} is gated: accept its licence on https://huggingface.co/{NAME}, then log in" in refusal(RepoId(NAME))


def test_a_missing_revision(world: FakeHub) -> None:
    assert f"{NAME} has no revision 'v9'" in refusal(RepoId(NAME, "v9"))


def test_a_hub_that_cannot_be_reached(world: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(hub, "REACH_SECONDS", 1.0)
    assert f"{NAME} is not on this machine and could not be downloaded" in refusal(RepoId(NAME))


def test_a_repository_without_a_model(world: FakeHub, tmp_path: Path) -> None:
    (tmp_path / "gguf").mkdir()
    (tmp_path / "gguf" / "model.gguf").write_bytes(b"x")
    world.add("somebody/gguf", tmp_path / "gguf")
    assert "holds no transformers model" in refusal(RepoId("somebody/gguf"))


def test_a_full_disk_is_told_before_anything_is_downloaded(world: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=10))
    assert "0.00 GB of disk are free" in refusal(RepoId(NAME))
    assert not any("/resolve/" in asked for asked in world.asked)


def test_pickles_are_taken_where_there_is_nothing_else() -> None:
    files = ["config.json", "pytorch_model-00001-of-00002.bin", "pytorch_model.bin.index.json", "tokenizer.model"]
    assert set(model_files(files, "x")) == set(files)
    assert "optimizer.bin" not in model_files([*files, "optimizer.bin", "onnx/model.onnx"], "x")
