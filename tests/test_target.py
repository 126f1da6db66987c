"""One pass over a tree gives each node what a plain causal pass over its path gives; prefill equals the model."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from explorer.errors import ExplorerError
from explorer.target import PREFILL_CHUNK_TOKENS, TAP_LAST, Riders, additive_mask, refuse_unsupported
from explorer.tree import Candidate, CandidateTree
from tests.lanes import Bench, make_toy

CLOSE = {"atol": 2e-4, "rtol": 2e-4}


@st.composite
def trees(draw: st.DrawFn) -> CandidateTree:
    parents = [draw(st.integers(0, place)) for place in range(draw(st.integers(0, 14)))]
    tokens = draw(st.lists(st.integers(0, 200), min_size=len(parents) + 1, max_size=len(parents) + 1))
    drafted = zip(tokens[1:], parents, strict=True)
    return CandidateTree(tokens[0], tuple(Candidate(token, parent, "test") for token, parent in drafted))


@settings(max_examples=20)
@given(tree=trees(), prompt=st.lists(st.integers(2, 200), min_size=1, max_size=12))
def test_tree_rows_equal_plain_logits_of_their_paths(toy: Bench, tree: CandidateTree, prompt: list[int]) -> None:
    cache = toy.target.new_cache(40)
    cache.copy_from(toy.target.prefill(prompt).cache)
    output = toy.target.verify(tree, cache)
    assert output.logits.shape == (len(tree), 384)
    for node in range(len(tree)):
        path = [tree.token_ids[each] for each in (0, *tree.path(node))]
        torch.testing.assert_close(output.logits[node], toy.logits([*prompt, *path])[-1], **CLOSE)


@settings(max_examples=20)
@given(tree=trees(), data=st.data())
def test_riders_see_what_they_say_and_disturb_no_node(toy: Bench, tree: CandidateTree, data: st.DataObject) -> None:
    """Chains of riders that may or may not see the root, each against a plain pass over just those tokens."""
    prompt = [7, 8, 9, 10]
    first = data.draw(st.lists(st.integers(0, 200), min_size=1, max_size=4), label="sees the root")
    second = data.draw(st.lists(st.integers(0, 200), min_size=1, max_size=4), label="does not")
    count = len(first) + len(second)
    visible = torch.zeros(count, 1 + count, dtype=torch.bool)
    for start, chain in ((0, first), (len(first), second)):
        for row in range(len(chain)):
            visible[start + row, 1 + start : 2 + start + row] = True
    visible[: len(first), 0] = True
    offsets = [*range(1, len(first) + 1), *range(len(second))]
    cache = toy.target.new_cache(40)
    cache.copy_from(toy.target.prefill(prompt).cache)
    plain = toy.target.verify(tree, cache).logits
    rows = toy.target.verify(tree, cache, Riders([*first, *second], offsets, visible)).logits
    torch.testing.assert_close(rows[: len(tree)], plain, **CLOSE)
    expected = toy.logits([*prompt, tree.root, *first])[len(prompt) + 1 :]
    torch.testing.assert_close(rows[len(tree) : len(tree) + len(first)], expected, **CLOSE)
    torch.testing.assert_close(rows[len(tree) + len(first) :], toy.logits([*prompt, *second])[len(prompt) :], **CLOSE)


@pytest.mark.parametrize(
    "length", [1, 2, PREFILL_CHUNK_TOKENS - 1, PREFILL_CHUNK_TOKENS, PREFILL_CHUNK_TOKENS + 1, 300]
)
def test_a_prefill_in_chunks_is_one_causal_pass(toy: Bench, length: int) -> None:
    generator = torch.Generator().manual_seed(length)
    prompt = torch.randint(2, 250, (length,), generator=generator).tolist()
    chunks = toy.target.prefill_chunks(prompt, taps=frozenset({TAP_LAST}))
    shares = []
    while True:
        try:
            shares.append(next(chunks))
        except StopIteration as end:
            prefill = end.value
            break
    assert shares[-1] == 1.0
    assert shares == sorted(shares)
    assert len(shares) == -(-length // PREFILL_CHUNK_TOKENS)
    with torch.inference_mode():
        plain = toy.model(torch.tensor([prompt]), output_hidden_states=True)
    torch.testing.assert_close(prefill.logits, plain.logits[0, -1], **CLOSE)
    torch.testing.assert_close(prefill.taps[TAP_LAST], plain.hidden_states[-1][0], **CLOSE)
    assert prefill.cache.length == length
    assert prefill.token_ids == prompt


def test_taps_are_gathered_only_when_asked_for(toy: Bench) -> None:
    assert toy.target.prefill([3, 4, 5]).taps == {}


def test_a_full_cache_is_refused_before_anything_is_written(toy: Bench) -> None:
    cache = toy.target.new_cache(5)
    cache.copy_from(toy.target.prefill([3, 4, 5]).cache)
    before = cache.rows()[0].clone()
    tree = CandidateTree(1, (Candidate(2, 0, "test"), Candidate(3, 1, "test")))
    with pytest.raises(ExplorerError, match="The cache holds 5 positions and is full"):
        toy.target.verify(tree, cache)
    assert torch.equal(cache.rows()[0], before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_mask_adds_nothing_where_a_row_may_look(dtype: torch.dtype) -> None:
    visible = torch.tensor([[True, False], [True, True]])
    mask = additive_mask(visible, 3, dtype)
    assert mask.shape == (1, 1, 2, 5)
    assert mask.dtype == dtype
    assert (mask[0, 0] == 0).tolist() == [[True] * 4 + [False], [True] * 5]
    assert mask.min() == torch.finfo(dtype).min


def test_end_tokens_are_all_that_model_and_tokenizer_name() -> None:
    assert make_toy().target.end_token_ids == {0}
    assert make_toy(end_ids=[40, 41]).target.end_token_ids == {0, 40, 41}
    bench = make_toy()
    bench.model.generation_config.eos_token_id = None
    assert bench.target.end_token_ids == {0}


def test_what_the_drafters_share_is_the_models_own(toy: Bench) -> None:
    assert toy.target.embed_weight.data_ptr() == toy.model.model.embed_tokens.weight.data_ptr()
    assert toy.target.output_weight.data_ptr() == toy.model.lm_head.weight.data_ptr()
    assert (toy.target.hidden_size, toy.target.vocabulary_tokens, toy.target.context_tokens) == (48, 384, 1024)


def config(**values: Any) -> SimpleNamespace:
    """A Llama-like description, changed."""
    base = {"model_type": "x", "num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 8}
    return SimpleNamespace(**(base | values))


@pytest.mark.parametrize(
    ("described", "reason"),
    [
        (config(architectures=["T5ForConditionalGeneration"], is_encoder_decoder=True), "encoder-decoder"),
        (config(architectures=["MambaForCausalLM"], state_size=16), "recurrent state"),
        (config(architectures=["Qwen3NextForCausalLM"], linear_conv_kernel_dim=4), "recurrent state"),
        (config(architectures=["MistralForCausalLM"], sliding_window=4096), "sliding-window"),
        (config(layer_types=["full_attention", "sliding_attention"]), "sliding-window"),
        (config(layer_types=["full_attention", "linear_attention"]), "cannot be rolled back"),
        (config(model_type="bloom"), "ALiBi"),
        (config(alibi=True), "ALiBi"),
        (SimpleNamespace(model_type="gpt2", n_layer=2), "not described the way Llama's are"),
    ],
)
def test_models_that_cannot_be_rolled_back_are_refused_by_name(described: Any, reason: str) -> None:
    name = (getattr(described, "architectures", None) or [described.model_type])[0]
    with pytest.raises(ExplorerError, match=reason) as caught:
        refuse_unsupported(described)
    assert str(caught.value).startswith(f"{name} cannot be shown: ")


@pytest.mark.parametrize(
    "described",
    [
        config(),
        config(sliding_window=None),
        config(sliding_window=4096, use_sliding_window=False),
        config(layer_types=["full_attention"] * 2),
    ],
)
def test_models_like_llama_are_taken(described: Any) -> None:
    assert refuse_unsupported(described) is None
