"""Medusa heads: the formula, the layouts, the refusals, and agreement with recordings of the original code."""

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from explorer.drafters.medusa_heads import load_medusa
from explorer.errors import ExplorerError

CONFORMANCE = Path(__file__).parent.parent / "data" / "conformance"


def load(folder, output_weight):
    return load_medusa(folder, output_weight=output_weight, device="cpu", dtype=torch.float32)


def test_logits_follow_the_formula(write_folder, medusa_tensors, matrices):
    output = matrices[1]
    heads = load(write_folder(medusa_tensors, {}), output)
    hidden = torch.randn(7, 32, generator=torch.Generator().manual_seed(5))
    logits = heads(hidden)
    assert logits.shape == (3, 7, 48)
    for head in range(3):
        block = F.linear(hidden, medusa_tensors[f"{head}.0.linear.weight"], medusa_tensors[f"{head}.0.linear.bias"])
        torch.testing.assert_close(logits[head], (hidden + F.silu(block)) @ output.T)
    torch.testing.assert_close(heads(hidden[4]), logits[:, 4])


def test_a_token_map_keeps_the_rows_of_the_draft_vocabulary(write_folder, medusa_tensors, matrices, token_map):
    full = load(write_folder(medusa_tensors, {}), matrices[1])
    reduced = load(write_folder(medusa_tensors | {"token_map": token_map.int()}, {}), matrices[1])
    hidden = torch.randn(32, generator=torch.Generator().manual_seed(6))
    assert reduced.token_map is not None
    assert reduced.token_map.dtype == torch.long
    torch.testing.assert_close(reduced(hidden), full(hidden)[:, token_map])


def test_heads_with_own_output_matrices_and_a_public_prefix(write_folder, medusa_tensors, matrices):
    own = {f"{i}.1.weight": torch.randn(48, 32, generator=torch.Generator().manual_seed(i)) for i in range(3)}
    prefixed = {f"medusa_head.{name}": tensor for name, tensor in (medusa_tensors | own).items()}
    heads = load(write_folder(prefixed, {"medusa_num_heads": 2}), matrices[1])
    assert heads.num_heads == 3  # as the file has them, whatever the config says
    hidden = torch.randn(32, generator=torch.Generator().manual_seed(7))
    state = hidden + F.silu(medusa_tensors["2.0.linear.weight"] @ hidden + medusa_tensors["2.0.linear.bias"])
    torch.testing.assert_close(heads(hidden)[2], own["2.1.weight"] @ state)


def test_info_and_accuracies_come_from_the_folder(write_folder, medusa_tensors, matrices):
    accuracies = [[0.3, 0.1], [0.2, 0.1], [0.1, 0.0]]
    heads = load(write_folder(medusa_tensors, {"accuracies": accuracies, "target_sha256": "cd"}), matrices[1])
    assert heads.accuracies == accuracies
    assert heads.info.parameters == 3 * (32 * 32 + 32)
    assert heads.info.bytes == 4 * heads.info.parameters
    assert heads.info.target_sha256 == "cd"


def test_export_holds_no_tensor_of_the_target(write_folder, medusa_tensors, matrices, token_map):
    heads = load(write_folder(medusa_tensors | {"token_map": token_map.int()}, {}), matrices[1])
    exported = heads.export()
    assert set(exported) == {*medusa_tensors, "token_map"}
    again = load(write_folder(exported, {}), matrices[1])
    assert torch.equal(again.weight, heads.weight.bfloat16().float())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"1.0.linear.bias": None}, r"lacks the tensor 1\.0\.linear\.bias"),
        ({"1.0.linear.bias": torch.zeros(31)}, r"has shape \(31,\), but \(32,\)"),
        ({"fc.weight": torch.zeros(2, 2)}, r"not a set of Medusa heads: it has fc\.weight"),
        ({"0.1.weight": torch.zeros(48, 32)}, r"lacks the tensor 1\.1\.weight"),
        ({"token_map": torch.tensor([1, 48])}, "outside the target's 48"),
        ({"token_map": torch.tensor([1, 1])}, "names a token twice"),
        ({"token_map": torch.tensor([0.5])}, "must be a list of token ids"),
    ],
)
def test_malformed_checkpoints_are_refused(write_folder, medusa_tensors, matrices, change, message):
    tensors = {name: tensor for name, tensor in (medusa_tensors | change).items() if tensor is not None}
    with pytest.raises(ExplorerError, match=message):
        load(write_folder(tensors, {}), matrices[1])


def test_heads_of_another_target_are_refused(write_folder, medusa_tensors):
    with pytest.raises(ExplorerError, match="hidden size 32, the target has 16"):
        load(write_folder(medusa_tensors, {}), torch.zeros(48, 16))


@pytest.mark.parametrize("accuracies", [[[0.5]], [[0.5], [2.0], [0.1]], "no"])
def test_wrong_accuracies_are_refused(write_folder, medusa_tensors, matrices, accuracies):
    with pytest.raises(ExplorerError, match="3 lists of probabilities"):
        load(write_folder(medusa_tensors, {"accuracies": accuracies}), matrices[1])


def test_figures_of_the_original_code():
    inputs = load_file(CONFORMANCE / "drafter_inputs.safetensors")
    heads = load(CONFORMANCE / "medusa-heads", inputs["lm_head.weight"])
    recorded = json.loads((CONFORMANCE / "numerics_medusa.json").read_text())["results"]
    assert len(recorded) == 4
    for record in recorded:
        best = heads(inputs[f"features.{record['id']}"][-1]).topk(10)
        assert best.indices.tolist() == record["head_top10_ids"]
        torch.testing.assert_close(best.values, torch.tensor(record["head_top10_logits"]), atol=1e-5, rtol=1e-5)
