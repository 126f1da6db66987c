"""Medusa: the static tree is the best one, heads fill it, and steps equal the original's."""

from __future__ import annotations

import copy
import itertools
import math
import typing
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from explorer.methods import medusa
from explorer.methods.medusa import MedusaParams, choose_paths
from explorer.methods.trees import MAX_RANKS, RankPath, best_paths, medusa_tree
from explorer.payloads import MedusaPayload
from explorer.sampling import SamplingSettings
from explorer.target import TargetModel
from explorer.trace import TopToken
from tests.lanes import PROMPTS, Bench, decode, make_toy
from tests.methods.recordings import (
    check_greedy_verdict,
    golden,
    lane_of,
    plain_greedy,
    prompt_ids,
    steps_to_the_end,
)
from tests.methods.sampling_law import chi_square_p, exact_law

falling = st.lists(st.floats(0.01, 1.0), min_size=1, max_size=4).map(lambda ranks: sorted(ranks, reverse=True))


def chance(path: RankPath, accuracies: list[list[float]]) -> float:
    return math.prod(accuracies[depth][rank] for depth, rank in enumerate(path))


def all_paths(accuracies: list[list[float]]) -> list[RankPath]:
    """Every rank path of every depth."""
    ranges = [range(len(ranks)) for ranks in accuracies]
    return [path for depth in range(1, len(ranges) + 1) for path in itertools.product(*ranges[:depth])]


@given(accuracies=st.lists(falling, min_size=1, max_size=4), nodes=st.integers(1, 30))
def test_the_auto_tree_is_the_likeliest_of_its_size(accuracies: list[list[float]], nodes: int) -> None:
    """Against all paths there are: no other set of that many paths has a higher expected accepted length."""
    chosen = best_paths(accuracies, nodes)
    every = sorted((chance(path, accuracies) for path in all_paths(accuracies)), reverse=True)
    assert len(chosen) == len(set(chosen)) == min(nodes, len(every))
    assert sum(chance(path, accuracies) for path in chosen) == pytest.approx(sum(every[: len(chosen)]))


@given(accuracies=st.lists(falling, min_size=1, max_size=4), nodes=st.integers(1, 40))
def test_every_path_of_the_auto_tree_has_its_parent(accuracies: list[list[float]], nodes: int) -> None:
    chosen = choose_paths(MedusaParams(nodes=nodes), len(accuracies), accuracies)
    assert all(path[:-1] in chosen for path in chosen if len(path) > 1)
    assert chosen == sorted(chosen, key=lambda path: (len(path), path))


@given(st.lists(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=1, max_size=12), min_size=1, max_size=3))
def test_accuracies_of_zero_and_one_make_a_tree_all_the_same(accuracies: list[list[float]]) -> None:
    chosen = best_paths(accuracies, 20)
    assert 1 <= len(chosen) <= 20
    assert all(rank < MAX_RANKS for path in chosen for rank in path)


@pytest.mark.parametrize("heads", [1, 2, 3, 4, 5])
def test_no_path_is_deeper_than_there_are_heads(heads: int) -> None:
    for params in (MedusaParams(nodes=63), MedusaParams(tree="mc_sim_7b_63")):
        paths = choose_paths(params, heads, [])
        assert 1 <= max(map(len, paths)) <= heads
        assert len(paths) <= medusa.Medusa.max_rows(params) - 1


def test_the_published_tree_is_the_recorded_one() -> None:
    recorded = golden("medusa_greedy_mc_sim_7b_63")["header"]["tree_choices"]
    ours = choose_paths(MedusaParams(tree="mc_sim_7b_63"), 4, [])
    assert [list(path) for path in ours] == recorded
    assert Counter(map(len, ours)) == Counter(map(len, recorded))


SHAPES = {
    "mc_sim_7b_63": (10, 28, 23, 2),
    "vicuna_7b_stage2": (10, 23, 23, 7),
    "vicuna_7b_stage1_ablation": (10, 21, 25, 7),
    "vicuna_7b_stage1": (10, 32, 20, 1),
    "vicuna_13b_stage2": (10, 19, 25, 9),
    "vicuna_13b_stage1": (10, 29, 23, 1),
    "vicuna_33b_stage2": (10, 24, 24, 5),
    "vicuna_33b_stage1": (10, 34, 19),
    "zephyr_stage2": (10, 27, 23, 3),
}
"""Nodes by depth of each published tree."""


def test_every_published_tree_is_offered() -> None:
    offered = typing.get_args(MedusaParams.model_fields["tree"].annotation)
    assert set(offered) == {"auto", *SHAPES}


@pytest.mark.parametrize("name", SHAPES)
def test_published_trees_have_63_nodes_with_their_parents_and_better_siblings(name: str) -> None:
    paths = medusa_tree(name)
    assert len(paths) == len(set(paths)) == 63
    assert tuple(Counter(map(len, paths)).values()) == SHAPES[name]
    for path in paths:
        assert len(path) == 1 or path[:-1] in paths
        assert path[-1] == 0 or (*path[:-1], path[-1] - 1) in paths
        assert path[-1] < MAX_RANKS


