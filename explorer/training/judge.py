"""Acceptance of a drafter, from recorded runs: by depth, and the best static tree for it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from explorer.drafters.checkpoint import read_checkpoint
from explorer.drafters.draft_model import DraftModel
from explorer.drafters.eagle3_head import Eagle3Head
from explorer.drafters.eagle_head import EagleHead
from explorer.drafters.medusa_heads import MedusaHeads
from explorer.errors import ExplorerError
from explorer.target import TAP_LAST, TargetModel, tap_hidden
from explorer.trace import Step, Trace
from explorer.training.data import Example
from explorer.training.evaluate import (
    Report,
    evaluate_draft_model,
    evaluate_eagle,
    evaluate_eagle3,
    evaluate_medusa,
)
from explorer.training.features import Sample
from explorer.training.state import write_whole


@dataclass(frozen=True)
class DepthRow:
    """What became of the drafts at one depth of the tree."""

    depth: int
    reached: int
    """Steps whose accepted path came to the depth before and had drafts here."""
    accepted: int
    """Of these, steps that accepted a draft here."""

    @property
    def rate(self) -> float:
        return self.accepted / self.reached if self.reached else 0.0


def acceptance_by_depth(traces: Sequence[Trace]) -> list[DepthRow]:
    """Conditional acceptance: of the steps that got as far as a depth, how many went on there."""
    reached: dict[int, int] = {}
    accepted: dict[int, int] = {}
    for trace in traces:
        for step in trace.steps:
            offered, length = _offered_depth(step), len(step.accepted)
            for depth in range(1, min(offered, length + 1) + 1):
                reached[depth] = reached.get(depth, 0) + 1
                accepted[depth] = accepted.get(depth, 0) + (depth <= length)
    return [DepthRow(depth, reached[depth], accepted[depth]) for depth in sorted(reached)]


def _offered_depth(step: Step) -> int:
    """Depth of the children of the accepted path's end, or of that end where it has none."""
    end = step.accepted[-1] if step.accepted else 0
    return len(step.accepted) + any(node.parent == end for node in step.nodes)


@torch.inference_mode()
def samples_of(target: TargetModel, traces: Sequence[Trace], taps: Sequence[int] = ()) -> list[Sample]:
    """What was decoded, with the target's states at every position."""
    samples = []
    for trace in traces:
        ids = (*trace.prompt.token_ids, *(token.id for token in trace.tokens))
        states = target.prefill(ids, taps=frozenset({TAP_LAST, *map(tap_hidden, taps)})).taps  # each (tokens, h)
        inner = torch.cat([states[tap_hidden(layer)] for layer in taps], dim=-1) if taps else None
        example = Example(ids, len(trace.prompt.token_ids), 0.0, True)
        samples.append(Sample(example, states[TAP_LAST], inner))
    return samples


def judge(drafter: Any, target: TargetModel, traces: Sequence[Trace]) -> Report:
    """Accuracy by depth and rank on the target's own outputs, and the best static trees."""
    if isinstance(drafter, MedusaHeads):
        return evaluate_medusa(drafter, samples_of(target, traces))
    if isinstance(drafter, EagleHead):
        return evaluate_eagle(drafter, samples_of(target, traces))
    if isinstance(drafter, Eagle3Head):
        taps = drafter.taps_of(int(target.transformers_model.config.num_hidden_layers))
        return evaluate_eagle3(drafter, samples_of(target, traces, taps))
    if isinstance(drafter, DraftModel):
        return evaluate_draft_model(drafter.module, drafter.token_map, samples_of(target, traces))
    raise ExplorerError("This method has no trained drafter to judge; name medusa, eagle, eagle3 or draft-model.")


def write_measurement(folder: Path, report: Report, measured: Mapping[str, Any], prompts: Path) -> None:
    """Put the best trees and what was measured into the drafter's config.json; the weights stay as they are."""
    _, config = read_checkpoint(folder)
    config["trees"] = {str(nodes): [list(path) for path in tree] for nodes, tree in report.trees.items()}
    config["evaluation"] = {
        "prompts": prompts.name,
        "prompts_sha256": hashlib.sha256(prompts.read_bytes()).hexdigest(),
        **measured,
        **report.facts(),
    }
    data = (json.dumps(config, indent=2) + "\n").encode()
    write_whole(folder / "config.json", data, what="The drafter's config")
