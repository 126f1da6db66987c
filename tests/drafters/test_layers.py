"""Parts that the EAGLE layers share: rotary positions as transformers computes them."""

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from explorer.drafters.layers import rope_table

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
