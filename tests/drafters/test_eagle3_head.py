"""The EAGLE-3 layer: cache and masks change nothing, its variants, agreement with recordings of the original code."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from explorer.drafters.eagle3_checkpoint import load_eagle3
from explorer.drafters.eagle3_head import Eagle3Head, Eagle3Shape, default_aux_layers
from explorer.errors import ExplorerError
from explorer.load import load_target
from explorer.target import TAP_LAST, tap_hidden

CONFORMANCE = Path(__file__).parent.parent / "data" / "conformance"
SHAPE = Eagle3Shape(32, 40, num_heads=4, num_kv_heads=2, head_dim=8, rms_norm_eps=1e-5, draft_vocab_size=20)
VARIANTS = {
    "plain": SHAPE,
    "norm_before_residual": replace(SHAPE, norm_before_residual=True),
    "norm_before_fc": replace(SHAPE, norm_before_fc=True),
    "fc_norm": replace(SHAPE, fc_norm=True),
    "norm_output": replace(SHAPE, norm_output=True),
    "head_dim": replace(SHAPE, head_dim=12),
    "biases and head norms": replace(SHAPE, qkv_bias=True, qk_norm=True),
    "another width": replace(SHAPE, target_hidden_size=24, own_embedding=48),
    "five taps": replace(SHAPE, taps=5),
}


def random_head(shape: Eagle3Shape, **options) -> Eagle3Head:
    generator = torch.Generator().manual_seed(1)
    head = Eagle3Head(shape, **options)
    with torch.no_grad():
        for name, parameter in head.named_parameters():
            scale = 0.3 if parameter.ndim > 1 else 0.1
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale + ("norm" in name))
    head.bind(torch.randn(48, 32, generator=generator))
    return head.eval()


def slots(count, seed=0, width=96):
    """Random token ids (T,) and taps (T, width)."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(48, (count,), generator=generator), torch.randn(count, width, generator=generator)


@pytest.mark.parametrize("shape", VARIANTS.values(), ids=VARIANTS.keys())
@torch.no_grad()
def test_piecewise_forward_equals_one_causal_forward(shape):
    head = random_head(shape)
    tokens, taps = slots(9, width=shape.taps * shape.tap_size)
    features = head.fuse_features(taps)
    whole = head(tokens, features, torch.arange(9), head.new_cache(9))
    cache, parts, start = head.new_cache(16), [], 0
    for count in (2, 6, 1):
        rows = slice(start, start + count)
        parts.append(head(tokens[rows], features[rows], torch.arange(9)[rows], cache))
        start += count
    torch.testing.assert_close(torch.cat(parts), whole, atol=1e-4, rtol=1e-4)
    assert head.log_probs(whole).shape == (9, 20)
    torch.testing.assert_close(head.log_probs(whole).exp().sum(-1), torch.ones(9))


def norm(x, weight, eps=1e-5):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


