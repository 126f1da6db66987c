"""EAGLE: the dynamic tree is what expansion and re-ranking say, and steps equal the original's."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from explorer.methods.eagle import keep_best
from explorer.payloads import EaglePayload
from explorer.target import TAP_LAST
from tests.lanes import Bench
from tests.methods.recordings import golden, plain_greedy, prompt_ids


@st.composite
def pools(draw: st.DrawFn) -> tuple[list[float], list[int]]:
    """Scores and parents of a pool, many of them tied: log-probabilities may be exactly zero."""
    steps = st.sampled_from([0.0, 0.0, -0.5, -1.0])
    scores, parents = [], []
    for place in range(draw(st.integers(1, 40))):
        parent = draw(st.integers(-1, place - 1))
        parents.append(parent)
        scores.append((0.0 if parent < 0 else scores[parent]) + draw(steps))
    return scores, parents


@given(pool=pools(), count=st.integers(1, 50))
def test_the_re_ranking_keeps_the_best_and_every_parent(pool: tuple[list[float], list[int]], count: int) -> None:
    """Ties included: the original may keep a child without its parent there, and attach it to a stranger."""
    scores, parents = pool
    kept = keep_best(scores, count)
    assert kept == sorted(set(kept))
    assert len(kept) == min(count, len(scores))
    assert all(parents[place] in kept for place in kept if parents[place] >= 0)
    dropped = [scores[place] for place in range(len(scores)) if place not in kept]
    assert not dropped or max(dropped) <= min(scores[place] for place in kept)


def draft_log_probs(bench: Bench, context: list[int], path: list[int]) -> torch.Tensor:
    """(V,) by the definition: the path's slots appended one by one to the true ones, as a causal chain."""
    head = bench.drafters["eagle"]
    features = bench.target.prefill(context[:-1], taps=frozenset({TAP_LAST})).taps[TAP_LAST]
    count = len(features)
    own = head.new_cache(count + len(path) + 1)
    predicted = head(torch.tensor(context[1:]), features, torch.arange(count), own)[-1:]
    for place, token in enumerate(path):
        predicted = head(torch.tensor([token]), predicted, torch.tensor([count + place]), own)
    log_probs: torch.Tensor = head.log_probs(predicted)[0]
    return log_probs


@torch.inference_mode()
@pytest.mark.parametrize("params", [{"nodes": 12, "depth": 3, "top_k": 3}, {"nodes": 9, "depth": 5, "top_k": 2}])
def test_the_tree_is_what_the_definition_says(params: dict[str, Any], toy: Bench) -> None:
    """Level by level with plain chains of the drafter: expand the top_k best, keep the best of all."""
    ids = toy.ids("the rain in the")
    lane = toy.lane("eagle", params, ids=ids, budget=6)
    for _ in range(2):
        context = [*ids, *lane.output]
        pool: list[tuple[float, tuple[int, ...]]] = []
        frontier: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
        for _level in range(params["depth"]):
            children = []
            for score, path in frontier:
                top = torch.topk(draft_log_probs(toy, context, list(path)), params["top_k"])
                pairs = zip(top.values.tolist(), top.indices.tolist(), strict=True)
                children += [(score + value, (*path, token)) for value, token in pairs]
            pool += children
            frontier = sorted(children, reverse=True)[: params["top_k"]]
        best = dict((path, score) for score, path in sorted(pool, reverse=True)[: params["nodes"]])
        tree = next(lane.turns()).tree
        drafted = {
            tuple(tree.token_ids[step] for step in tree.path(node)): candidate.score
            for node, candidate in enumerate(tree.candidates, start=1)
        }
        assert set(drafted) == set(best)
        for path, score in drafted.items():
            assert score == pytest.approx(math.exp(best[path]), rel=1e-3)


@pytest.mark.parametrize(
    ("params", "most"),
    [
        ({"nodes": 1}, 1),
        ({"top_k": 1, "depth": 10, "nodes": 63}, 10),
        ({"depth": 1, "top_k": 16, "nodes": 63}, 16),
        ({"depth": 2, "top_k": 2, "nodes": 63}, 6),
        ({"nodes": 63, "top_k": 16, "depth": 10}, 63),
    ],
)
def test_the_bounds_shape_the_tree(params: dict[str, Any], most: int, toy: Bench) -> None:
    lane = toy.lane("eagle", params, ids=toy.ids("the rain"), budget=5)
    for turn in lane.turns():
        assert len(turn.tree) - 1 == most
        assert max(turn.tree.depths) <= params.get("depth", 6)
        for children in turn.tree.children():
            tokens = [turn.tree.token_ids[child] for child in children]
            assert len(tokens) == len(set(tokens)) <= params.get("top_k", 8)


