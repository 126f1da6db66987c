"""EAGLE: the dynamic tree is what expansion and re-ranking say, and steps equal the original's."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from explorer.methods._growth import keep_best
from explorer.payloads import EaglePayload
from explorer.sampling import Chooser, SamplingSettings
from explorer.target import TAP_LAST
from tests.lanes import Bench
from tests.methods.recordings import (
    check_dynamic_tree,
    check_greedy_verdict,
    check_trials,
    golden,
    lane_of,
    plain_greedy,
    prompt_ids,
    replayed,
    steps_to_the_end,
)


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


def dynamic_params(header: dict[str, Any]) -> dict[str, Any]:
    """The original counts the root in total_token, and one level less in depth."""
    return {"nodes": header["total_token"] - 1, "depth": header["depth"] + 1, "top_k": header["top_k"]}


@pytest.mark.parametrize("name", ["eagle2_greedy_tt10_d3_k4", "eagle2_greedy_tt26_d5_k8"])
def test_dynamic_steps_equal_the_originals(name: str, tiny: Bench) -> None:
    """Nodes, parents, scores, accepted nodes and next root, step by step on every prompt."""
    recording, compared = golden(name), 0
    for result in recording["results"]:
        ids, expected = prompt_ids(result["id"]), plain_greedy(result["id"])
        lane = tiny.lane("eagle", dynamic_params(recording["header"]), ids=ids, budget=len(expected))
        for turn, step in zip(lane.turns(), result["steps"], strict=False):
            check_dynamic_tree(step, turn.tree)
            check_greedy_verdict(step, turn)
            compared += 1
        assert lane.output == expected
    assert compared >= sum(map(steps_to_the_end, recording["results"])) - 12


@pytest.mark.parametrize("name", ["eagle2_greedy_tt10_d3_k4", "eagle2_greedy_tt26_d5_k8"])
def test_the_pool_of_the_first_step_is_the_originals(name: str, tiny: Bench) -> None:
    """All nodes that were scored, level by level, and which of them the re-ranking kept."""
    recording = golden(name)
    step = recording["results"][0]["steps"][0]
    lane = tiny.lane("eagle", dynamic_params(recording["header"]), ids=prompt_ids(0), budget=9)
    next(lane.turns())
    pool, kept = lane.method._pool, lane.method._kept  # type: ignore[attr-defined]
    assert pool.tokens == step["all_tokens"]
    assert pool.scores == pytest.approx(step["all_scores"], abs=1e-4)
    assert kept == step["selected_flat_index"]


@pytest.mark.parametrize("name", ["eagle2_t0.8_k20_tt10_d3_k4", "eagle2_t1.0_tt26_d5_k8"])
def test_sampled_dynamic_steps_equal_the_originals(name: str, tiny: Bench) -> None:
    """The recorded draws through our trees and trials: the same probabilities, verdicts and residuals."""
    recording, compared = golden(name), 0
    header = recording["header"]
    params = {**dynamic_params(header), "rule": "speculative"}
    settings = SamplingSettings(temperature=header["temperature"], top_k=header["sampling_top_k"])
    for result in recording["results"]:
        lane, replay = lane_of(tiny, "eagle", params, result, settings)
        for _, step, turn in replayed(lane, replay, result["steps"]):
            check_dynamic_tree(step, turn.tree)
            check_trials(step, turn, replay.left)
            check_greedy_verdict(step, turn)
            compared += 1
    assert compared == sum(map(steps_to_the_end, recording["results"]))


def test_static_steps_equal_the_originals(tiny: Bench) -> None:
    """EAGLE-1's tree of 25: tokens, parents, probabilities, accepted nodes and next root on every prompt.

    Recorded are raw logits: the differences between siblings are those of our log-probabilities.
    """
    recording, compared = golden("eagle1_greedy_tree25"), 0
    for result in recording["results"]:
        ids, expected = prompt_ids(result["id"]), plain_greedy(result["id"])
        lane = tiny.lane("eagle", {"tree": "static"}, ids=ids, budget=len(expected))
        for turn, step in zip(lane.turns(), result["steps"], strict=False):
            tree = turn.tree
            assert tree.token_ids == step["tree_tokens"]
            assert [-1, *(candidate.parent for candidate in tree.candidates)] == recording["header"]["tree_parents"]
            for siblings in tree.children():
                logits = [step["draft_top_logits"][node] for node in siblings]
                probs = [tree.candidates[node - 1].draft_prob or 0.0 for node in siblings]
                ratios = [math.exp(logit - logits[0]) for logit in logits]
                assert [prob / probs[0] for prob in probs] == pytest.approx(ratios, rel=1e-3)
            check_greedy_verdict(step, turn)
            compared += 1
        assert lane.output == expected
    assert compared >= sum(map(steps_to_the_end, recording["results"])) - 12


class RecordedDrafts(Chooser):
    """Draws the children that were recorded, and notes the distributions that it was asked to draw from."""

    def __init__(self, settings: SamplingSettings) -> None:
        super().__init__(settings, stream=1)
        self.families, self.probs = list[list[int]](), list[torch.Tensor]()

    def pick_several(self, probs: torch.Tensor, count: int) -> list[int]:
        family = self.families.pop(0)
        assert len(family) == count
        self.probs.append(probs)
        return family


def test_sampled_static_steps_equal_the_originals(tiny: Bench) -> None:
    """Recorded children and draws through our tree and trials: the same draft and target probabilities and verdicts.

    At temperature 1 without filters the original's bonus token, drawn from raw logits, has the right law too.
    """
    recording, compared = golden("eagle1_t1.0_tree25"), 0
    parents = recording["header"]["tree_parents"]
    settings = SamplingSettings(temperature=recording["header"]["temperature"])
    for result in recording["results"]:
        lane, replay = lane_of(tiny, "eagle", {"tree": "static", "rule": "speculative"}, result, settings)
        drafts = RecordedDrafts(settings)
        lane.method._setup = replace(lane.method._setup, drafts=drafts)  # type: ignore[attr-defined]
        steps = result["steps"][: steps_to_the_end(result)]
        drafts.families = [
            [step["tree_tokens"][node] for node, above in enumerate(parents) if above == parent]
            for step in steps
            for parent in sorted(set(parents) - {-1})
        ]
        for _, step, turn in replayed(lane, replay, steps):
            assert turn.tree.token_ids == step["tree_tokens"]
            assert all(candidate.drawn for candidate in turn.tree.candidates)
            families = [family for family in turn.tree.children() if family]
            for family, probs in zip(families, drafts.probs, strict=True):
                left = 1.0
                for node in family:
                    prob = float(probs[turn.tree.token_ids[node]])
                    assert prob == pytest.approx(left * step["draft_probs_renormalised"][node], rel=1e-4, abs=1e-6)
                    left -= prob
            drafts.probs.clear()
            check_trials(step, turn, replay.left)
            check_greedy_verdict(step, turn)
            compared += 1
    assert compared == sum(map(steps_to_the_end, recording["results"]))


def test_where_scores_tie_a_parent_is_kept_before_its_child(tiny: Bench) -> None:
    """Logits times 300 saturate the log-softmax at 0. The original then keeps 9 children without their parents."""
    recording = golden("eagle2_DEMO_saturated_scores")
    sharp = copy.deepcopy(tiny.drafters["eagle"])
    sharp.bind(tiny.target.embed_weight, tiny.target.output_weight * 300)
    lost = 0
    for result in recording["results"]:
        params, ids = {"nodes": 25, "depth": 6, "top_k": 8}, prompt_ids(result["id"])
        lane = tiny.lane("eagle", params, ids=ids, budget=4, drafter=sharp)
        tree = next(lane.turns()).tree
        pool, kept = lane.method._pool, lane.method._kept  # type: ignore[attr-defined]
        assert all(pool.parents[place] in {-1, *kept} for place in kept)
        scores = sorted(pool.scores[place] for place in kept)
        assert scores == pytest.approx(sorted(result["scores"][1:]), abs=1e-2)  # as good a set as the original's
        orphans = result["true_parents(-2=parent not selected)"].count(-2)
        same = tree.token_ids == result["tokens"]
        parents = [-1, *(candidate.parent for candidate in tree.candidates)]
        assert same == (parents == result["parents_used_by_official_code"]) == (orphans == 0)
        lost += orphans
    assert lost == 9


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
