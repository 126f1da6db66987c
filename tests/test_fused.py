"""The fused decoder computes what the model's own forward computes, and only runs where that was seen."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    Ministral3Config,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
    SmolLM3Config,
)

from explorer import attention
from explorer.fused import FusedDecoder, pack
from explorer.load import describe, packed_target
from explorer.products import FusedPart, PackedLinear, fuse_layer, fuse_linears, pack_linears
from explorer.target import TAP_LAST, TargetModel, tap_hidden
from explorer.toy import toy_tokenizer
from explorer.tree import Candidate, CandidateTree
from tests.lanes import SETTINGS, Bench, assert_same_output, decode, make_toy, setting_name

SIZES: dict[str, Any] = {
    "vocab_size": 384,
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "max_position_embeddings": 256,
    "attn_implementation": attention.install(),
}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}  # fmt: skip
KINDS: dict[str, Any] = {
    "llama": LlamaConfig(**SIZES, num_key_value_heads=2),
    "llama-one-group": LlamaConfig(**SIZES, num_key_value_heads=6),
    "llama-multi-query": LlamaConfig(**SIZES, num_key_value_heads=1),
    "llama-biased": LlamaConfig(**SIZES, num_key_value_heads=2, attention_bias=True, mlp_bias=True),
    "llama-wide-heads": LlamaConfig(**SIZES, num_key_value_heads=2, head_dim=16),
    "llama-gelu": LlamaConfig(**SIZES, num_key_value_heads=2, hidden_act="gelu"),
    "llama-3-rope": LlamaConfig(**SIZES, num_key_value_heads=2, rope_parameters=LLAMA3),
    "mistral": MistralConfig(**SIZES, num_key_value_heads=2, sliding_window=None),
    "qwen2": Qwen2Config(**SIZES, num_key_value_heads=2),
}
DTYPES = [torch.float32, torch.bfloat16]
TREE = CandidateTree(7, tuple(Candidate(11 + node, (node - 1) // 2, "test") for node in range(1, 9)))
PROMPT = [(7 * place + 3) % 200 for place in range(40)]
TAPS = frozenset({TAP_LAST, *(tap_hidden(layer) for layer in (0, 1, 2, 3))})


def seeded(config: Any, dtype: torch.dtype) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        model = AutoModelForCausalLM.from_config(config).to(dtype).eval()
        for name, parameter in model.named_parameters():  # what starts as ones and zeros would hide a mistake
            if parameter.dim() == 1:
                parameter.data.add_(0.1 * torch.randn_like(parameter) * (2 if "bias" in name else 1))
    return model


def target_of(model: Any, decoder: FusedDecoder | None = None) -> TargetModel:
    return TargetModel(model, toy_tokenizer(), describe(model, model_id="toy", label="toy"), decoder=decoder)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_a_fused_pass_is_the_model_s_own(kind: str, dtype: torch.dtype) -> None:
    plain = seeded(KINDS[kind], dtype)
    other = copy.deepcopy(plain)
    pack_linears(plain, keep=plain.get_output_embeddings())
    decoder = pack(other, keep=other.get_output_embeddings())
    assert decoder is not None
    targets = [target_of(plain), target_of(other, decoder)]
    outputs = []
    for target in targets:
        prefill = target.prefill(PROMPT, taps=TAPS)
        cache = target.new_cache(80)
        cache.copy_from(prefill.cache)
        output = target.verify(TREE, cache, taps=TAPS)
        cache.commit([0, 2, 5])
        after = target.verify(CandidateTree(9), cache, taps=TAPS)
        outputs.append({"prompt": prefill.logits, "tree": output.logits, "after": after.logits}
                       | {f"{tap} tree": state for tap, state in output.taps.items()}
                       | {f"{tap} prompt": state for tap, state in prefill.taps.items()})  # fmt: skip
    assert outputs[0].keys() == outputs[1].keys()
    for name, wanted in outputs[0].items():
        # the same bits on most processors; a kernel may be chosen by a product's width
        bound = {"atol": 1e-5, "rtol": 1e-5} if dtype == torch.float32 else {"atol": 0.02, "rtol": 0.02}
        torch.testing.assert_close(outputs[1][name], wanted, **bound, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("kind", ["llama", "qwen2", "llama-biased"])
def test_the_model_s_own_forward_still_works(kind: str) -> None:
    plain = seeded(KINDS[kind], torch.float32)
    fused = copy.deepcopy(plain)
    assert pack(fused, keep=fused.get_output_embeddings()) is not None
    token_ids = torch.tensor([PROMPT])
    with torch.inference_mode():
        torch.testing.assert_close(fused(token_ids).logits, plain(token_ids).logits, atol=1e-4, rtol=1e-4)


def test_weights_are_freed_or_kept() -> None:
    freed, kept = (seeded(KINDS["llama"], torch.float32) for _ in range(2))
    before = {name: tensor.clone() for name, tensor in kept.state_dict().items()}
    assert pack(freed, keep=freed.get_output_embeddings()) is not None
    assert pack(kept, keep=kept.get_output_embeddings(), keep_weights=True) is not None
    assert not any("proj" in name for name in freed.state_dict())
    assert kept.state_dict().keys() == before.keys()
    assert all(torch.equal(tensor, before[name]) for name, tensor in kept.state_dict().items())


OTHERS: dict[str, Any] = {
    "norms of heads": Qwen3Config(**SIZES, num_key_value_heads=2, head_dim=8),
    "queries scaled at long contexts": Ministral3Config(**SIZES, num_key_value_heads=2, head_dim=8),
    "layers without rotation": SmolLM3Config(
        **SIZES | {"num_hidden_layers": 4, "pad_token_id": 0}, num_key_value_heads=2
    ),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_another_kind_of_model_is_packed_and_not_fused(kind: str) -> None:
    """Some have a Llama's modules, and differ where a short check does not look."""
    model = seeded(OTHERS[kind], torch.float32)
    target = packed_target(target_of(model))
    assert target.decoder is None
    assert isinstance(model.model.layers[0].self_attn.q_proj, PackedLinear)


