"""What a training run leaves behind: weights, config.json, curve.json and a card with the measured figures."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from explorer.drafters.draft_model import DraftShape
from explorer.drafters.eagle3_head import Eagle3Head
from explorer.drafters.eagle_head import EagleHead
from explorer.drafters.layers import SlotShape
from explorer.drafters.medusa_heads import MedusaHeads
from explorer.training.evaluate import Report
from explorer.training.monitor import Trainee, save_drafter
from explorer.training.options import TrainOptions
from explorer.training.prepare import Prepared
from explorer.training.state import write_whole

CURVE_NOTE = (
    "Held-out figures along the run: train_tokens seen (prompts included, passes counted), top1 and top5 by depth of "
    "the guess, chain_tokens and tree_tokens = tokens per target pass of a drafted chain of five and of the best "
    "static tree of 25 nodes, teacher-forced over positions."
)


class Clock:
    """Seconds by part of the run."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        start = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = time.monotonic() - start


def publish(
    folder: Path, trainee: Trainee, report: Report, config: Mapping[str, Any], points: Sequence[Mapping[str, Any]]
) -> None:
    """Write the drafter's folder."""
    tensors = trainee.export()
    save_drafter(folder, tensors, config, card(trainee.title, tensors, config, report))
    curve = {"note": CURVE_NOTE, "points": list(points)}
    write_whole(folder / "curve.json", (json.dumps(curve, indent=1) + "\n").encode(), what="The curve")


def medusa_config(heads: MedusaHeads, report: Report) -> dict[str, Any]:
    """Medusa heads, in the shared-output layout or with own output matrices."""
    version = {} if heads.own_output is not None else {"version": "2"}  # the public name of the shared layout
    return {
        "model_type": "medusa",
        **version,
        "hidden_size": heads.hidden_size,
        "medusa_num_heads": heads.num_heads,
        "medusa_num_layers": heads.weight.shape[0],
        "accuracies": report.accuracies,
    }


def eagle_config(head: EagleHead) -> dict[str, Any]:
    """An EAGLE-1 head in the public layout."""
    return {"drafter": "eagle", **_llama(head.shape), "bias": head.shape.fc_bias}


def eagle3_config(head: Eagle3Head) -> dict[str, Any]:
    """An EAGLE-3 head in the public layout; the layers are named the way vLLM and speculators do."""
    return {
        "drafter": "eagle3",
        **_llama(head.shape),
        "eagle_aux_hidden_state_layer_ids": list(head.aux_layers or ()),
        "norm_before_residual": head.shape.norm_before_residual,
        "fc_norm": head.shape.fc_norm,
    }


def draft_model_config(shape: DraftShape, hidden_size: int) -> dict[str, Any]:
    """A small causal LM in this project's layout."""
    return {"drafter": "draft-model", "model_type": "llama", "hidden_size": hidden_size, **shape.config()}


def _llama(shape: SlotShape) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "num_hidden_layers": 1,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "rms_norm_eps": shape.rms_norm_eps,
        "rope_theta": shape.rope_theta,
        "hidden_act": "silu",
    }


def common_config(
    prepared: Prepared, options: TrainOptions, report: Report, clock: Clock, tokens: int
) -> dict[str, Any]:
    """The part of config.json that every drafter has; `tokens` were seen so far, passes counted."""
    vocab_size = prepared.target.vocab_size
    return {
        "vocab_size": vocab_size,
        "draft_vocab_size": vocab_size if prepared.token_map is None else len(prepared.token_map),
        "target_sha256": prepared.target.sha256,
        "torch_dtype": "bfloat16",
        "trees": {str(nodes): [list(path) for path in tree] for nodes, tree in report.trees.items()},
        "training": {
            "tokens_seen": tokens,
            "train_tokens": prepared.train_tokens,
            "train_answer_tokens": prepared.train_answer_tokens,
            "recipe": options.recipe(),
            "processes": prepared.workers.num_processes,
            "threads": options.threads,
            "device": prepared.device.type,
            "seconds": {name: round(seconds, 1) for name, seconds in clock.seconds.items()},
            "held_out": report.facts(),
        },
    }


def card(title: str, tensors: Mapping[str, Tensor], config: Mapping[str, Any], report: Report) -> str:
    """The README of a drafter, from the figures of the run."""
    facts = config["training"]
    parameters = sum(tensor.numel() for tensor in tensors.values() if tensor.is_floating_point())
    stored = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    rows = [
        f"| {depth} | {row[0]:.3f} | {sum(row[:5]):.3f} | {sum(row):.3f} |"
        for depth, row in enumerate(report.accuracies, start=1)
    ]
    parts = ", ".join(f"{name} {seconds / 60:.1f} min" for name, seconds in facts["seconds"].items())
    return "\n".join(
        [
            f"# {title}",
            "",
            f"{parameters / 1e6:.2f} million parameters, {stored / 1e6:.1f} MB in bfloat16. Matrices of the target",
            f"are not stored. Drafts from {config['draft_vocab_size']:,} of {config['vocab_size']:,} tokens.",
            "Made for the target whose weights have sha256",
            f"`{config['target_sha256']}`; with another version of",
            "the same model it runs, output stays right and acceptance may differ.",
            "",
            "## Data",
            "",
            f"{facts['train_tokens']:,} tokens ({facts['train_answer_tokens']:,} of answers), written by the target",
            "itself: prompts sampled from it, answers greedy or sampled, looping answers left out. No public data",
            "set. One prompt in twenty (by md5) is held out.",
            f"Training saw {facts['tokens_seen']:,} tokens, passes counted.",
            "",
            "## Held-out accuracy",
            "",
            f"On {report.positions:,} positions of held-out greedy answers. A single drafted chain would bring",
            f"{report.chain_tokens:.2f} tokens per target pass, the best static tree of 25 nodes",
            f"{report.tree_tokens:.2f} (averages over positions, not over the steps of a decoder).",
            "",
            "| Guess | top-1 | top-5 | top-10 |",
            "|---|---|---|---|",
            *rows,
            "",
            "## Cost",
            "",
            f"{facts['processes']} process(es) on {facts['device']}, {facts['threads']} thread(s) each, wall clock "
            f"(features that were cached not counted): {parts}.",
            "The recipe is in config.json; `curve.json` has the acceptance against the training tokens.",
            "",
        ]
    )
