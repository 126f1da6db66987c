"""Small random drafters and target matrices."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from explorer.drafters.eagle_head import EagleHead, EagleShape

HIDDEN, VOCAB, KEPT = 32, 48, 20
SHAPE = EagleShape(HIDDEN, 40, num_heads=4, num_kv_heads=2, head_dim=8, rms_norm_eps=1e-5, rope_theta=500.0)


def random_tensor(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * 0.3


@pytest.fixture
def matrices() -> tuple[Tensor, Tensor]:
    """Embedding and output matrix of a target, (V, h) each."""
    return random_tensor(1, VOCAB, HIDDEN), random_tensor(2, VOCAB, HIDDEN)


@pytest.fixture
def token_map() -> Tensor:
    return torch.randperm(VOCAB, generator=torch.Generator().manual_seed(3))[:KEPT]


@pytest.fixture
def eagle_tensors() -> dict[str, Tensor]:
    """A random EAGLE checkpoint under the public names."""
    head = EagleHead(SHAPE)
    return {
        name: random_tensor(10 + number, *parameter.shape)
        for number, (name, parameter) in enumerate(head.named_parameters())
    }


@pytest.fixture
def eagle_config() -> dict[str, Any]:
    return {
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 40,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500.0,
        "target_sha256": "ab" * 32,
    }


@pytest.fixture
def medusa_tensors() -> dict[str, Tensor]:
    """Three random heads without own output matrix."""
    tensors = {f"{i}.0.linear.weight": random_tensor(30 + i, HIDDEN, HIDDEN) for i in range(3)}
    return tensors | {f"{i}.0.linear.bias": random_tensor(40 + i, HIDDEN) for i in range(3)}


@pytest.fixture
def write_folder(tmp_path: Path) -> Callable[[dict[str, Tensor], dict[str, Any]], Path]:
    """Write a checkpoint folder as other tools do."""

    def write(tensors: dict[str, Tensor], config: dict[str, Any]) -> Path:
        folder = tmp_path / "drafter"
        folder.mkdir(exist_ok=True)
        save_file(tensors, folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        return folder

    return write