@pytest.mark.parametrize("name", ["eagle2_greedy_tt10_d3_k4", "eagle2_greedy_tt26_d5_k8"])
def test_steps_equal_the_originals(name: str, tiny: Bench) -> None:
    """Nodes, parents, scores, accepted nodes and next root, step by step on every prompt.

    total_token counts the root, depth one level less than ours; the root's recorded score is a filler.
    """
    recording = golden(name)
    header = recording["header"]
    params = {"nodes": header["total_token"] - 1, "depth": header["depth"] + 1, "top_k": header["top_k"]}
    compared = 0
    for result in recording["results"][:4]:
        ids, expected = prompt_ids(result["id"]), plain_greedy(result["id"])
        turns = list(tiny.lane("eagle", params, ids=ids, budget=len(expected)).turns())
        for place, (turn, step) in enumerate(zip(turns, result["steps"], strict=False)):
            tree = turn.tree
            assert tree.token_ids == step["tokens"], (result["id"], place)
            assert [-1, *(candidate.parent for candidate in tree.candidates)] == step["parents"]
            assert list(tree.depths) == step["depths"]
            scores = [math.exp(score) for score in step["scores"][1:]]
            assert [candidate.score for candidate in tree.candidates] == pytest.approx(scores, rel=1e-4)
            assert [0, *turn.verdict.accepted] == step["accepted_nodes"]
            accepted = [tree.token_ids[node] for node in turn.verdict.accepted]
            assert [tree.root, *accepted] == step["emitted"]
            assert turn.verdict.choice.token_id == step["next_root"]
            compared += 1
    assert compared > 50


def test_the_payload_tells_what_the_tree_holds(toy: Bench) -> None:
    lane = toy.lane("eagle", {"nodes": 10, "top_k": 4, "depth": 4}, ids=toy.ids("the rain"), budget=12)
    for turn in lane.turns():
        payload = lane.method.payload()
        assert isinstance(payload, EaglePayload)
        listed = [node for level in payload.frontier for node in level]
        kept = {node.node: node for node in listed if node.node is not None}
        assert set(kept) == set(range(1, len(turn.tree)))
        assert payload.kept == len(kept)
        assert payload.pool_nodes == 4 + 3 * 16
        assert len(listed) <= payload.pool_nodes
        for place, node in kept.items():
            candidate = turn.tree.candidates[place - 1]
            assert (node.token_id, node.score) == (candidate.token_id, pytest.approx(candidate.score, rel=1e-4))
            above = None if node.parent is None else listed[node.parent].node
            assert (above or 0) == candidate.parent
        for level in payload.frontier[:-1]:
            assert sum(node.expanded for node in level) == 4
        errors = {error.node for error in payload.feature_errors}
        assert {0} <= errors <= {0, *turn.verdict.accepted}
        assert all(-1.001 <= error.cosine <= 1.001 and error.distance >= 0 for error in payload.feature_errors)


@torch.inference_mode()
def test_feature_errors_are_distances_to_the_true_features(tiny: Bench) -> None:
    """The root's: the last true slot's prediction against the feature that the pass found at the root."""
    ids = prompt_ids(1)
    lane = tiny.lane("eagle", ids=ids, budget=8)
    context = [*ids, *lane.output]
    head = tiny.drafters["eagle"]
    features = tiny.target.prefill(context, taps=frozenset({TAP_LAST})).taps[TAP_LAST]
    own = head.new_cache(len(ids))
    guess = head(torch.tensor(context[1:]), features[:-1], torch.arange(len(ids)), own)[-1]
    next(lane.turns())
    payload = lane.method.payload()
    assert isinstance(payload, EaglePayload)
    error = payload.feature_errors[0]
    assert error.distance == pytest.approx(float((guess - features[-1]).norm() / features[-1].norm()), rel=1e-3)
    assert error.cosine == pytest.approx(float(torch.cosine_similarity(guess, features[-1], dim=0)), abs=1e-3)


def test_passes_of_the_drafter_are_counted(toy: Bench) -> None:
    """The prompt's, then per step one catch-up (not before the first draft) and one a level below the first."""
    lane = toy.lane("eagle", {"depth": 4}, ids=toy.ids("the rain"), budget=9)
    turns = list(lane.turns())
    assert lane.draft_passes == 1 + 3 * len(turns) + len(turns) - 1


def test_a_small_draft_vocabulary_maps_to_the_targets_ids(toy: Bench) -> None:
    whole = toy.drafters["eagle"]
    kept = torch.tensor([100, 101, 150, 40, 7])
    head = type(whole)(whole.shape, token_map=kept)
    head.load_state_dict(whole.state_dict())
    head.bind(toy.target.embed_weight, toy.target.output_weight)
    ids = toy.ids("the rain")
    lane = toy.lane("eagle", {"top_k": 16, "nodes": 63}, ids=ids, budget=12, drafter=head.eval())
    drafted = {token for turn in lane.turns() for token in turn.tree.token_ids[1:]}
    assert drafted
    assert drafted <= set(kept.tolist())
    assert lane.output == toy.expected(ids, 12)
