"""Drafters by id: only the files that are read are got, and every way to fail is a sentence. No network is used."""

import json
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
from huggingface_hub import errors

from explorer.drafters.checkpoint import folder_name
from explorer.drafters.hub import resolve
from explorer.errors import ExplorerError

NAME = "somebody/some-drafter"


class Hub:
    """Stands for the hub: a list of files, or a failure."""

    def __init__(self, monkeypatch, folder):
        self.folder, self.files, self.failure, self.cached = folder, [], None, False
        self.asked = SimpleNamespace(revision=None, patterns=None)
        for name in ("list_repo_files", "snapshot_download", "hf_hub_download"):
            monkeypatch.setattr(huggingface_hub, name, getattr(self, name))

    def list_repo_files(self, name, *, revision=None):
        if self.failure is not None:
            raise self.failure
        assert name == NAME
        return self.files

    def snapshot_download(self, name, *, revision=None, allow_patterns=None, local_files_only=False):
        if local_files_only and not self.cached:
            raise errors.LocalEntryNotFoundError("not here")
        self.asked = SimpleNamespace(revision=revision, patterns=allow_patterns)
        return str(self.folder)

    def hf_hub_download(self, name, file, *, revision=None):
        return str(self.folder / file)


@pytest.fixture
def hub(monkeypatch, tmp_path):
    return Hub(monkeypatch, tmp_path)


def failure(kind):
    """One of the hub's errors; these want the response of a server."""
    error = kind.__new__(kind)
    Exception.__init__(error, "HTTP says no")
    return error


def test_a_folder_is_taken_as_it_is(tmp_path):
    assert resolve(tmp_path) == resolve(str(tmp_path)) == tmp_path


@pytest.mark.parametrize("name", ["nowhere", "a/b/c", "../x/y", "http://x/y", "owner/", "/none/none", ""])
def test_what_is_neither_folder_nor_id_is_refused(name):
    with pytest.raises(ExplorerError, match="neither a folder nor the id of a repository"):
        resolve(name if name else "no folder")


def test_only_the_files_that_are_read_are_got(hub):
    hub.files = [
        "README.md",
        "config.json",
        "tokenizer.json",
        "tokenizer.model",
        "modeling_own.py",
        "model.safetensors",
        "pytorch_model.bin",
        "onnx/model.json",
        "original/consolidated.pt",
    ]
    assert resolve(NAME, "abc") == hub.folder
    assert hub.asked.patterns == ["config.json", "tokenizer.json", "tokenizer.model", "model.safetensors"]
    assert hub.asked.revision == "abc"


@pytest.mark.parametrize(
    ("places", "shards"),
    [
        ({"medusa_head.0.0.linear.weight": "b.safetensors", "model.norm.weight": "a.safetensors"}, ["b.safetensors"]),
        ({"fc.weight": "b.safetensors", "norm.weight": "a.safetensors"}, ["a.safetensors", "b.safetensors"]),
    ],
)
def test_of_a_whole_model_with_heads_only_their_shards_are_got(hub, places, shards):
    index = "model.safetensors.index.json"
    (hub.folder / index).write_text(json.dumps({"weight_map": places}))
    hub.files = ["config.json", index, "a.safetensors", "b.safetensors"]
    resolve(NAME)
    assert hub.asked.patterns == ["config.json", index, *shards]


def test_a_broken_index_and_a_repository_without_weights_are_refused(hub):
    hub.files = ["config.json", "model.safetensors.index.json"]
    (hub.folder / "model.safetensors.index.json").write_text("[]")
    with pytest.raises(ExplorerError, match=f"index.json of the repository {NAME} cannot be read"):
        resolve(NAME)
    hub.files = ["config.json", "model.gguf"]
    with pytest.raises(ExplorerError, match=f"{NAME} holds no weights that are known"):
        resolve(NAME)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (failure(errors.GatedRepoError), "is gated: accept its licence"),
        (failure(errors.RepositoryNotFoundError), "There is no repository somebody/some-drafter"),
        (failure(errors.RevisionNotFoundError), "has no revision xyz"),
        (errors.HFValidationError("bad"), "is no valid repository id"),
        (errors.OfflineModeIsEnabled("offline mode"), "not on this machine and .* cannot be reached: offline mode"),
        (ConnectionError("no route"), "cannot be reached: no route"),
        (TimeoutError(), "cannot be reached: TimeoutError"),
    ],
)
def test_failures_are_sentences(hub, error, message):
    hub.failure = error
    with pytest.raises(ExplorerError, match=message) as caught:
        resolve(NAME, "xyz")
    assert "\n" not in str(caught.value)


def test_offline_the_cache_of_this_machine_serves(hub):
    hub.failure, hub.cached = ConnectionError("no route"), True
    assert resolve(NAME) == hub.folder


def test_a_whole_download_of_a_commit_is_not_asked_for_again(hub):
    commit, index = "0123456789" * 4, "model.safetensors.index.json"
    hub.cached, hub.files = True, ["config.json", index, "a.safetensors"]
    (hub.folder / "config.json").write_text("{}")
    (hub.folder / index).write_text(json.dumps({"weight_map": {"fc.weight": "a.safetensors"}}))
    resolve(NAME, commit)
    assert hub.asked.patterns == ["config.json", index, "a.safetensors"]  # it was not whole
    (hub.folder / "a.safetensors").write_bytes(b"x")
    hub.failure = AssertionError("the hub was asked")
    assert resolve(NAME, commit) == hub.folder


def test_a_drafter_in_the_hubs_cache_is_called_after_its_repository(tmp_path):
    snapshot = tmp_path / "models--somebody--some-drafter" / "snapshots" / ("0123456789abcdef" * 2)
    assert folder_name(snapshot) == "somebody/some-drafter@0123456"
    assert folder_name(Path("some/folder")) == "folder"
