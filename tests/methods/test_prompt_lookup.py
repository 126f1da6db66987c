"""Prompt lookup: the same chains as transformers', spans that say where they come from."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.generation.candidate_generator import PromptLookupCandidateGenerator

from explorer.decode import Turn
from explorer.methods.base import Setup
from explorer.methods.prompt_lookup import PromptLookup, PromptLookupParams
from explorer.payloads import PromptLookupPayload
from explorer.sampling import SamplingSettings
from explorer.texts import TokenTexts
from explorer.toy import toy_tokenizer
from tests.lanes import Bench, assert_same_output, decode, make_toy
from tests.methods.laws import chance_of_worse, exact_law, sampled

TEXTS = TokenTexts(toy_tokenizer())


def method_for(params: PromptLookupParams, length: int) -> PromptLookup:
    """The method of a lane whose prompt and output together have so many tokens."""
    capacity = length + PromptLookup.max_rows(params) + params.context_branch
    return PromptLookup(params, Setup(TEXTS, None, capacity))  # type: ignore[arg-type]


def theirs(context: list[int], params: PromptLookupParams, length: int, end_ids: list[int] | None = None) -> list[int]:
    """What transformers would propose."""
    generator = PromptLookupCandidateGenerator(
        eos_token_id=None if end_ids is None else torch.tensor(end_ids),
        num_output_tokens=params.tokens,
        max_matching_ngram_size=params.max_ngram,
        max_length=length,
    )
    ids, logits = generator.get_candidates(torch.tensor([context]))
    assert logits is None
    return ids[0, len(context) :].tolist()


contexts = st.lists(st.integers(0, 3), min_size=1, max_size=40)


@given(
    context=contexts,
    max_ngram=st.integers(1, 10),
    tokens=st.integers(1, 32),
    left=st.integers(1, 40),
    branch=st.integers(0, 32),
)
def test_candidates_are_transformers(context: list[int], max_ngram: int, tokens: int, left: int, branch: int) -> None:
    """For every context and every number of tokens that are left of the budget."""
    params = PromptLookupParams(max_ngram=max_ngram, tokens=tokens, context_branch=branch)
    length = len(context) + left
    tree = method_for(params, length).propose(context).tree
    assert tree.token_ids == [context[-1], *theirs(context, params, length)]
    assert list(tree.depths) == list(range(len(tree)))


@given(context=contexts, end=st.integers(0, 3))
def test_an_end_token_is_copied_where_transformers_stops_before_it(context: list[int], end: int) -> None:
    """The named difference: the loop cuts the output behind an accepted end, which saves a pass."""
    params = PromptLookupParams()
    ours = method_for(params, 100).propose(context).tree.token_ids[1:]
    assert theirs(context, params, 100, [end]) == ours[: ours.index(end) if end in ours else None]


def payloads_of(
    bench: Bench, ids: list[int], params: dict[str, Any], budget: int
) -> list[tuple[Turn, PromptLookupPayload, list[int]]]:
    """Each turn, its payload, and all token ids before it."""
    lane = bench.lane("prompt-lookup", params, ids=ids, budget=budget)
    found, before = [], [*ids, *lane.output]
    for turn in lane.turns():
        payload = lane.method.payload()
        assert isinstance(payload, PromptLookupPayload)
        found.append((turn, payload, before))
        before = [*ids, *lane.output]
    return found


@pytest.mark.parametrize("match", ["leftmost", "latest"])
@pytest.mark.parametrize("max_ngram", [1, 3])
def test_the_payload_says_where_the_chain_was_found(match: str, max_ngram: int, toy: Bench) -> None:
    ids = toy.ids("a b c a b d a b c a b")
    params, found = {"match": match, "max_ngram": max_ngram, "tokens": 4}, 0
    for turn, payload, context in payloads_of(toy, ids, params, 40):
        assert [token.token_id for token in payload.tokens] == turn.tree.token_ids[1:]
        if not payload.ngram:
            assert (payload.matched, payload.copied, payload.tokens, payload.matched_text) == (None, None, (), "")
            continue
        assert payload.matched is not None
        assert payload.copied is not None
        (start, end), (first, last) = payload.matched, payload.copied
        newest = context[len(context) - payload.ngram :]
        assert context[start:end] == newest
        assert payload.matched_text == toy.target.texts.decode(newest)
        assert (end, context[first:last]) == (first, [token.token_id for token in payload.tokens])
        others = range(start) if match == "leftmost" else range(start + 1, len(context) - payload.ngram)
        assert not any(context[other : other + payload.ngram] == newest for other in others)
        found += 1
    assert found > 5


@pytest.mark.parametrize("params", [{}, {"max_ngram": 1, "match": "latest"}, {"tokens": 1}, {"context_branch": 8}])
def test_a_repetitive_output_is_generates_in_fewer_passes(params: dict[str, Any]) -> None:
    bench = make_toy(2)
    ids = bench.ids("1 2 3 1 2 3 1 2 3")
    lane = bench.lane("prompt-lookup", params, ids=ids, budget=60)
    turns = list(lane.turns())
    assert_same_output(bench, ids, lane.output, bench.expected(ids, 60))
    assert len(turns) < 59
    assert lane.draft_passes == 0
    assert all(len(turn.output.logits) <= 1 + 10 + params.get("context_branch", 0) for turn in turns)


def test_the_last_token_of_the_budget_is_left_to_the_target() -> None:
    bench = make_toy(2)
    ids = bench.ids("1 2 3 1 2 3 1 2 3")
    for budget in range(1, 12):
        recorded = payloads_of(bench, ids, {}, budget)
        for turn, payload, before in recorded:
            if len(before) == len(ids) + budget - 1:
                assert (len(turn.tree), payload.ngram) == (1, 0)
        assert sum(len(turn.committed) for turn, _, _ in recorded) == budget - 1


def test_at_the_end_of_the_context_the_step_is_a_plain_one() -> None:
    """The chain would reach beyond the last position: it is dropped, and the payload says so."""
    bench = make_toy(2, max_position_embeddings=40)
    ids = (bench.ids("1 2 3 1 2 3 1 2 3") * 3)[:34]
    recorded = payloads_of(bench, ids, {"tokens": 32}, 50)
    assert_same_output(bench, ids, [*recorded[-1][2][34:], *recorded[-1][0].committed], bench.expected(ids, 6))
    for turn, payload, _ in recorded:
        assert len(payload.tokens) == len(turn.tree) - 1


@pytest.mark.parametrize("rule", ["greedy", "speculative"])
def test_sampled_outputs_have_the_targets_distribution(rule: str) -> None:
    bench = make_toy(1, num_hidden_layers=3)
    ids = bench.ids("a b a b a b c a")
    sampling = SamplingSettings(temperature=0.9, top_k=3)
    law = exact_law(bench, ids, sampling, 3)
    # make drafts that can be right: the likeliest output stands in the prompt, behind each possible first token
    best = max(law, key=lambda outcome: law[outcome])
    ids = [*best, *best, *ids]
    law = exact_law(bench, ids, sampling, 3)
    counts = sampled(bench, "prompt-lookup", {"rule": rule, "max_ngram": 1}, ids, sampling, length=3, runs=300)
    assert chance_of_worse(counts, law) > 0.001


@pytest.mark.parametrize("at", [2, 4, 6])
def test_an_end_token_inside_an_accepted_run_ends_the_output(at: int) -> None:
    """The prompt holds its own continuation, so the chain is right beyond the end token."""
    for seed in range(60):
        plain = make_toy(seed).expected([40, 50, 60], 12)
        ids = [40, 50, 60, *plain, 40, 50, 60]
        bench = make_toy(seed)
        output = bench.expected(ids, 12)
        if output[at] not in output[:at]:
            bench = make_toy(seed, end_ids=[output[at]])
            lane = bench.lane("prompt-lookup", ids=ids, budget=12)
            assert decode(lane) == output[: at + 1] == bench.expected(ids, 12)
            assert lane.stop_reason == "eos"
            return
    pytest.fail("no toy has such an output")
