"""What EAGLE and EAGLE-3 share: the drafter's cache, its three trees, random drafts, the record."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
import torch

from explorer.methods import find_method
from explorer.methods.trees import chain, eagle_tree
from explorer.payloads import EaglePayload
from explorer.sampling import Chooser, SamplingSettings
from explorer.target import TAP_LAST, tap_hidden
from tests.lanes import PROMPTS, Bench, decode, make_toy
from tests.methods.sampling_law import Tokens, chi_square_p, exact_law

CLOSE = {"atol": 2e-4, "rtol": 2e-4}
KINDS = ("eagle", "eagle3")
SAMPLING = SamplingSettings(temperature=0.9, top_k=3, repetition_penalty=1.2, seed=4)


@cache
def bench_of(seed: int) -> Bench:
    return make_toy(seed)


def true_features(bench: Bench, kind: str, ids: Sequence[int]) -> torch.Tensor:
    """(T, h): the features of these positions, from a plain prefill."""
    if kind == "eagle":
        return bench.target.prefill(ids, taps=frozenset({TAP_LAST})).taps[TAP_LAST]
    names = [tap_hidden(layer) for layer in (1, 2, 3)]
    taps = bench.target.prefill(ids, taps=frozenset(names)).taps
    fused: torch.Tensor = bench.drafters[kind].fuse_features(torch.cat([taps[name] for name in names], dim=-1))
    return fused


def draft_log_probs(bench: Bench, kind: str, context: list[int], path: Sequence[int]) -> torch.Tensor:
    """(V,) by the definition: the path's slots appended one by one to the true ones, as a causal chain."""
    head = bench.drafters[kind]
    count = len(context) - 1
    own = head.new_cache(count + len(path) + 1)
    features = true_features(bench, kind, context[:-1])
    predicted = head(torch.tensor(context[1:]), features, torch.arange(count), own)[-1:]
    for place, token in enumerate(path):
        predicted = head(torch.tensor([token]), predicted, torch.tensor([count + place]), own)
    log_probs = head.log_probs(predicted)[0]
    if head.token_map is None:
        return torch.as_tensor(log_probs)
    whole = torch.full((bench.target.vocabulary_tokens,), float("-inf"))
    whole[head.token_map] = log_probs
    return whole


@torch.inference_mode()
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("params", "sampling"),
    [
        ({}, SamplingSettings()),
        ({"nodes": 1, "depth": 1, "top_k": 1}, SamplingSettings()),
        ({"tree": "static", "context_branch": 6}, SamplingSettings()),
        ({"tree": "chain", "depth": 4}, SamplingSettings()),
        ({"tree": "static", "rule": "speculative", "context_branch": 3}, SAMPLING),
        ({"tree": "chain", "rule": "speculative"}, SAMPLING),
        ({"context_branch": 3, "rule": "top-k"}, SAMPLING),
    ],
)
def test_the_drafters_cache_holds_only_slots_of_true_features(
    kind: str, params: dict[str, Any], sampling: SamplingSettings
) -> None:
    """It lags one step behind: the accepted path's slots are run when the next draft begins."""
    bench = bench_of(2)
    ids = bench.ids(PROMPTS[2])
    lane = bench.lane(kind, params, ids=ids, budget=14, sampling=sampling)
    before = len(ids) + 1
    for _ in lane.turns():
        own = lane.method._cache  # type: ignore[attr-defined]
        assert own.length == before - 1
        context, head = [*ids, *lane.output], bench.drafters[kind]
        fresh = head.new_cache(own.length)
        features = true_features(bench, kind, context[: own.length])
        head(torch.tensor(context[1 : own.length + 1]), features, torch.arange(own.length), fresh)
        torch.testing.assert_close(own.keys[:, : own.length], fresh.keys, **CLOSE)
        torch.testing.assert_close(own.values[:, : own.length], fresh.values, **CLOSE)
        before = len(ids) + len(lane.output)


@torch.inference_mode()
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("tree", "paths"), [("static", eagle_tree()), ("chain", chain(5))])
def test_fixed_trees_hold_the_best_ranked_drafts(kind: str, tree: str, paths: list[Tokens], toy: Bench) -> None:
    """The node of a rank path carries the token of that rank, by plain chains of the drafter."""
    ids = toy.ids("the rain in the")
    lane = toy.lane(kind, {"tree": tree}, ids=ids, budget=6)
    context = [*ids, *lane.output]
    proposal = lane.method.propose(context)
    assert len(proposal.tree) == 1 + len(paths)
    assert proposal.draft_probs == {}
    tokens: dict[Tokens, Tokens] = {(): ()}
    for path, candidate in zip(paths, proposal.tree.candidates, strict=True):
        log_probs = draft_log_probs(toy, kind, context, tokens[path[:-1]])
        top = torch.topk(log_probs, path[-1] + 1)
        assert candidate.token_id == int(top.indices[-1])
        assert candidate.rank == path[-1]
        assert candidate.draft_prob == pytest.approx(math.exp(float(top.values[-1])), rel=1e-3)
        assert not candidate.drawn
        tokens[path] = (*tokens[path[:-1]], candidate.token_id)


