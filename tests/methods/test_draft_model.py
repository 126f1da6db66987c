"""Draft model: its chain is the draft's own, its cache follows what was committed, its probabilities decide."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from explorer.decode import Turn
from explorer.methods.draft_model import MAX_TOKENS, DraftModelMethod, common_prefix, over_target_ids
from explorer.payloads import DraftModelPayload
from explorer.sampling import Chooser, SamplingSettings
from tests.lanes import PROMPTS, Bench, assert_same_output, decode, first_layers, make_toy
from tests.methods.laws import chance_of_worse, exact_law, sampled

CLOSE = {"atol": 2e-4, "rtol": 2e-4}
WARM = SamplingSettings(temperature=1.2, top_k=20, top_p=0.95, min_p=0.01, repetition_penalty=1.1, seed=3)
EVERY_OTHER = torch.arange(0, 384, 2)

DRAFTS: dict[str, dict[str, Any]] = {
    "three of four layers": {"layers": 3},
    "one layer, mostly wrong": {"layers": 1},
    "the target itself": {"layers": 4},
    "every other token": {"layers": 4, "token_map": EVERY_OTHER},
    "a short context": {"layers": 4, "max_position_embeddings": 30},
}


def turns_of(
    bench: Bench, ids: list[int], params: dict[str, Any], **more: Any
) -> Iterator[tuple[Turn, DraftModelPayload, DraftModelMethod, list[int]]]:
    """Each turn, its payload, the method after it, and all token ids after it."""
    lane = bench.lane("draft-model", params, ids=ids, **more)
    for turn in lane.turns():
        payload, method = lane.method.payload(), lane.method
        assert isinstance(payload, DraftModelPayload)
        assert isinstance(method, DraftModelMethod)
        yield turn, payload, method, [*ids, *lane.output]


def own_chain(turn: Turn) -> list[int]:
    """Tokens that the draft model proposed."""
    return [candidate.token_id for candidate in turn.tree.candidates if candidate.source == "draft-model"]


@pytest.mark.parametrize("kind", DRAFTS)
@pytest.mark.parametrize("text", PROMPTS[:3])
def test_greedy_output_is_generates_whatever_the_draft(kind: str, text: str, toy: Bench) -> None:
    ids = toy.ids(text)
    lane = toy.lane("draft-model", ids=ids, budget=24, drafter=first_layers(toy.target, **DRAFTS[kind]))
    assert_same_output(toy, ids, decode(lane), toy.expected(ids, 24))


def test_greedy_drafts_are_the_drafts_own_greedy_output(toy: Bench) -> None:
    ids, draft = toy.ids(PROMPTS[0]), toy.drafters["draft-model"]
    context, compared = list(ids), 0
    for turn, _, _, after in turns_of(toy, ids, {"tokens": 4}, budget=16):
        context = after[: len(after) - len(turn.committed)]
        prompt = torch.tensor([context])
        told = {"attention_mask": torch.ones_like(prompt), "do_sample": False, "pad_token_id": 0}
        plain = draft.module.generate(prompt, max_new_tokens=4, **told)[0, len(context) :].tolist()
        chain = own_chain(turn)
        assert chain == plain[: len(chain)]
        assert not turn.tree.candidates or not turn.tree.candidates[0].drawn
        compared += len(chain)
    assert compared > 20


@pytest.mark.parametrize("kind", ["three of four layers", "every other token"])
@pytest.mark.parametrize("sampling", [WARM, SamplingSettings(temperature=0.7, seed=1)], ids=["all settings", "plain"])
def test_a_draft_comes_from_the_processed_distribution_that_its_test_uses(
    kind: str, sampling: SamplingSettings, toy: Bench
) -> None:
    """The draft's logits over the target's vocabulary, through transformers' processors with the whole history."""
    ids = toy.ids(PROMPTS[2])
    draft = first_layers(toy.target, **DRAFTS[kind])
    lane = toy.lane("draft-model", {"tokens": 3}, ids=ids, drafter=draft, sampling=sampling, budget=20)
    for _ in range(4):
        context = [*ids, *lane.output]
        proposal = lane.method.propose(context)
        assert len(proposal.tree) == 4
        for node, candidate in enumerate(proposal.tree.candidates):
            history = [*context, *proposal.tree.token_ids[1 : node + 1]]
            with torch.inference_mode():
                logits = draft.module(torch.tensor([history])).logits[0, -1]
            whole = torch.full((384,), -torch.inf)
            whole[EVERY_OTHER if draft.token_map is not None else slice(None)] = logits
            expected = Chooser(sampling).distribution(whole, history)
            torch.testing.assert_close(proposal.draft_probs[node], expected, **CLOSE)
            assert candidate.drawn
            assert candidate.draft_prob == float(proposal.draft_probs[node][candidate.token_id]) > 0
        cache = lane.method._cache  # type: ignore[attr-defined]
        cache.truncate(len(context) - 1)
        next(lane.turns())


