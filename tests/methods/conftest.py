"""The tiny target and the recordings of the original implementations (tests/data/conformance/README.md)."""

from __future__ import annotations

import pytest
import torch

from explorer.drafters.eagle3_checkpoint import load_eagle3
from explorer.drafters.eagle_head import load_eagle
from explorer.drafters.medusa_heads import load_medusa
from explorer.load import load_target
from tests.lanes import Bench
from tests.methods.recordings import CONFORMANCE


@pytest.fixture(scope="session")
def tiny() -> Bench:
    """The tiny trained target that the recordings were made with, and its drafters."""
    target = load_target(CONFORMANCE / "tiny-target", model_id="tiny", label="tiny", device="cpu", dtype="float32")
    place = {"device": target.device, "dtype": target.dtype}
    embed, output = target.embed_weight, target.output_weight
    drafters = {
        "medusa": load_medusa(CONFORMANCE / "medusa-heads", output_weight=output, **place),
        "eagle": load_eagle(CONFORMANCE / "eagle-draft", embed_weight=embed, output_weight=output, **place),
        "eagle3": load_eagle3(CONFORMANCE / "eagle3-draft", embed_weight=embed, num_layers=target.num_layers, **place),
    }
    assert target.dtype == torch.float32
    return Bench(target._model, target, drafters)