@torch.inference_mode()
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tree", ["static", "chain"])
def test_random_drafts_come_from_the_processed_distribution(kind: str, tree: str, toy: Bench) -> None:
    """Temperature, filters and penalty as for the target, over the whole vocabulary, after the node's own path."""
    ids = toy.ids(PROMPTS[2])
    lane = toy.lane(kind, {"tree": tree, "rule": "speculative"}, ids=ids, budget=6, sampling=SAMPLING)
    context = [*ids, *lane.output]
    proposal = lane.method.propose(context)
    nodes = proposal.tree
    assert set(proposal.draft_probs) == {node for node, family in enumerate(nodes.children()) if family}
    for node, probs in proposal.draft_probs.items():
        path = [nodes.token_ids[step] for step in nodes.path(node)]
        expected = Chooser(SAMPLING).distribution(draft_log_probs(toy, kind, context, path), [*context, *path])
        torch.testing.assert_close(probs, expected, **CLOSE)
        family = [nodes.token_ids[child] for child in nodes.children()[node]]
        assert len(family) == len(set(family)) <= 3  # top_k 3: no fourth child is possible
        assert all(float(probs[token]) > 0 for token in family)
    assert all(candidate.drawn for candidate in nodes.candidates)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("params", "sampling"),
    [
        ({"rule": "speculative"}, SAMPLING),
        ({"tree": "static"}, SAMPLING),
        ({"tree": "chain", "rule": "typical"}, SAMPLING),
        ({"tree": "static", "rule": "speculative"}, SamplingSettings()),
    ],
)
def test_other_drafts_are_not_drawn(kind: str, params: dict[str, Any], sampling: SamplingSettings, toy: Bench) -> None:
    """The dynamic tree, rules that know no draft distribution, and temperature 0."""
    lane = toy.lane(kind, params, ids=toy.ids("the rain"), budget=8, sampling=sampling)
    drawn = [candidate.drawn for turn in lane.turns() for candidate in turn.tree.candidates]
    assert drawn
    assert not any(drawn)


@pytest.mark.parametrize(
    ("kind", "tree"), [("eagle", "dynamic"), ("eagle", "static"), ("eagle", "chain"), ("eagle3", "static")]
)
def test_the_sampled_law_is_the_targets(kind: str, tree: str) -> None:
    """200 seeded runs of four tokens, two possible at each place; half of them with a context branch."""
    bench = bench_of(2)
    ids = bench.ids(PROMPTS[2])
    settings = SamplingSettings(temperature=1.3, top_k=2)
    accepted = rejected = 0

    def run(seed: int) -> Tokens:
        nonlocal accepted, rejected
        params = {"tree": tree, "rule": "speculative", "nodes": 6, "depth": 3, "top_k": 2, "context_branch": seed % 2}
        sampling = settings.model_copy(update={"seed": seed})
        lane = bench.lane(kind, params, ids=ids, budget=4, sampling=sampling)
        for turn in lane.turns():
            accepted += len(turn.verdict.accepted)
            rejected += sum(decision.accepted is False for decision in turn.verdict.decisions.values())
        return tuple(lane.output)

    assert chi_square_p(exact_law(bench, ids, settings, 4), run, 200) > 1e-3
    assert accepted > 30
    assert rejected > 30