@pytest.mark.parametrize("sampling", [SamplingSettings(), WARM], ids=["greedy", "sampled"])
@pytest.mark.parametrize(
    "params",
    [{}, {"tokens": 1}, {"schedule": "adaptive"}, {"tokens": 3, "context_branch": 8}, {"rule": "typical"}],
    ids=str,
)
def test_the_drafts_own_cache_is_a_fresh_pass_of_the_committed_tokens(
    params: dict[str, Any], sampling: SamplingSettings
) -> None:
    """After each step it holds the committed tokens but the newest one or two; the next draft reads these."""
    bench = make_toy(2)
    ids, draft = bench.ids(PROMPTS[2]), bench.drafters["draft-model"]
    lengths = set()
    for _, payload, method, context in turns_of(bench, ids, params, budget=20, sampling=sampling):
        own = method._cache
        if payload.drafted:  # the budget's last token may come from a plain step
            lengths.add(len(context) - own.length)
        for mine, fresh in zip(own.rows(), draft.model.prefill(context[: own.length]).cache.rows(), strict=True):
            torch.testing.assert_close(mine, fresh, **CLOSE)
    assert 1 in lengths
    assert lengths <= {1, 2} or "context_branch" in params


def test_a_full_accept_is_caught_up_with_two_tokens_and_anything_else_with_one() -> None:
    bench = make_toy(2)
    ids, fed = bench.ids(PROMPTS[0]), []
    full_before = False
    for turn, payload, _, context in turns_of(bench, ids, {"tokens": 3}, budget=40):
        before = context[: len(context) - len(turn.committed)]
        assert [token.token_id for token in payload.fed] == before[len(before) - len(payload.fed) :]
        if payload.drafted:
            assert len(payload.fed) == (2 if full_before else 1)
            fed.append(len(payload.fed))
        full_before = len(turn.verdict.accepted) == 3
    assert set(fed) == {1, 2}


def test_a_perfect_draft_gives_gamma_and_one_token_a_pass(toy: Bench) -> None:
    ids = toy.ids(PROMPTS[0])
    lane = toy.lane("draft-model", {"tokens": 4}, ids=ids, budget=21, drafter=first_layers(toy.target, layers=4))
    turns = list(lane.turns())
    assert [len(turn.committed) for turn in turns] == [5, 5, 5, 5]
    assert lane.draft_passes == 1 + 4 * 4


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        ("three of four layers", "greedy"),
        ("three of four layers", "speculative"),
        ("one layer, mostly wrong", "speculative"),
        ("every other token", "speculative"),
    ],
)
def test_sampled_outputs_have_the_targets_distribution(kind: str, rule: str) -> None:
    bench = make_toy(1, num_hidden_layers=3)
    ids = bench.ids("a b c")
    sampling = SamplingSettings(temperature=0.9, top_k=3)
    draft = first_layers(bench.target, **(DRAFTS[kind] | {"layers": 1 if "one" in kind else 2}))
    params = {"tokens": 2, "rule": rule}
    counts = sampled(bench, "draft-model", params, ids, sampling, length=3, runs=300, drafter=draft)
    assert chance_of_worse(counts, exact_law(bench, ids, sampling, 3)) > 0.001


def test_the_payload_says_why_each_token_was_accepted_or_not() -> None:
    bench, seen = make_toy(2), {True: 0, False: 0}
    for turn, payload, _, _ in turns_of(bench, bench.ids(PROMPTS[0]), {}, budget=60, sampling=WARM):
        assert [token.token_id for token in payload.drafted] == own_chain(turn)
        assert tuple(token.node for token in payload.drafted if token.accepted) == turn.verdict.accepted
        for token in payload.drafted[: len(turn.verdict.accepted) + 1]:
            assert token.ratio == pytest.approx(min(1.0, token.target_prob / token.draft_prob), rel=1e-4)
            assert token.draw is not None
            assert token.accepted == (token.draw < token.ratio)
            assert (token.residual_mass is None) == token.accepted
            seen[token.accepted] += 1
        for token in payload.drafted[len(turn.verdict.accepted) + 1 :]:
            assert (token.ratio, token.draw, token.residual_mass, token.accepted) == (None, None, None, False)
    assert min(seen.values()) > 5


def test_the_adaptive_length_grows_by_two_and_shrinks_by_one() -> None:
    for seed in range(3):
        bench = make_toy(seed)
        gamma = 3
        for turn, payload, _, _ in turns_of(
            bench, bench.ids(PROMPTS[seed]), {"tokens": 3, "schedule": "adaptive"}, budget=60
        ):
            assert payload.gamma == gamma
            assert len(payload.drafted) <= gamma
            if payload.drafted:
                full = len(turn.verdict.accepted) == len(payload.drafted)
                gamma = min(gamma + 2, MAX_TOKENS) if full else max(1, gamma - 1)


@pytest.mark.parametrize("params", [{}, {"tokens": 16}, {"schedule": "adaptive"}])
def test_no_pass_has_more_rows_than_announced(params: dict[str, Any], toy: Bench) -> None:
    lane = toy.lane("draft-model", params, ids=toy.ids("x"), budget=90, drafter=first_layers(toy.target, layers=4))
    rows = [len(turn.output.logits) for turn in lane.turns()]
    assert max(rows) <= DraftModelMethod.max_rows(DraftModelMethod.Params(**params))