def replay_recording(
    name: str, bench: Bench, monkeypatch: pytest.MonkeyPatch, params: dict[str, Any], number_of: dict[int, int]
) -> int:
    """Every step of every prompt against ours: tree, target's choices, accepted nodes, tokens. Steps compared.

    The recorded `emitted` is root and accepted nodes; ours commits accepted nodes and the target's token.
    number_of: token ids that the recording swapped.
    """
    recording, compared = golden(name), 0
    header = recording["header"]
    paths = [tuple(path) for path in header["tree_choices"]]
    monkeypatch.setattr(medusa, "choose_paths", lambda *_: paths)
    settings = SamplingSettings(temperature=header["temperature"])
    for result in recording["results"]:
        ids = [number_of.get(token, token) for token in prompt_ids(result["id"])]
        lane, replay = lane_of(bench, "medusa", params, result, settings, ids)
        for step, turn in zip(result["steps"], lane.turns(), strict=False):
            assert turn.tree.token_ids == step["tree_tokens"], (result["id"], compared)
            assert turn.output.logits.argmax(dim=-1).tolist() == step["target_argmax"]
            check_greedy_verdict(step, turn)
            compared += 1
        common = min(len(lane.output), len(result["output"]))
        assert lane.output[:common] == result["output"][:common]
        assert common > 10
        assert replay.uniforms == []
    return compared


