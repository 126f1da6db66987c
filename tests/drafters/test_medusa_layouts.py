"""Medusa heads in every public layout give what the formula gives; what does not fit together is refused."""

import json
from types import MappingProxyType

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from explorer.drafters.medusa_heads import load_medusa
from explorer.errors import ExplorerError
from tests.drafters.conftest import HIDDEN, KEPT, VOCAB, random_tensor

HEADS = 3
WEIGHTS = tuple(random_tensor(30 + i, HIDDEN, HIDDEN) for i in range(HEADS))
SECOND = tuple(random_tensor(60 + i, HIDDEN, HIDDEN) for i in range(HEADS))
BIASES = tuple(random_tensor(40 + i, HIDDEN) for i in range(HEADS))
OUTPUTS = tuple(random_tensor(50 + i, VOCAB, HIDDEN) for i in range(HEADS))
BASE = random_tensor(2, VOCAB, HIDDEN)
TOKEN_MAP = torch.randperm(VOCAB, generator=torch.Generator().manual_seed(3))[:KEPT]


def numbered(form, pieces):
    return {form.format(i=i): piece.clone() for i, piece in enumerate(pieces)}


BLOCKS = MappingProxyType(numbered("{i}.0.linear.weight", WEIGHTS) | numbered("{i}.0.linear.bias", BIASES))
VLLM = MappingProxyType(numbered("blocks.{i}.layers.0.weight", WEIGHTS))
DECODER = MappingProxyType({"model.layers.0.self_attn.q_proj.weight": torch.full((4, 4), float("nan"))})


def expected(hidden, blocks, outputs):
    """Logits (K, D) of one hidden state; blocks: per head the (weight, bias) of its layers."""
    rows = []
    for head, layers in enumerate(blocks):
        state = hidden
        for weight, bias in layers:
            state = state + F.silu(weight @ state + bias)
        rows.append(outputs[head] @ state)
    return torch.stack(rows)


ONE = [[(WEIGHTS[i], BIASES[i])] for i in range(HEADS)]
PLAIN = [[(WEIGHTS[i], torch.zeros(HIDDEN))] for i in range(HEADS)]
CASES = {
    "v0.1": (dict(BLOCKS) | numbered("{i}.1.weight", OUTPUTS), {"medusa_num_heads": 2}, ONE, OUTPUTS),
    "v2": (dict(BLOCKS), {"version": "2"}, ONE, [BASE] * HEADS),
    "v1.0, the model's own tensors unread": (
        dict(DECODER)
        | {f"medusa_head.{name}": tensor for name, tensor in BLOCKS.items()}
        | numbered("medusa_head.{i}.1.weight", OUTPUTS),
        {"model_type": "mistral"},
        ONE,
        OUTPUTS,
    ),
    "two blocks": (
        dict(BLOCKS)
        | numbered("{i}.1.linear.weight", SECOND)
        | numbered("{i}.1.linear.bias", BIASES)
        | numbered("{i}.2.weight", OUTPUTS),
        {},
        [[(WEIGHTS[i], BIASES[i]), (SECOND[i], BIASES[i])] for i in range(HEADS)],
        OUTPUTS,
    ),
    "one block shared by two layers": (
        dict(BLOCKS) | numbered("{i}.2.weight", OUTPUTS),
        {},
        [[(WEIGHTS[i], BIASES[i])] * 2 for i in range(HEADS)],
        OUTPUTS,
    ),
    "one block shared by two layers, base head": (
        dict(BLOCKS),
        {"version": "2", "medusa_num_layers": 2},
        [[(WEIGHTS[i], BIASES[i])] * 2 for i in range(HEADS)],
        [BASE] * HEADS,
    ),
    "vLLM": (dict(VLLM) | numbered("lm_heads.{i}.weight", OUTPUTS), {"model_type": "medusa"}, PLAIN, OUTPUTS),
    "vLLM with a prefix and bias": (
        {
            f"medusa_heads.{name}": tensor
            for name, tensor in (
                dict(VLLM) | numbered("blocks.{i}.layers.0.bias", BIASES) | numbered("lm_heads.{i}.weight", OUTPUTS)
            ).items()
        },
        {},
        ONE,
        OUTPUTS,
    ),
    "vLLM, one output matrix": (
        dict(VLLM) | {"lm_heads.0.weight": OUTPUTS[0]},
        {"original_lm_head": True},
        PLAIN,
        [OUTPUTS[0]] * HEADS,
    ),
    "vLLM, base head": (dict(VLLM), {}, PLAIN, [BASE] * HEADS),
    "vLLM with a token map": (
        dict(VLLM) | numbered("lm_heads.{i}.weight", [each[TOKEN_MAP] for each in OUTPUTS]) | {"token_map": TOKEN_MAP},
        {"truncated_vocab_size": KEPT},
        PLAIN,
        [each[TOKEN_MAP] for each in OUTPUTS],
    ),
    "vLLM with a token map and whole output matrices": (
        dict(VLLM) | numbered("lm_heads.{i}.weight", OUTPUTS) | {"token_map": TOKEN_MAP},
        {},
        PLAIN,
        [each[TOKEN_MAP] for each in OUTPUTS],
    ),
    "vLLM with a token map and one output matrix": (
        dict(VLLM) | {"lm_head.weight": OUTPUTS[0][TOKEN_MAP].clone(), "token_map": TOKEN_MAP},
        {},
        PLAIN,
        [OUTPUTS[0][TOKEN_MAP]] * HEADS,
    ),
}