def test_a_model_whose_own_forward_is_called_is_not_fused() -> None:
    model = seeded(KINDS["llama"], torch.float32)
    assert packed_target(target_of(model), fuse=False).decoder is None
    assert isinstance(model.model.layers[0].self_attn.q_proj, PackedLinear)


class Doubled(nn.Module):
    """Looks like a Llama's norm, and is none."""

    def __init__(self, norm: Any) -> None:
        super().__init__()
        self.weight, self.variance_epsilon, self._norm = norm.weight, norm.variance_epsilon, norm

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return 2 * self._norm(rows)


@pytest.mark.parametrize("kind", ["llama", "llama-biased"])
def test_a_model_that_only_looks_like_a_llama_keeps_its_own_forward(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its fused products are taken apart again, and the log says why."""
    model = seeded(KINDS[kind], torch.float32)
    for layer in model.model.layers:
        layer.input_layernorm = Doubled(layer.input_layernorm)
    plain = copy.deepcopy(model)
    target = packed_target(target_of(model))
    assert target.decoder is None
    assert "toy runs its own forward" in caplog.text
    assert not any(isinstance(module, FusedPart) for module in model.modules())
    assert isinstance(model.model.layers[0].mlp.up_proj, PackedLinear)
    with torch.inference_mode():
        wanted = plain(torch.tensor([PROMPT])).logits[0, -1]
        torch.testing.assert_close(target.prefill(PROMPT).logits, wanted, atol=1e-4, rtol=1e-4)


def test_float64_and_mixed_modules_are_left_alone() -> None:
    model = seeded(KINDS["llama"], torch.float64)
    assert pack(model, keep=model.get_output_embeddings()) is None
    assert type(model.model.layers[0].self_attn.q_proj) is nn.Linear
    other = seeded(KINDS["llama"], torch.float32).model.layers[0].self_attn
    other.k_proj = nn.Sequential(other.k_proj)
    assert not fuse_linears(other, ("q_proj", "k_proj"))
    assert type(other.q_proj) is nn.Linear


def test_a_part_is_its_columns_of_the_whole() -> None:
    layer = seeded(KINDS["llama-biased"], torch.float32).model.layers[0].mlp
    plain = copy.deepcopy(layer)
    assert fuse_linears(layer, ("gate_proj", "up_proj"))
    rows = torch.randn(3, 48)
    assert isinstance(layer.up_proj, FusedPart)
    with torch.inference_mode():
        torch.testing.assert_close(layer.up_proj(rows), plain.up_proj(rows), atol=1e-5, rtol=1e-5)
        assert layer.gate_proj.whole(rows).shape == (3, 192)


def fused_toy() -> tuple[Bench, Bench]:
    """The same toy plain and fused, its draft model and EAGLE layers too."""
    plain, other = make_toy(1), make_toy(1)
    target = packed_target(other.target)
    assert target.decoder is not None
    drafters = dict(other.drafters)
    drafters["draft-model"] = replace(drafters["draft-model"], model=packed_target(drafters["draft-model"].model))
    for kind in ("eagle", "eagle3"):
        fuse_layer(drafters[kind].layer.self_attn, drafters[kind].layer.mlp, keep_weights=True)
    return plain, Bench(other.model, target, drafters)


@pytest.mark.parametrize("setting", SETTINGS[::4], ids=setting_name)
def test_a_fused_model_decodes_what_the_plain_one_generates(setting: tuple[str, dict[str, object]]) -> None:
    plain, fused = fused_toy()
    name, params = setting
    ids = plain.ids("1 2 3 1 2 3 1 2 3")
    assert_same_output(plain, ids, decode(fused.lane(name, params, ids=ids, budget=20)), plain.expected(ids, 20))


def test_fused_padded_passes_decode_the_same() -> None:
    plain, fused = fused_toy()
    ids = plain.ids("1 2 3 1 2 3 1 2 3")
    padded = fused.target.with_execution("static")
    assert (padded.decoder, padded.execution) == (fused.target.decoder, "static")
    bench = Bench(fused.model, padded, fused.drafters)
    assert_same_output(plain, ids, decode(bench.lane("medusa", ids=ids, budget=20)), plain.expected(ids, 20))