@pytest.mark.parametrize("kind", KINDS)
def test_impossible_children_are_left_out_with_all_below_them(kind: str, toy: Bench) -> None:
    """With top_k 1 only one token is possible after each node: of the static tree its first path remains."""
    sampling = SamplingSettings(temperature=1.0, top_k=1)
    lane = toy.lane(kind, {"tree": "static", "rule": "speculative"}, ids=toy.ids("x"), budget=9, sampling=sampling)
    shapes = {turn.tree.depths for turn in lane.turns()}
    assert shapes == {(0, 1, 2, 3, 4, 5)}
    assert lane.output == toy.expected(toy.ids("x"), 9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tree", ["dynamic", "static", "chain"])
def test_same_seed_same_drafts(kind: str, tree: str, toy: Bench) -> None:
    def nodes(seed: int) -> list[tuple[Any, ...]]:
        sampling = SamplingSettings(temperature=1.5, seed=seed)
        params = {"tree": tree, "rule": "speculative", "context_branch": 2}
        lane = toy.lane(kind, params, ids=toy.ids(PROMPTS[0]), budget=12, sampling=sampling)
        return [(turn.tree.candidates, turn.verdict.decisions, turn.committed) for turn in lane.turns()]

    assert nodes(5) == nodes(5) != nodes(6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tree", ["dynamic", "static", "chain"])
@pytest.mark.parametrize("rule", ["greedy", "speculative", "typical", "top-k"])
def test_a_context_branch_is_marked_and_costs_no_equality(kind: str, tree: str, rule: str, toy: Bench) -> None:
    ids = toy.ids("one two one two one")
    params = {"tree": tree, "rule": rule, "context_branch": 4, "accept_top_k": 1}
    lane = toy.lane(kind, params, ids=ids, budget=20)
    sources = set()
    for turn in lane.turns():
        own = find_method(kind).max_rows(lane.params) - 1
        sources |= {candidate.source for candidate in turn.tree.candidates[own:]}
        assert all(candidate.source == kind for candidate in turn.tree.candidates[:own])
    assert sources == {"prompt-lookup"}
    assert lane.output == toy.expected(ids, 20)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tree", ["dynamic", "static", "chain"])
def test_the_record_holds_every_verified_node(kind: str, tree: str, toy: Bench) -> None:
    lane = toy.lane(kind, {"tree": tree}, ids=toy.ids("the rain"), budget=12)
    for turn in lane.turns():
        payload = lane.method.payload()
        assert isinstance(payload, EaglePayload)
        listed = [item for level in payload.frontier for item in level]
        kept = {item.node: item for item in listed if item.node is not None}
        assert (payload.tree, payload.kept) == (tree, len(kept))
        assert set(kept) == set(range(1, len(turn.tree)))
        for node, item in kept.items():
            candidate = turn.tree.candidates[node - 1]
            assert (item.token_id, item.draft_prob) == (
                candidate.token_id,
                pytest.approx(candidate.draft_prob, rel=1e-4),
            )
            assert (0 if item.parent is None else listed[item.parent].node) == candidate.parent
        if tree != "dynamic":
            assert len(listed) == payload.pool_nodes == payload.kept
            expanded = {item.node for item in listed if item.expanded}
            assert expanded == {node for node in range(1, len(turn.tree)) if turn.tree.children()[node]}
        predicted = {error.node for error in payload.feature_errors}
        assert {0} <= predicted <= {0, *turn.verdict.accepted}


@torch.inference_mode()
@pytest.mark.parametrize("kind", KINDS)
def test_feature_errors_are_distances_to_the_true_features(kind: str) -> None:
    """The root's: the last true slot's prediction against the feature that the pass found at the root."""
    bench = bench_of(1)
    ids = bench.ids(PROMPTS[1])
    lane = bench.lane(kind, ids=ids, budget=8)
    context, head = [*ids, *lane.output], bench.drafters[kind]
    features = true_features(bench, kind, context)
    guess = head(torch.tensor(context[1:]), features[:-1], torch.arange(len(ids)), head.new_cache(len(ids)))[-1]
    next(lane.turns())
    payload = lane.method.payload()
    assert isinstance(payload, EaglePayload)
    error = payload.feature_errors[0]
    assert error.distance == pytest.approx(float((guess - features[-1]).norm() / features[-1].norm()), rel=1e-3)
    assert error.cosine == pytest.approx(float(torch.cosine_similarity(guess, features[-1], dim=0)), abs=1e-3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("tree", "passes"), [("dynamic", 3), ("static", 4), ("chain", 3)])
def test_passes_of_the_drafter_are_counted(kind: str, tree: str, passes: int, toy: Bench) -> None:
    """The prompt's, then per step one catch-up (not before the first draft) and one a level below the first."""
    lane = toy.lane(kind, {"tree": tree, "depth": 4}, ids=toy.ids("the rain"), budget=9)
    turns = list(lane.turns())
    assert lane.draft_passes == 1 + passes * len(turns) + len(turns) - 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tree", ["dynamic", "static", "chain"])
def test_no_tree_has_more_rows_than_it_says(kind: str, tree: str, toy: Bench) -> None:
    params = {"tree": tree, "depth": 3, "nodes": 9}
    lane = toy.lane(kind, params, ids=toy.ids("the rain"), budget=9)
    method = find_method(kind)
    sizes = {len(turn.tree) for turn in lane.turns()}
    assert sizes == {method.max_rows(method.Params(**params))}
    assert decode(lane) == toy.expected(toy.ids("the rain"), 9)
