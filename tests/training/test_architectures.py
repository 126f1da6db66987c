"""Targets that are no Llama: a tiny Qwen2 and a tiny GPT-2 get drafters from the same commands."""

import json

import pytest
import torch

from explorer.training import TrainOptions, train_draft_model, train_eagle, train_eagle3, train_medusa
from explorer.training.generate import Writing, write_rows
from explorer.training.target import decoder_layers, layer_sizes, load_frozen
from tests.training.conftest import chant


@pytest.fixture
def options(other_model_folder, tmp_path):
    """Data that the target really wrote, greedily: it goes on with the round of letters from the prompt's last."""
    target = load_frozen(other_model_folder, sha256="aa", dtype="float32")
    prompts = [chant(start, 2 + length) for start in range(26) for length in range(5)]
    encoded = [target.codec.encode_prompt(text) for text in prompts]
    answers = write_rows(target.model, encoded, [0.0] * len(prompts), Writing(24, frozenset(), seed=0))
    lines = [{"prompt": text, "ids": ids} for text, ids in zip(prompts, answers, strict=True)]
    path = tmp_path / "own.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return TrainOptions(
        data=path,
        model=other_model_folder,
        out=tmp_path / "drafter",
        epochs=12,
        unroll_epochs=4,
        learning_rate=5e-3,
        heads=3,
        batch_tokens=256,
        draft_vocab=384,
        target_sha256="aa",
    )


def first_point(options):
    return json.loads((options.out / "curve.json").read_text())["points"][0]


@pytest.mark.parametrize("train", [train_medusa, train_eagle, train_eagle3])
def test_training_raises_acceptance_well_over_the_start(options, train):
    report = train(options)
    start = first_point(options)
    assert start["chain_tokens"] < 1.5
    assert report.chain_tokens > start["chain_tokens"] + 1
    assert report.tree_tokens > start["tree_tokens"] + 1


def test_a_draft_model_starts_from_the_target_s_layers_where_it_has_such(options):
    report = train_draft_model(options)
    start = first_point(options)["chain_tokens"]
    copied = options.model.name.startswith("tiny-qwen2")
    assert start > 5 if copied else start < 1.5  # both layers of the tiny target are taken
    assert report.chain_tokens > 2.5


def test_sizes_come_from_each_config_under_its_own_names(other_model_folder):
    target = load_frozen(other_model_folder, sha256="aa")
    sizes = layer_sizes(target.config)
    assert (sizes.hidden_size, sizes.num_heads, sizes.head_dim) == (64, 4, 16)
    gpt2 = target.config.model_type == "gpt2"
    assert (sizes.num_kv_heads, sizes.intermediate_size) == ((4, 256) if gpt2 else (2, 96))
    assert sizes.rms_norm_eps > 0
    assert len(decoder_layers(target.model)) == (0 if gpt2 else 2)
    assert torch.equal(target.embed_weight, target.output_weight)  # both tie them
