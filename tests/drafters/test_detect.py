"""The kind of a checkpoint is told from names and shapes; what is none is refused with what it is."""

from pathlib import Path

import pytest
import torch

from explorer.drafters.detect import detect
from explorer.drafters.loading import kind_of, load
from explorer.errors import ExplorerError
from explorer.toy import toy_target
from tests.drafters.conftest import HIDDEN

CONFORMANCE = Path(__file__).parent.parent / "data" / "conformance"
EAGLE = {"fc.weight": (8, 16), "layers.0.self_attn.q_proj.weight": (8, 8)}
EAGLE3 = {"fc.weight": (8, 24), "midlayer.self_attn.q_proj.weight": (8, 16)}
LLAMA = {"model.embed_tokens.weight": (9, 8), "model.layers.0.self_attn.q_proj.weight": (8, 8)}


def prefixed(shapes, prefix):
    return {f"{prefix}{name}": shape for name, shape in shapes.items()}


@pytest.mark.parametrize(
    ("shapes", "kind"),
    [
        ({"0.0.linear.weight": (8, 8)}, "medusa"),
        ({"medusa_head.0.0.linear.weight": (8, 8)} | LLAMA, "medusa"),
        ({"blocks.0.layers.0.weight": (8, 8), "lm_heads.0.weight": (9, 8)}, "medusa"),
        (EAGLE, "eagle"),
        (EAGLE | {"embed_tokens.weight": (9, 8)}, "eagle"),
        (prefixed(EAGLE, "model."), "eagle"),
        ({"fusion_fc.weight": (8, 16), "transformer.self_attn.q_proj.weight": (8, 8)}, "eagle"),
        (EAGLE3, "eagle3"),
        ({"fc.weight": (8, 24), "layers.0.self_attn.q_proj.weight": (8, 16)}, "eagle3"),
        (prefixed(EAGLE3, "module.model."), "eagle3"),
        ({"fc.weight": (8, 16), "midlayer.self_attn.q_proj.weight": (8, 16)}, "eagle3"),
        (LLAMA, "draft-model"),
        ({"transformer.wte.weight": (9, 8), "transformer.h.0.attn.c_attn.weight": (8, 24)}, "draft-model"),
        ({"gpt_neox.embed_in.weight": (9, 8), "gpt_neox.layers.0.attention.dense.weight": (8, 8)}, "draft-model"),
        ({"layers.0.input_layernorm.weight": (8,), "norm.weight": (8,)}, "draft-model"),
    ],
)
def test_kinds(shapes, kind):
    assert detect(shapes) == kind


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({}, "there is no tensor in them"),
        ({"classifier.weight": (2, 2)}, "no drafter that is known .*begin with classifier"),
        ({"layers.0.self_attn.q_proj.weight": (8, 8)}, "no drafter that is known"),
        ({"base_model.model.layers.0.q_proj.lora_A.weight": (2, 2)}, "is a LoRA adapter"),
        (EAGLE3 | {"mask_hidden": (1, 24)}, "parallel-drafting"),
        ({"emb.0.weight": (9, 8), "proj.0.weight": (8, 8)}, "an MLP speculator"),
    ],
)
def test_what_is_no_drafter_is_named(shapes, message):
    with pytest.raises(ExplorerError, match=message):
        detect(shapes, "some folder")


@pytest.mark.parametrize(
    ("folder", "kind"),
    [("medusa-heads", "medusa"), ("eagle-draft", "eagle"), ("eagle3-draft", "eagle3"), ("tiny-target", "draft-model")],
)
def test_kinds_of_whole_folders(folder, kind):
    assert kind_of(CONFORMANCE / folder) == kind


def test_a_folder_of_another_kind_than_asked_for_is_refused(write_folder, medusa_tensors):
    folder = write_folder(medusa_tensors, {})
    target = toy_target(hidden_size=HIDDEN)
    assert load(None, folder, target).num_heads == load("medusa", folder, target, dtype=torch.float32).num_heads == 3
    with pytest.raises(ExplorerError, match="is a set of Medusa heads, not an EAGLE head"):
        load("eagle", folder, target)
    with pytest.raises(ExplorerError, match="no drafter kind 'hydra'; there is medusa, eagle, eagle3, draft-model"):
        load("hydra", folder, target)


def test_what_a_config_claims_counts_for_nothing(write_folder, medusa_tensors):
    claims = {"model_type": "eagle3", "architectures": ["LlamaForCausalLMEagle3"], "speculators_model_type": "eagle3"}
    assert kind_of(write_folder(medusa_tensors, claims)) == "medusa"
