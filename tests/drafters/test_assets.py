"""The trained drafters that ship: loadable, small, honest about what they are for."""

import json

import pytest
import torch

from explorer.catalogue import BARELY, DEFAULT_MODEL
from explorer.drafters.checkpoint import read_checkpoint
from explorer.drafters.eagle3_checkpoint import load_eagle3
from explorer.drafters.eagle_head import load_eagle
from explorer.drafters.loading import kind_of
from explorer.drafters.medusa_heads import load_medusa
from explorer.fetch import PROJECT

FOLDERS = {kind: PROJECT / folder for kind, folder in DEFAULT_MODEL.drafters.items()}
VOCAB, HIDDEN, LAYERS = 49152, 576, 30
MOST_BYTES = 80_000_000


@pytest.fixture(scope="module")
def matrix():
    """Stands for the target's matrices: the shapes are what the loaders check."""
    return torch.zeros(VOCAB, HIDDEN, dtype=torch.bfloat16)


@pytest.mark.parametrize("kind", ["medusa", f"medusa{BARELY}"])
def test_medusa_loads_with_the_accuracies_that_its_tree_is_built_from(kind, matrix):
    heads = load_medusa(FOLDERS[kind], output_weight=matrix, device="cpu", dtype=torch.bfloat16)
    assert (heads.num_heads, heads.hidden_size, len(heads.token_map)) == (5, HIDDEN, 8192)
    assert len(heads.accuracies) == 5
    assert all(len(row) == 10 for row in heads.accuracies)
    if not kind.endswith(BARELY):
        assert all(row[0] == max(row) for row in heads.accuracies)


@pytest.mark.parametrize("kind", ["eagle", f"eagle{BARELY}"])
def test_eagle_loads_and_gives_finite_features(kind, matrix):
    place = {"device": "cpu", "dtype": torch.bfloat16}
    head = load_eagle(FOLDERS[kind], embed_weight=matrix, output_weight=matrix, **place)
    assert (head.hidden_size, head.shape.num_kv_heads, len(head.token_map)) == (HIDDEN, 3, 8192)
    features = torch.ones(4, HIDDEN, dtype=torch.bfloat16)
    out = head(torch.arange(4), features, torch.arange(4), head.new_cache(8))
    assert torch.isfinite(out).all()


def test_eagle3_loads_and_gives_finite_features(matrix):
    place = {"device": "cpu", "dtype": torch.bfloat16}
    head = load_eagle3(FOLDERS["eagle3"], embed_weight=matrix, num_layers=LAYERS, **place)
    features = head.fuse_features(torch.ones(4, 3 * HIDDEN, dtype=torch.bfloat16))
    out = head(torch.arange(4), features, torch.arange(4), head.new_cache(8))
    assert torch.isfinite(head.log_probs(out)).all()
    assert head.log_probs(out).shape == (4, len(head.token_map))


@pytest.mark.parametrize("kind", FOLDERS)
def test_a_drafter_is_of_its_kind_and_names_its_target(kind):
    tensors, config = read_checkpoint(FOLDERS[kind])
    assert kind_of(FOLDERS[kind]) == kind.removesuffix(BARELY)
    assert config["target_sha256"] == DEFAULT_MODEL.file.sha256
    assert not any("embed" in key for key in tensors)
    assert all(tensor.dtype == torch.bfloat16 for tensor in tensors.values() if tensor.is_floating_point())


def test_all_together_are_small():
    sizes = [sum(file.stat().st_size for file in folder.glob("*.safetensors")) for folder in FOLDERS.values()]
    assert all(sizes)
    assert sum(sizes) <= MOST_BYTES


@pytest.mark.parametrize("kind", FOLDERS)
def test_the_card_tells_the_figures_of_the_config(kind):
    card = (FOLDERS[kind] / "README.md").read_text(encoding="utf-8")
    config = json.loads((FOLDERS[kind] / "config.json").read_text(encoding="utf-8"))
    tokens = config["training"]["train_tokens"]
    assert kind.endswith(BARELY) or f"{tokens:,} tokens" in card
    assert config["target_sha256"] in card


@pytest.mark.parametrize("kind", [kind for kind in FOLDERS if not kind.endswith(BARELY)])
def test_the_curve_has_at_least_five_checkpoints_and_rises(kind):
    """What training buys: tokens per target pass of the held-out simulation against training tokens."""
    points = json.loads((FOLDERS[kind] / "curve.json").read_text(encoding="utf-8"))["points"]
    tokens = [point["train_tokens"] for point in points]
    assert len(points) >= 5
    assert tokens == sorted(tokens)
    assert points[-1]["tree_tokens"] > points[0]["tree_tokens"]
