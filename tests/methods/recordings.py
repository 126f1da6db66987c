"""Recordings of the original implementations on a tiny trained target."""

from __future__ import annotations

import gzip
import itertools
import json
import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from explorer.decode import Lane, Turn
from explorer.methods import find_method
from explorer.sampling import Chooser, SamplingSettings
from explorer.tree import CandidateTree
from tests.lanes import Bench

CONFORMANCE = Path(__file__).parent.parent / "data" / "conformance"


@cache
def golden(name: str) -> dict[str, Any]:
    """A recording: header and one result a prompt."""
    text = gzip.decompress((CONFORMANCE / "golden" / f"{name}.json.gz").read_bytes())
    return dict(json.loads(text))


def prompt_ids(number: int) -> list[int]:
    """The prompt's token ids, as the original implementations saw them."""
    return list(next(each["input_ids"] for each in golden("prompts")["prompts"] if each["id"] == number))


def plain_greedy(number: int) -> list[int]:
    """What transformers' own generate gave: 64 tokens, or up to the end token."""
    return list(next(each["tokens"] for each in golden("plain_greedy")["results"] if each["id"] == number))


class Replay(Chooser):
    """Draws what was recorded: uniform numbers for the trials, tokens for the target's own choices.

    The original accepts where the draw is at most the ratio, ours where it is under it: the same but for a tie.
    """

    def __init__(self, settings: SamplingSettings, first: int) -> None:
        super().__init__(settings)
        self.tokens, self.uniforms = [first], list[float]()
        self.left = torch.empty(0)
        """(V,): the distribution that the last token was drawn from."""

    def load(self, step: dict[str, Any]) -> None:
        """The draws of one step; those of the step before must be used up."""
        assert not self.tokens
        assert not self.uniforms
        self.tokens = [step["next_root"]]
        self.uniforms = [trial[-2] for trial in step["trials"]]

    def coin(self, probability: float) -> tuple[bool, float]:
        draw = self.uniforms.pop(0)
        return draw < probability, draw

    def pick(self, probs: Tensor, place: int | None = None) -> int:
        self.left = probs
        return self.tokens.pop(0)


def lane_of(
    bench: Bench,
    method: str,
    params: dict[str, Any],
    result: dict[str, Any],
    settings: SamplingSettings,
    ids: list[int] | None = None,
) -> tuple[Lane, Replay]:
    """A lane that draws what was recorded, the prefill's token too. ids: the prompt, where it is not the recorded."""
    kind = find_method(method)
    lane = Lane(
        kind.name,
        bench.target,
        kind,
        kind.Params(**params),
        sampling=settings,
        max_new_tokens=len(result["output"]) + 10,
        drafter=bench.drafter(kind),
    )
    replay = Replay(settings, result["steps"][0]["root"])
    lane._chooser = replay
    lane.start(bench.target.prefill(ids or prompt_ids(result["id"]), taps=lane.taps), 0.0)
    return lane, replay


def replayed(lane: Lane, replay: Replay, steps: list[dict[str, Any]]) -> Iterator[tuple[int, dict[str, Any], Turn]]:
    """Each recorded step with the turn that the same draws make of it, up to the end token."""
    turns = lane.turns()
    for place, step in enumerate(steps):
        if lane.stop_reason is None:
            replay.load(step)
            yield place, step, next(turns)


def steps_to_the_end(result: dict[str, Any]) -> int:
    """Steps that begin before the end token is out; the original looks for it only after a step."""
    sizes = itertools.accumulate(len(step["emitted"]) for step in result["steps"])
    end = result["eos_index"]
    return len(result["steps"]) if end < 0 else 1 + sum(size < end for size in sizes)


def check_dynamic_tree(step: dict[str, Any], tree: CandidateTree, tie: tuple[int, int, int] | None = None) -> None:
    """Tokens, parents, depths and scores of a tree. tie: a node, its recorded token and another as good as that."""
    ours, theirs = tree.token_ids, step["tokens"]
    if tie is not None and ours[tie[0]] == tie[2]:
        ours[tie[0]] = tie[1]
    assert ours == theirs
    assert [-1, *(candidate.parent for candidate in tree.candidates)] == step["parents"]
    assert list(tree.depths) == step["depths"]
    scores = [math.exp(score) for score in step["scores"][1:]]  # the root's is a filler
    assert [candidate.score for candidate in tree.candidates] == pytest.approx(scores, rel=1e-4)


def check_greedy_verdict(step: dict[str, Any], turn: Turn) -> None:
    """Accepted nodes, emitted tokens and the next root."""
    assert [0, *turn.verdict.accepted] == step["accepted_nodes"]
    assert len(turn.verdict.accepted) == step["accept_length"]
    assert [turn.tree.root, *(turn.tree.token_ids[node] for node in turn.verdict.accepted)] == step["emitted"]
    if "next_root" in step:
        assert turn.verdict.choice.token_id == step["next_root"]


def check_trials(step: dict[str, Any], turn: Turn, left: Tensor) -> None:
    """Every trial in the order made: token, probabilities, verdict; and the distribution drawn from after them."""
    judged = list(turn.verdict.decisions.items())
    assert len(judged) == len(step["trials"])
    for (node, decision), (_, depth, token, target_prob, *draft_prob, draw, accepted) in zip(
        judged, step["trials"], strict=True
    ):
        assert (turn.tree.depths[node], turn.tree.token_ids[node]) == (depth, token)
        assert decision.target_prob == pytest.approx(target_prob, rel=2e-4, abs=2e-6)
        assert decision.draft_prob == pytest.approx(draft_prob[0] if draft_prob else 1.0, rel=2e-4, abs=2e-6)
        assert (decision.draw, decision.accepted) == (draw, accepted)
    tokens, probs = step["residual_top5"]
    assert left[tokens].tolist() == pytest.approx(probs, rel=5e-4, abs=2e-6)
    assert float(left.max()) == pytest.approx(probs[0], rel=5e-4)
