"""The EAGLE layer: cache and masks change nothing, refusals, agreement with recordings of the original code."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from explorer.drafters.eagle_head import load_eagle
from explorer.errors import ExplorerError

CONFORMANCE = Path(__file__).parent.parent / "data" / "conformance"


def load(folder, matrices):
    embed_weight, output_weight = matrices
    return load_eagle(folder, embed_weight=embed_weight, output_weight=output_weight, device="cpu", dtype=torch.float32)


@pytest.fixture
def head(write_folder, eagle_tensors, eagle_config, matrices):
    return load(write_folder(eagle_tensors, eagle_config), matrices)


def slots(count, seed=0):
    """Random token ids (T,) and features (T, h)."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(48, (count,), generator=generator), torch.randn(count, 32, generator=generator)


def causal_mask(rows, seen):
    return torch.full((rows, seen), float("-inf")).triu(seen - rows + 1)


@pytest.mark.parametrize("cuts", [[1] * 9, [4, 5], [2, 6, 1]])
def test_piecewise_forward_equals_one_causal_forward(head, cuts):
    tokens, features = slots(9)
    whole = head(tokens, features, torch.arange(9), head.new_cache(9))
    cache = head.new_cache(16)
    parts, start = [], 0
    for count in cuts:
        rows = slice(start, start + count)
        parts.append(head(tokens[rows], features[rows], torch.arange(9)[rows], cache))
        start += count
    assert cache.length == 9
    torch.testing.assert_close(torch.cat(parts), whole, atol=1e-4, rtol=1e-4)


def test_a_long_prompt_in_query_blocks_equals_one_masked_pass(head):
    tokens, features = slots(600)
    blocks = head(tokens, features, torch.arange(600), head.new_cache(600))
    masked = head(tokens, features, torch.arange(600), head.new_cache(600), causal_mask(600, 600))
    torch.testing.assert_close(blocks, masked, atol=1e-4, rtol=1e-4)


def test_tree_rows_equal_the_chain_of_their_path(head):
    """Two branches below one stem, run as one masked pass, against each branch run alone as a chain."""
    stem_tokens, stem_features = slots(5)
    tokens, features = slots(4, seed=1)
    parents = [-1, -1, 0, 1]
    mask = torch.full((4, 9), float("-inf"))
    mask[:, :5] = 0
    for row, parent in enumerate(parents):
        mask[row, 5 + row] = 0
        if parent >= 0:
            mask[row, 5 + parent] = 0
    cache = head.new_cache(9)
    head(stem_tokens, stem_features, torch.arange(5), cache)
    rows = head(tokens, features, torch.tensor([5, 5, 6, 6]), cache, mask)
    for path in ([0, 2], [1, 3]):
        cache.truncate(5)
        chain = head(tokens[path], features[path], torch.tensor([5, 6]), cache)
        torch.testing.assert_close(rows[path], chain, atol=1e-4, rtol=1e-4)


def test_truncate_forgets_and_the_cache_guards_its_bounds(head):
    tokens, features = slots(6)
    cache = head.new_cache(7)
    expected = head(tokens, features, torch.arange(6), cache)[4:]
    cache.truncate(4)
    torch.testing.assert_close(
        head(tokens[4:], features[4:], torch.arange(4, 6), cache), expected, atol=1e-4, rtol=1e-4
    )
    with pytest.raises(ValueError, match="holds 7 slots, 8 are needed"):
        head(tokens[:2], features[:2], torch.arange(6, 8), cache)
    with pytest.raises(ValueError, match="Cannot truncate"):
        cache.truncate(99)


def test_positions_matter_only_by_their_distance(head):
    """Rotary embedding: moving all slots by the same distance changes nothing."""
    tokens, features = slots(5)
    here = head(tokens, features, torch.arange(5), head.new_cache(64))
    there = head(tokens, features, torch.arange(40, 45), head.new_cache(64))
    torch.testing.assert_close(here, there, atol=1e-4, rtol=1e-4)
    stretched = head(tokens, features, torch.arange(0, 10, 2), head.new_cache(64))
    assert not torch.allclose(here, stretched, atol=1e-3)


def test_log_probs_over_the_draft_vocabulary(write_folder, eagle_tensors, eagle_config, matrices, token_map, head):
    reduced = load(write_folder(eagle_tensors | {"token_map": token_map.int()}, eagle_config), matrices)
    features = slots(3)[1]
    logits = (features @ matrices[1].T)[:, token_map]
    torch.testing.assert_close(reduced.log_probs(features), logits.log_softmax(-1))
    assert head.log_probs(features).shape == (3, 48)
    half = reduced.to(torch.bfloat16).log_probs(features.bfloat16())
    assert half.dtype == torch.float32


