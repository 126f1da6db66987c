"""Parts that the EAGLE layers share: rotary positions as transformers computes them, and their fused products."""

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from explorer.drafters.layers import rope_table
from explorer.products import FusedPart, fuse_layer, pack_linears
from explorer.toy import toy_drafter, toy_target

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
SCALINGS = [
    None,
    {"rope_type": "linear", "factor": 4.0},
    LLAMA3 | {"original_max_position_embeddings": 64},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
]


@pytest.mark.parametrize("scaling", SCALINGS, ids=lambda each: each["rope_type"] if each else "default")
def test_rotary_tables_are_those_of_transformers(scaling):
    config = LlamaConfig(
        head_dim=16,
        max_position_embeddings=256,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0} | (scaling or {}),
    )
    positions = torch.arange(200)
    expected = LlamaRotaryEmbedding(config)(torch.zeros(1), positions[None])
    found = rope_table(200, 16, 500.0, scaling)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", ["eagle", "eagle3"])
def test_a_fused_layer_drafts_what_the_plain_one_drafts(kind: str, dtype: torch.dtype) -> None:
    """And its tensors can still be exported."""
    target = toy_target(dtype=dtype)
    plain, fused = toy_drafter(kind, target), toy_drafter(kind, target)
    fuse_layer(fused.layer.self_attn, fused.layer.mlp, keep_weights=True)
    pack_linears(fused, keep_weights=True)
    assert isinstance(fused.layer.self_attn.q_proj, FusedPart)
    token_ids, positions = torch.tensor([3, 1, 4, 1, 5]), torch.arange(5)
    features = torch.randn(5, target.hidden_size, generator=torch.Generator().manual_seed(2)).to(dtype)
    close = {"atol": 1e-5, "rtol": 1e-4} if dtype == torch.float32 else {"atol": 0.05, "rtol": 0.05}
    with torch.inference_mode():
        outputs = [head(token_ids, features, positions, head.new_cache(9)) for head in (plain, fused)]
        torch.testing.assert_close(outputs[1], outputs[0], **close)
        torch.testing.assert_close(fused.log_probs(outputs[0]), plain.log_probs(outputs[0]), **close)
    exported = [head.export() for head in (plain, fused)]
    assert exported[0].keys() == exported[1].keys()
    assert all(torch.equal(tensor, exported[1][name]) for name, tensor in exported[0].items())