@pytest.mark.parametrize("context_tokens", [20, 25, 26, 27, 34])
@pytest.mark.parametrize("sampling", [SamplingSettings(), WARM], ids=["greedy", "sampled"])
def test_where_the_drafts_context_ends_plain_steps_go_on(
    context_tokens: int, sampling: SamplingSettings, toy: Bench
) -> None:
    """The draft reads its context to the last position: what it says there is drafted too."""
    ids = (toy.ids("word after word ") * 3)[:25]
    draft = first_layers(toy.target, 4, max_position_embeddings=context_tokens)
    turn, context = None, ids
    for turn, payload, method, context in turns_of(
        toy, ids, {"tokens": 3}, budget=20, drafter=draft, sampling=sampling
    ):
        before = len(context) - len(turn.committed)
        room = context_tokens - before + 1
        assert len(payload.drafted) == max(0, min(3, room, len(ids) + 20 - before - 1))
        assert bool(payload.fed) == bool(payload.drafted)
        assert method._cache.length <= context_tokens
    assert turn is not None
    assert turn.cache_length == len(ids) + 19
    if sampling.temperature == 0.0:
        assert_same_output(toy, ids, context[len(ids) :], toy.expected(ids, 20))


def test_a_prompt_that_the_draft_cannot_hold_costs_no_draft_pass(toy: Bench) -> None:
    ids = toy.ids("a prompt longer than that")
    lane = toy.lane("draft-model", ids=ids, budget=8, drafter=first_layers(toy.target, max_position_embeddings=8))
    assert decode(lane) == toy.expected(ids, 8)
    assert lane.draft_passes == 0


def test_behind_a_token_that_the_draft_does_not_know_plain_steps_go_on() -> None:
    """Vocabularies of one family may be padded to different sizes; here the draft's is far too small."""
    ids = [10, 20, 30]
    outputs = ((seed, make_toy(seed).expected(ids, 24)) for seed in range(40))
    seed, expected, unknown = next(
        (seed, plain, place)
        for seed, plain in outputs
        for place in range(6, 20)
        if plain[place] > max(*ids, *plain[:place])
    )
    bench = make_toy(seed)
    draft = first_layers(bench.target, layers=4)
    module, size = draft.module, expected[unknown]
    module.set_input_embeddings(torch.nn.Embedding.from_pretrained(bench.target.embed_weight[:size].clone()))
    module.lm_head.weight = torch.nn.Parameter(bench.target.output_weight[:size].clone())
    module.config.vocab_size = size
    recorded = list(turns_of(bench, ids, {"tokens": 2}, budget=24, drafter=draft))
    assert recorded[-1][3] == [*ids, *expected]
    drafted = [bool(payload.drafted) for _, payload, _, _ in recorded]
    assert drafted == sorted(drafted, reverse=True)
    assert set(drafted) == {True, False}


@pytest.mark.parametrize("budget", [1, 2, 3, 6, 7])
def test_the_last_token_of_the_budget_is_left_to_the_target(budget: int, toy: Bench) -> None:
    ids = toy.ids(PROMPTS[0])
    lane = toy.lane("draft-model", ids=ids, budget=budget, drafter=first_layers(toy.target, layers=4))
    drafted = sum(len(turn.tree) - 1 for turn in lane.turns())
    assert lane.output == toy.expected(ids, budget)
    assert drafted == budget - 1 - len(list(range(0, budget - 1, 6)))


@pytest.mark.parametrize("at", [1, 3, 4, 6])
def test_an_end_token_inside_the_chain_ends_chain_and_output(at: int) -> None:
    ids = make_toy(0).ids("some words")
    outputs = ((seed, make_toy(seed).expected(ids, 12)) for seed in range(40))
    seed, plain = next((seed, plain) for seed, plain in outputs if plain[at] not in plain[:at])
    bench = make_toy(seed, end_ids=[plain[at]])
    lane = bench.lane("draft-model", {"tokens": 8}, ids=ids, budget=12, drafter=first_layers(bench.target, layers=4))
    turns = list(lane.turns())
    assert lane.output == bench.expected(ids, 12) == plain[: at + 1]
    assert (lane.stop_reason, len(turns)) == ("eos", 1)
    assert turns[0].tree.token_ids[1:] == plain[1 : at + 1]


def test_draft_logits_are_brought_into_the_targets_vocabulary() -> None:
    row = torch.tensor([1.0, 2.0, 3.0])
    none = -torch.inf
    assert over_target_ids(row, None, 3) is row
    assert over_target_ids(row, None, 5).tolist() == [1.0, 2.0, 3.0, none, none]
    assert over_target_ids(row, None, 2).tolist() == [1.0, 2.0]
    assert over_target_ids(row, torch.tensor([4, 0, 2]), 5).tolist() == [2.0, none, 3.0, none, 1.0]


def test_common_prefixes() -> None:
    assert [common_prefix(a, b) for a, b in (([], [1]), ([1], [1]), ([1, 2], [1, 3]), ([2], [1]))] == [0, 1, 1, 0]