def test_the_target_embedding_is_shared_not_copied(head, matrices):
    assert head.embed_weight.data_ptr() == matrices[0].data_ptr()


def test_an_own_embedding_wins(write_folder, eagle_tensors, eagle_config, matrices):
    own = torch.randn(48, 32, generator=torch.Generator().manual_seed(9))
    head = load(write_folder(eagle_tensors | {"embed_tokens.weight": own}, eagle_config), matrices)
    assert torch.equal(head.embed_weight, own)
    assert head.info.parameters == sum(tensor.numel() for tensor in eagle_tensors.values()) + own.numel()


def test_export_round_trip_holds_no_tensor_of_the_target(head, write_folder, eagle_tensors, eagle_config, matrices):
    exported = head.export()
    assert set(exported) == set(eagle_tensors)
    again = load(write_folder(exported, eagle_config), matrices)
    assert torch.equal(again.fc.weight, head.fc.weight.bfloat16().float())
    assert again.info.bytes == 2 * again.info.parameters
    assert again.info.target_sha256 == "ab" * 32


def test_absent_rope_base_means_ten_thousand(write_folder, eagle_tensors, eagle_config, matrices):
    del eagle_config["rope_theta"], eagle_config["num_key_value_heads"]
    tensors = eagle_tensors | {f"layers.0.self_attn.{name}_proj.weight": torch.zeros(32, 32) for name in ("k", "v")}
    shape = load(write_folder(tensors, eagle_config), matrices).shape
    assert (shape.rope_theta, shape.num_kv_heads) == (10000.0, 4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fc.weight": None}, "no drafter that is known"),
        ({"layers.0.mlp.up_proj.weight": None}, r"lacks the tensor layers\.0\.mlp\.up_proj\.weight"),
        ({"layers.0.mlp.up_proj.weight": torch.zeros(3, 3)}, r"has shape \(3, 3\)"),
        ({"layers.0.input_layernorm.weight": torch.zeros(32)}, "not a plain EAGLE head"),
        ({"d2t": torch.zeros(4, dtype=torch.long)}, "not a plain EAGLE head: it has the tensor d2t"),
        ({"embed_tokens.weight": torch.zeros(47, 32)}, r"has shape \(47, 32\)"),
        ({"token_map": torch.tensor([-1])}, "outside the target's 48"),
    ],
)
def test_malformed_checkpoints_are_refused(write_folder, eagle_tensors, eagle_config, matrices, change, message):
    tensors = {name: tensor for name, tensor in (eagle_tensors | change).items() if tensor is not None}
    with pytest.raises(ExplorerError, match=message):
        load(write_folder(tensors, eagle_config), matrices)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("num_attention_heads", "four", "positive whole number for num_attention_heads"),
        ("num_attention_heads", 3, "do not fit its tensors"),
        ("rope_theta", -1, "positive number for rope_theta"),
    ],
)
def test_wrong_configs_are_refused(write_folder, eagle_tensors, eagle_config, matrices, key, value, message):
    with pytest.raises(ExplorerError, match=message):
        load(write_folder(eagle_tensors, eagle_config | {key: value}), matrices)


def test_a_head_of_another_target_is_refused(write_folder, eagle_tensors, eagle_config):
    other = (torch.zeros(48, 16), torch.zeros(48, 16))
    with pytest.raises(ExplorerError, match="hidden size 32, the target has 16"):
        load(write_folder(eagle_tensors, eagle_config), other)


def test_figures_of_the_original_code():
    inputs = load_file(CONFORMANCE / "drafter_inputs.safetensors")
    output_weight = inputs["lm_head.weight"]
    head = load(CONFORMANCE / "eagle-draft", (output_weight, output_weight))  # it brings its own embedding
    recorded = json.loads((CONFORMANCE / "numerics_eagle.json").read_text())["results"]
    assert len(recorded) == 4
    for record in recorded:
        ids, features = inputs[f"ids.{record['id']}"], inputs[f"features.{record['id']}"]
        tokens = torch.cat((ids[1:], torch.tensor([record["root"]])))
        predicted = head(tokens, features, torch.arange(len(ids)), head.new_cache(len(ids)))[-1:]
        expected = torch.tensor(record["eagle12_draft_out_hidden_last_pos"])
        torch.testing.assert_close(predicted[0], expected, atol=1e-5, rtol=1e-5)
        best = head.log_probs(predicted)[0].topk(10)
        assert best.indices.tolist() == record["eagle12_draft_logprobs_top10"]["ids"]
        values = torch.tensor(record["eagle12_draft_logprobs_top10"]["values"])
        torch.testing.assert_close(best.values, values, atol=1e-5, rtol=1e-5)
