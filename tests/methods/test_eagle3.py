"""EAGLE-3: fused features and a draft vocabulary, and steps equal the original's."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from explorer.errors import ExplorerError
from explorer.methods.eagle3 import Eagle3
from explorer.payloads import EaglePayload
from explorer.sampling import SamplingSettings
from explorer.target import tap_hidden
from tests.lanes import PROMPTS, Bench, make_toy
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

NEAR_TIES = {("eagle3_greedy_tt60_d7_k10_defaults", 6, 7): (13, 416, 289)}
"""File, prompt and step to a node, its recorded token, and one whose log-probability differs by 1e-6."""


@pytest.mark.parametrize("name", ["eagle3_greedy_tt10_d3_k4", "eagle3_greedy_tt60_d7_k10_defaults"])
def test_steps_equal_the_originals(name: str, tiny: Bench) -> None:
    """Nodes, parents, scores, accepted nodes and next root, step by step on every prompt.

    total_token counts the root, depth one level less than ours.
    """
    header, compared = golden(name)["header"], 0
    params = {"nodes": header["total_token"] - 1, "depth": header["depth"] + 1, "top_k": header["top_k"]}
    for result in golden(name)["results"]:
        number, expected = result["id"], plain_greedy(result["id"])
        lane = tiny.lane("eagle3", params, ids=prompt_ids(number), budget=len(expected))
        for place, (turn, step) in enumerate(zip(lane.turns(), result["steps"], strict=False)):
            check_dynamic_tree(step, turn.tree, NEAR_TIES.get((name, number, place)))
            check_greedy_verdict(step, turn)
            compared += 1
        assert lane.output == expected
    assert compared >= sum(map(steps_to_the_end, golden(name)["results"])) - 12


def test_sampled_steps_equal_the_originals(tiny: Bench) -> None:
    """The recorded draws through our trees and trials: the same probabilities, verdicts and residuals."""
    recording = golden("eagle3_t0.7_p0.9_tt10_d3_k4")
    params = {"nodes": 9, "depth": 4, "top_k": 4, "rule": "speculative"}
    settings = SamplingSettings(temperature=0.7, top_p=0.9)
    compared = 0
    for result in recording["results"]:
        lane, replay = lane_of(tiny, "eagle3", params, result, settings)
        for _, step, turn in replayed(lane, replay, result["steps"]):
            check_dynamic_tree(step, turn.tree)
            check_trials(step, turn, replay.left)
            check_greedy_verdict(step, turn)
            compared += 1
    assert compared == sum(map(steps_to_the_end, recording["results"]))


def test_it_reads_the_layers_that_the_drafter_names_or_the_originals(tiny: Bench, toy: Bench) -> None:
    """Of 8 layers the inputs of 2, 4 and 5; the toy's head names 1, 2 and 3."""
    assert Eagle3.taps_for(tiny.drafters["eagle3"], 8) == {tap_hidden(2), tap_hidden(4), tap_hidden(5)}
    assert Eagle3.taps_for(tiny.drafters["eagle3"], 30) == {tap_hidden(2), tap_hidden(15), tap_hidden(27)}
    assert Eagle3.taps_for(toy.drafters["eagle3"], 4) == {tap_hidden(1), tap_hidden(2), tap_hidden(3)}


@pytest.mark.parametrize("layers", [1, 4, 6])
def test_a_target_without_three_such_layers_is_refused(layers: int, tiny: Bench) -> None:
    with pytest.raises(ExplorerError, match=f"a target of {layers} layers has no three of these"):
        Eagle3.taps_for(tiny.drafters["eagle3"], layers)


@torch.inference_mode()
def test_a_tap_is_the_input_of_its_layer(toy: Bench) -> None:
    """By a hook on the layers themselves, for the prompt's rows and for a pass over a tree."""
    seen: dict[int, torch.Tensor] = {}

    def note(layer: int) -> Any:
        return lambda module, args, kwargs: seen.update({layer: (args[0] if args else kwargs["hidden_states"])[0]})

    layers = toy.model.model.layers
    hooks = [layers[layer].register_forward_pre_hook(note(layer), with_kwargs=True) for layer in (1, 2, 3)]
    try:
        lane = toy.lane("eagle3", ids=toy.ids("the rain"), budget=9)
        turn = next(lane.turns())
        assert set(turn.output.taps) > {tap_hidden(layer) for layer in seen}
        for layer, state in seen.items():
            assert len(state) == len(turn.tree)
            torch.testing.assert_close(turn.output.taps[tap_hidden(layer)], state)
    finally:
        for hook in hooks:
            hook.remove()


def test_only_the_draft_vocabulary_is_drafted_and_the_record_says_so(toy: Bench) -> None:
    """The toy's head drafts even ids. What lies outside comes from the target, and the output stays."""
    covered = set()
    for tree in ("dynamic", "static", "chain"):
        ids = toy.ids(PROMPTS[0])
        lane = toy.lane("eagle3", {"tree": tree}, ids=ids, budget=24)
        for turn in lane.turns():
            assert all(candidate.token_id % 2 == 0 for candidate in turn.tree.candidates)
            payload = lane.method.payload()
            assert isinstance(payload, EaglePayload)
            assert payload.covered == (lane.output[-1] % 2 == 0)
            assert payload.draft_vocabulary == 192
            assert payload.tapped_layers == (1, 2, 3)
            covered.add(payload.covered)
        assert lane.output == toy.expected(ids, 24)
    assert covered == {True, False}


def test_drafts_are_right_at_times() -> None:
    """Else no test above would see an accepted path."""
    accepted = 0
    for seed in range(3):
        bench = make_toy(seed)
        lane = bench.lane("eagle3", {"nodes": 40, "top_k": 10}, ids=bench.ids(PROMPTS[2]), budget=24)
        accepted += sum(len(turn.verdict.accepted) for turn in lane.turns())
    assert accepted > 3
