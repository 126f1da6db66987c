"""Medusa: the static tree is the best one, heads fill it, and steps equal the original's."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from explorer.decode import Turn
from explorer.methods import medusa
from explorer.methods.medusa import MAX_RANKS, MedusaParams, RankPath, best_paths, choose_paths
from explorer.payloads import MedusaPayload
from explorer.trace import TopToken
from tests.lanes import Bench
from tests.methods.recordings import golden, plain_greedy, prompt_ids

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


def record(bench: Bench, ids: list[int], budget: int, params: dict[str, Any]) -> list[Turn]:
    """The turns of a lane."""
    return list(bench.lane("medusa", params, ids=ids, budget=budget).turns())


@pytest.mark.parametrize("name", ["medusa_greedy_small8", "medusa_greedy_chain4", "medusa_greedy_mc_sim_7b_63"])
def test_steps_equal_the_originals(name: str, tiny: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Candidate trees, the target's choices, accepted lengths and tokens, step by step on every prompt.

    The recorded `emitted` is root and accepted nodes; ours commits accepted nodes and the target's token.
    """
    recording = golden(name)
    paths = [tuple(path) for path in recording["header"]["tree_choices"]]
    monkeypatch.setattr(medusa, "choose_paths", lambda *_: paths)
    compared = 0
    for result in recording["results"][:4]:
        ids, expected = prompt_ids(result["id"]), plain_greedy(result["id"])
        turns = record(tiny, ids, len(expected), {"nodes": 63})
        for place, (turn, step) in enumerate(zip(turns, result["steps"], strict=False)):
            assert turn.tree.token_ids == step["tree_tokens"], (result["id"], place)
            assert turn.output.logits.argmax(dim=-1).tolist() == step["target_argmax"]
            assert len(turn.verdict.accepted) == step["accept_length"]
            assert [0, *turn.verdict.accepted] == step["accepted_nodes"]
            accepted = [turn.tree.token_ids[node] for node in turn.verdict.accepted]
            assert [turn.tree.root, *accepted] == step["emitted"]
            compared += 1
    assert compared > 100


def test_a_drafted_token_zero_is_accepted_only_where_it_was_drafted(tiny: Bench) -> None:
    """The original pads its path table with token 0 and may accept the padding; a path here ends at its leaf."""
    for number in (4, 9):
        ids = prompt_ids(number)
        for turn in record(tiny, ids, 40, {"nodes": 3}):
            assert all(0 < node < len(turn.tree) for node in turn.verdict.accepted)
            last = turn.verdict.accepted[-1] if turn.verdict.accepted else 0
            assert turn.verdict.choice.token_id == int(turn.output.logits[last].argmax())


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
