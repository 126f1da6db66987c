"""The trained drafters that ship: loadable, small, honest about what they are for."""

import json
from pathlib import Path

import pytest
import torch

from explorer.catalogue import DEFAULT_MODEL
from explorer.drafters.checkpoint import read_checkpoint
from explorer.drafters.eagle_head import load_eagle
from explorer.drafters.medusa_heads import load_medusa

ASSETS = Path(__file__).parent.parent.parent / "assets" / "drafters"
VOCAB, HIDDEN = 49152, 576
NAMES = ["smollm2-135m-medusa", "smollm2-135m-eagle"]


@pytest.fixture(scope="module")
def matrix():
    """Stands for the target's matrices: the shapes are what the loaders check."""
    return torch.zeros(VOCAB, HIDDEN, dtype=torch.bfloat16)


def test_medusa_loads_with_the_accuracies_that_its_tree_is_built_from(matrix):
    heads = load_medusa(ASSETS / "smollm2-135m-medusa", output_weight=matrix, device="cpu", dtype=torch.bfloat16)
    assert (heads.num_heads, heads.hidden_size, len(heads.token_map)) == (5, HIDDEN, 8192)
    first_ranks = [row[0] for row in heads.accuracies]
    assert len(first_ranks) == 5
    assert first_ranks == sorted(first_ranks, reverse=True)  # later tokens are harder
    assert all(len(row) == 10 and row[0] == max(row) for row in heads.accuracies)


def test_eagle_loads_and_gives_finite_features(matrix):
    head = load_eagle(
        ASSETS / "smollm2-135m-eagle",
        embed_weight=matrix,
        output_weight=matrix,
        device="cpu",
        dtype=torch.bfloat16,
    )
    assert (head.hidden_size, head.shape.num_kv_heads, len(head.token_map)) == (HIDDEN, 3, 8192)
    features = torch.ones(4, HIDDEN, dtype=torch.bfloat16)
    out = head(torch.arange(4), features, torch.arange(4), head.new_cache(8))
    assert torch.isfinite(out).all()


@pytest.mark.parametrize("name", NAMES)
def test_a_drafter_names_its_target_and_holds_nothing_of_it(name):
    tensors, config = read_checkpoint(ASSETS / name)
    assert config["target_sha256"] == DEFAULT_MODEL.file.sha256
    assert not any("embed" in key or "lm_head" in key for key in tensors)
    assert all(tensor.dtype == torch.bfloat16 for key, tensor in tensors.items() if key != "token_map")
    assert (ASSETS / name / "model.safetensors").stat().st_size < 9_000_000


@pytest.mark.parametrize("name", NAMES)
def test_the_card_tells_the_figures_of_the_config(name):
    card = (ASSETS / name / "README.md").read_text(encoding="utf-8")
    config = json.loads((ASSETS / name / "config.json").read_text(encoding="utf-8"))
    facts = config["training"]
    assert f"{facts['train_tokens']:,} tokens" in card
    assert f"{facts['held_out']['chain_tokens']:.2f} tokens per target pass" in card.replace("\n", " ")
    assert config["target_sha256"] in card