def load(folder, output=BASE):
    return load_medusa(folder, output_weight=output, device="cpu", dtype=torch.float32)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_every_layout_gives_the_formula(write_folder, case):
    tensors, config, blocks, outputs = case
    heads = load(write_folder(tensors, config))
    hidden = random_tensor(5, HIDDEN)
    assert heads.num_heads == HEADS
    torch.testing.assert_close(heads(hidden), expected(hidden, blocks, outputs), atol=1e-5, rtol=1e-5)
    assert (heads.token_map is None) == ("token_map" not in tensors)


def test_a_pickle_in_half_precision(write_folder, tmp_path):
    folder = write_folder({"x": torch.zeros(1)}, {})
    (folder / "model.safetensors").unlink()
    half = {name: tensor.half() for name, tensor in BLOCKS.items()}
    torch.save(half, folder / "medusa_lm_head.pt")
    assert torch.equal(load(folder).weight[0, 1], half["1.0.linear.weight"].float())


def test_heads_come_from_the_shards_that_hold_them(write_folder):
    """The other shard is damaged, and never opened."""
    folder = write_folder({"x": torch.zeros(1)}, {})
    (folder / "model.safetensors").unlink()
    heads = {f"medusa_head.{name}": tensor for name, tensor in BLOCKS.items()}
    save_file(heads, folder / "model-00002-of-00002.safetensors")
    (folder / "model-00001-of-00002.safetensors").write_bytes(b"nothing")
    places = dict.fromkeys(heads, "model-00002-of-00002.safetensors")
    places["model.norm.weight"] = "model-00001-of-00002.safetensors"
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    assert torch.equal(load(folder).weight[0, 2], WEIGHTS[2])


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (dict(BLOCKS) | {"7.0.linear.weight": WEIGHTS[0].clone()}, "not numbered in order"),
        (dict(BLOCKS) | {"0.999.weight": OUTPUTS[0].clone()}, "not numbered in order"),
        (
            dict(BLOCKS) | {"0.1.weight": OUTPUTS[0].clone(), "1.2.weight": OUTPUTS[1].clone()},
            "behind their last block",
        ),
        (dict(BLOCKS) | {"lm_head.weight": OUTPUTS[0].clone()}, r"it has lm_head\.weight"),
        (dict(BLOCKS) | numbered("{i}.1.weight", [torch.zeros(47, HIDDEN)] * 3), r"shape \(47, 32\), but \(48, 32\)"),
        (dict(BLOCKS) | {"0.0.linear.weight": torch.zeros(HIDDEN, HIDDEN, dtype=torch.int8)}, "quantised"),
        (dict(VLLM) | numbered("lm_heads.{i}.weight", OUTPUTS[:2]), r"lacks the tensor 2\.1\.weight"),
    ],
)
def test_heads_that_do_not_fit_together_are_refused(write_folder, tensors, message):
    with pytest.raises(ExplorerError, match=message):
        load(write_folder(tensors, {}))


def test_a_config_may_not_ask_for_endless_layers(write_folder):
    with pytest.raises(ExplorerError, match="not numbered in order"):
        load(write_folder(dict(BLOCKS), {"medusa_num_layers": 10**9}))