@pytest.mark.parametrize("name", ["medusa_greedy_small8", "medusa_greedy_chain4", "medusa_greedy_mc_sim_7b_63"])
def test_steps_equal_the_originals(name: str, tiny: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = replay_recording(name, tiny, monkeypatch, {"nodes": 63}, {})
    assert compared == sum(map(steps_to_the_end, golden(name)["results"]))


@pytest.mark.parametrize("name", ["medusa_typical_fast_t0.7_small8", "medusa_typical_fast_t0.7_mc_sim_7b_63"])
def test_typical_acceptance_equals_the_originals(name: str, tiny: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its fast mode draws nothing: the temperature enters the threshold and the probabilities only."""
    header = golden(name)["header"]
    params = {
        "nodes": 63,
        "rule": "typical",
        "epsilon": header["posterior_threshold"],
        "delta": header["posterior_alpha"],
    }
    compared = replay_recording(name, tiny, monkeypatch, params, {})
    assert compared == sum(map(steps_to_the_end, golden(name)["results"]))


@pytest.fixture
def swapped(tiny: Bench) -> Bench:
    """The tiny target with token 0, its padding, and token 340, a frequent one, renamed into one another."""
    model, heads = copy.deepcopy(tiny.model), copy.deepcopy(tiny.drafters["medusa"])
    order = torch.arange(model.config.vocab_size)
    order[[0, 340]] = order[[340, 0]]
    with torch.no_grad():
        for weight in (model.model.embed_tokens.weight, model.lm_head.weight):
            weight.copy_(weight[order])
        heads.own_output.copy_(heads.own_output[:, order])
    target = TargetModel(model, tiny.target.tokenizer, tiny.target.info)
    return Bench(model, target, {"medusa": heads})


SWAP = {0: 340, 340: 0}


def test_a_frequent_token_0_is_drafted_like_any_other(swapped: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The original pads its path table with token 0 and compares the padding with the target's choice."""
    name = "medusa_DEMO_token0_swapped_with_340_mc_sim_7b_63"
    compared = replay_recording(name, swapped, monkeypatch, {"nodes": 63}, SWAP)
    assert compared == sum(map(steps_to_the_end, golden(name)["results"]))


@pytest.mark.parametrize("name", ["medusa_greedy_small8", "medusa_greedy_chain4"])
def test_padding_is_never_accepted(name: str, swapped: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small trees have short paths: with the first of these the original leaves the plain output on prompts 4 and 9."""
    paths = [tuple(path) for path in golden(name)["header"]["tree_choices"]]
    monkeypatch.setattr(medusa, "choose_paths", lambda *_: paths)
    for number in (4, 9):
        ids = [SWAP.get(token, token) for token in prompt_ids(number)]
        lane = swapped.lane("medusa", ids=ids, budget=64)
        for turn in lane.turns():
            assert all(0 < node < len(turn.tree) for node in turn.verdict.accepted)
        assert lane.output == [SWAP.get(token, token) for token in plain_greedy(number)]
        assert 0 in lane.output


@pytest.mark.parametrize("rule", ["greedy", "speculative"])
def test_the_sampled_law_is_the_targets(rule: str) -> None:
    """150 seeded runs of four tokens, two possible at each place; half of them with a context branch."""
    bench = make_toy(2)
    ids = bench.ids(PROMPTS[2])
    settings = SamplingSettings(temperature=1.3, top_k=2)

    def run(seed: int) -> tuple[int, ...]:
        params = {"nodes": 9, "rule": rule, "context_branch": seed % 2}
        sampling = settings.model_copy(update={"seed": seed})
        return tuple(decode(bench.lane("medusa", params, ids=ids, budget=4, sampling=sampling)))

    assert chi_square_p(exact_law(bench, ids, settings, 4), run, 150) > 1e-3


def test_the_record_tells_threshold_and_entropy_under_typical_acceptance(toy: Bench) -> None:
    sampling = SamplingSettings(temperature=0.7)
    lane = toy.lane("medusa", {"rule": "typical"}, ids=toy.ids("the rain"), budget=9, sampling=sampling)
    for turn in lane.turns():
        payload = lane.method.payload()
        assert isinstance(payload, MedusaPayload)
        probs = torch.softmax(turn.output.logits[0] / 0.7, dim=-1)
        entropy = float(-(probs * torch.log(probs + 1e-5)).sum())
        assert payload.entropy == pytest.approx(entropy, rel=1e-4)
        assert payload.threshold == pytest.approx(min(0.09, 0.3 * math.exp(-entropy)), rel=1e-4)
        assert payload.tree == "auto"


@pytest.mark.parametrize("rule", ["greedy", "speculative", "top-k"])
def test_other_rules_have_no_threshold(rule: str, toy: Bench) -> None:
    sampling = SamplingSettings(temperature=0.7)
    lane = toy.lane("medusa", {"rule": rule}, ids=toy.ids("the rain"), budget=5, sampling=sampling)
    next(lane.turns())
    payload = lane.method.payload()
    assert isinstance(payload, MedusaPayload)
    assert payload.threshold is None
    assert payload.entropy is None


@pytest.mark.parametrize(("heads", "layers"), [(1, 1), (2, 3), (3, 1), (5, 2)])
@pytest.mark.parametrize("tree", ["auto", "vicuna_13b_stage2"])
def test_any_number_of_heads_and_layers(heads: int, layers: int, tree: str, toy: Bench) -> None:
    """The tree is pruned to the heads that exist; the output stays."""
    drafter = type(toy.drafters["medusa"])(heads, toy.target.hidden_size, num_layers=layers)
    torch.nn.init.normal_(drafter.weight, std=0.05)
    drafter.bind(toy.target.output_weight)
    ids = toy.ids("the rain in the")
    lane = toy.lane("medusa", {"tree": tree, "nodes": 63}, ids=ids, budget=16, drafter=drafter.eval())
    deepest = {max(turn.tree.depths) for turn in lane.turns()}
    assert deepest == {min(heads, 4) if tree != "auto" else max(deepest)}
    assert max(deepest) <= heads
    assert lane.output == toy.expected(ids, 16)


def test_nodes_carry_the_heads_tokens_whatever_their_parent(toy: Bench) -> None:
    lane = toy.lane("medusa", {"nodes": 63}, ids=toy.ids("the rain"), budget=8)
    for turn in lane.turns():
        payload = lane.method.payload()
        assert isinstance(payload, MedusaPayload)
        for node, candidate in enumerate(turn.tree.candidates, start=1):
            assert candidate.rank is not None
            tops: tuple[TopToken, ...] = payload.heads[turn.tree.depths[node] - 1]
            if candidate.rank < len(tops):
                assert tops[candidate.rank].token_id == candidate.token_id
                assert tops[candidate.rank].prob == pytest.approx(candidate.draft_prob, rel=1e-4)


@torch.inference_mode()
def test_the_heads_read_the_last_accepted_position(toy: Bench) -> None:
    """Drafts equal those that a fresh lane makes from the same context."""
    ids = toy.ids("the rain in the")
    lane = toy.lane("medusa", ids=ids, budget=14)
    for _ in lane.turns():
        if lane.stop_reason:
            break
        context = [*ids, *lane.output]
        fresh = toy.lane("medusa", ids=context[:-1], budget=2)
        assert fresh.method.propose(context).tree.token_ids == lane.method.propose(context).tree.token_ids


def test_a_small_draft_vocabulary_maps_to_the_targets_ids(toy: Bench) -> None:
    kept = torch.arange(100, 160)
    heads = type(toy.drafters["medusa"])(4, toy.target.hidden_size, token_map=kept)
    torch.nn.init.normal_(heads.weight, std=0.05)
    heads.bind(toy.target.output_weight)
    ids = toy.ids("the rain")
    lane = toy.lane("medusa", ids=ids, budget=12, drafter=heads.eval())
    drafted = [token for turn in lane.turns() for token in turn.tree.token_ids[1:]]
    assert drafted
    assert set(drafted) <= set(kept.tolist())
    assert lane.output == toy.expected(ids, 12)


def test_a_vocabulary_smaller_than_the_ranks(toy: Bench) -> None:
    """Three tokens to draft from, a tree that asks for the tenth best: the tree keeps what there is."""
    heads = type(toy.drafters["medusa"])(4, toy.target.hidden_size, token_map=torch.tensor([100, 101, 102]))
    heads.bind(toy.target.output_weight)
    lane = toy.lane("medusa", {"nodes": 63}, ids=[40, 41], budget=6, drafter=heads.eval())
    sizes = {len(turn.tree.children()[0]) for turn in lane.turns()}
    assert sizes == {3}
    assert lane.output == toy.expected([40, 41], 6)