@pytest.mark.parametrize("name", ["plain", "norm_before_residual", "norm_before_fc", "fc_norm", "norm_output"])
@torch.no_grad()
def test_a_single_slot_follows_the_formula(name):
    """At position 0 the attention returns the slot's own value, so that the whole layer can be written down."""
    head = random_head(VARIANTS[name])
    at = dict(head.named_parameters())
    tokens, taps = slots(1)
    fused = taps
    if name == "norm_before_fc":
        fused = norm(taps, at["input_norm.weight"])
    if name == "fc_norm":
        fused = torch.cat([norm(taps[:, 32 * i : 32 * i + 32], at[f"fc_norm.{i}.weight"]) for i in range(3)], dim=-1)
    g = fused @ at["fc.weight"].T
    normed = norm(g, at["midlayer.hidden_norm.weight"])
    embedded = norm(head.embed_weight[tokens], at["midlayer.input_layernorm.weight"])
    value = torch.cat((embedded, normed), dim=-1) @ at["midlayer.self_attn.v_proj.weight"].T  # two heads of 8
    heads = value.view(2, 8).repeat_interleave(2, dim=0).reshape(1, 32)
    residual = normed if name == "norm_before_residual" else g
    y = residual + heads @ at["midlayer.self_attn.o_proj.weight"].T
    inner = norm(y, at["midlayer.post_attention_layernorm.weight"])
    gated = F.silu(inner @ at["midlayer.mlp.gate_proj.weight"].T) * (inner @ at["midlayer.mlp.up_proj.weight"].T)
    raw = y + gated @ at["midlayer.mlp.down_proj.weight"].T
    last = norm(raw, at["norm.weight"])
    out = head(tokens, head.fuse_features(taps), torch.zeros(1, dtype=torch.long), head.new_cache(1))
    torch.testing.assert_close(out, last if name == "norm_output" else raw, atol=1e-4, rtol=1e-4)
    expected = (last @ at["lm_head.weight"].T).log_softmax(-1)
    torch.testing.assert_close(head.log_probs(out), expected, atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_tree_rows_equal_the_chain_of_their_path():
    head = random_head(SHAPE)
    stem_tokens, stem_taps = slots(5)
    tokens, features = slots(4, seed=1, width=32)
    mask = torch.full((4, 9), float("-inf"))
    mask[:, :5] = 0
    for row, parent in enumerate([-1, -1, 0, 1]):
        mask[row, 5 + row] = 0
        if parent >= 0:
            mask[row, 5 + parent] = 0
    cache = head.new_cache(9)
    head(stem_tokens, head.fuse_features(stem_taps), torch.arange(5), cache)
    rows = head(tokens, features, torch.tensor([5, 5, 6, 6]), cache, mask)
    for path in ([0, 2], [1, 3]):
        cache.truncate(5)
        chain = head(tokens[path], features[path], torch.tensor([5, 6]), cache)
        torch.testing.assert_close(rows[path], chain, atol=1e-4, rtol=1e-4)


def test_only_a_deep_enough_target_has_default_taps():
    assert default_aux_layers(30) == (2, 15, 27)
    assert default_aux_layers(8) == (2, 4, 5)
    for layers in (4, 5, 6):
        with pytest.raises(ExplorerError, match=f"target of {layers} layers"):
            default_aux_layers(layers)
    assert Eagle3Head(SHAPE, aux_layers=(1, 2, 3)).taps_of(4) == (1, 2, 3)


def test_a_target_of_another_width_is_refused_unless_the_layer_has_its_own_embedding():
    with pytest.raises(ExplorerError, match="hidden size 32, the target has 24"):
        Eagle3Head(SHAPE).bind(torch.zeros(48, 24))
    head = Eagle3Head(replace(SHAPE, target_hidden_size=24, own_embedding=48))
    head.bind(torch.zeros(48, 24))
    assert head.embed_weight.shape == (48, 32)


@torch.no_grad()
def test_figures_of_the_original_code():
    target = load_target(CONFORMANCE / "tiny-target", model_id="tiny", label="tiny", device="cpu", dtype="float32")
    head = load_eagle3(
        CONFORMANCE / "eagle3-draft",
        embed_weight=target.embed_weight,
        num_layers=target.num_layers,
        device="cpu",
        dtype=torch.float32,
    )
    taps = [tap_hidden(layer) for layer in head.taps_of(target.num_layers)]
    prompts = load_file(CONFORMANCE / "drafter_inputs.safetensors")
    recorded = json.loads((CONFORMANCE / "numerics_eagle.json").read_text())["results"]
    assert len(recorded) == 4
    for record in recorded:
        ids = prompts[f"ids.{record['id']}"]
        prefill = target.prefill(ids.tolist(), taps=frozenset({*taps, TAP_LAST}))
        read = torch.cat([prefill.taps[tap] for tap in taps], dim=-1)
        first = torch.tensor(record["eagle3_target_hidden_inputs_of_layers_2_4_5_last_pos_first8"])
        torch.testing.assert_close(read[-1].view(3, -1)[:, :8], first, atol=2e-5, rtol=1e-5)
        features = head.fuse_features(read)
        torch.testing.assert_close(features[-1], torch.tensor(record["eagle3_fc_out_last_pos"]), atol=2e-5, rtol=1e-5)
        tokens = torch.cat((ids[1:], torch.tensor([record["root"]])))
        predicted = head(tokens, features, torch.arange(len(ids)), head.new_cache(len(ids)))[-1:]
        expected = torch.tensor(record["eagle3_draft_out_hidden_last_pos"])
        torch.testing.assert_close(predicted[0], expected, atol=5e-5, rtol=1e-5)
        best = head.log_probs(predicted)[0].topk(10)
        figures = record["eagle3_draft_logprobs_top10"]
        torch.testing.assert_close(best.values, torch.tensor(figures["values"]), atol=2e-5, rtol=1e-5)
        assert best.indices.tolist() == figures["draft_ids"]
        assert head.token_map[best.indices].tolist() == figures["target_ids"]
