"""What a training run leaves behind: weights, config.json and a card with the measured figures."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from explorer.drafters.checkpoint import write_checkpoint
from explorer.drafters.eagle_head import EagleHead
from explorer.drafters.medusa_heads import MedusaHeads
from explorer.training.evaluate import EagleReport, MedusaReport
from explorer.training.options import TrainOptions
from explorer.training.prepare import Prepared


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


def publish_medusa(
    heads: MedusaHeads, prepared: Prepared, options: TrainOptions, report: MedusaReport, clock: Clock
) -> None:
    """Write Medusa heads in the shared-output layout."""
    config = {
        "model_type": "medusa",
        "version": "2",  # the public name of the layout without own output matrices
        "hidden_size": heads.hidden_size,
        "medusa_num_heads": heads.num_heads,
        "medusa_num_layers": heads.weight.shape[0],
        "accuracies": report.accuracies,
        **_common(prepared, options, report.facts(), clock),
    }
    top = [("Head", "predicts token", "top-1", "top-5", "top-10")]
    top += [
        (str(i + 1), f"t+{i + 2}", f"{row[0]:.3f}", f"{sum(row[:5]):.3f}", f"{sum(row):.3f}")
        for i, row in enumerate(report.accuracies)
    ]
    card = _card("Medusa heads", heads.export(), config, top, report.chain_tokens)
    write_checkpoint(options.out, heads.export(), config, card)


def publish_eagle(
    head: EagleHead, prepared: Prepared, options: TrainOptions, report: EagleReport, clock: Clock
) -> None:
    """Write an EAGLE-1 head in the public layout."""
    shape = head.shape
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "drafter": "eagle",
        "num_hidden_layers": 1,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "rms_norm_eps": shape.rms_norm_eps,
        "rope_theta": shape.rope_theta,
        "hidden_act": "silu",
        "bias": shape.fc_bias,
        **_common(prepared, options, report.facts(), clock),
    }
    top = [("Depth of the guess", "top-1", "top-5")]
    top += [
        (str(i + 1), f"{one:.3f}", f"{five:.3f}")
        for i, (one, five) in enumerate(zip(report.top1, report.top5, strict=True))
    ]
    card = _card("EAGLE head", head.export(), config, top, report.chain_tokens)
    write_checkpoint(options.out, head.export(), config, card)


def _common(prepared: Prepared, options: TrainOptions, held_out: dict[str, Any], clock: Clock) -> dict[str, Any]:
    vocab_size = prepared.output_weight.shape[0]
    return {
        "vocab_size": vocab_size,
        "draft_vocab_size": vocab_size if prepared.token_map is None else len(prepared.token_map),
        "target_sha256": prepared.target_sha256,
        "torch_dtype": "bfloat16",
        "training": {
            "train_tokens": prepared.train_tokens,
            "train_answer_tokens": prepared.train_answer_tokens,
            "epochs": options.epochs,
            "unroll_epochs": options.unroll_epochs,
            "unroll_steps": options.unroll_steps,
            "batch_tokens": options.batch_tokens,
            "learning_rate": options.learning_rate,
            "seed": options.seed,
            "threads": options.threads,
            "seconds": {name: round(seconds, 1) for name, seconds in clock.seconds.items()},
            "held_out": held_out,
        },
    }


def _card(
    title: str, tensors: dict[str, Any], config: dict[str, Any], table: Sequence[tuple[str, ...]], chain: float
) -> str:
    """The README of a drafter, from the figures of the run."""
    facts = config["training"]
    parameters = sum(tensor.numel() for tensor in tensors.values() if tensor.is_floating_point())
    stored = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    header, *rows = ["| " + " | ".join(row) + " |" for row in table]
    rule = "|" + "---|" * len(table[0])
    parts = ", ".join(f"{name} {seconds / 60:.1f} min" for name, seconds in facts["seconds"].items())
    return "\n".join(
        [
            f"# {title}",
            "",
            f"{parameters / 1e6:.2f} million parameters, {stored / 1e6:.1f} MB in bfloat16. Embedding and output",
            "matrix are the target's and are not stored. Drafts from "
            f"{config['draft_vocab_size']:,} of {config['vocab_size']:,} tokens (`token_map`).",
            "Made for the target whose weights have sha256",
            f"`{config['target_sha256']}`; with another version of",
            "the same model it runs, output stays right and acceptance may differ.",
            "",
            "## Data",
            "",
            f"{facts['train_tokens']:,} tokens ({facts['train_answer_tokens']:,} of answers), written by the target",
            "itself: prompts sampled from it, answers greedy or sampled, looping answers left out. No public data",
            "set. One prompt in twenty (by md5) is held out.",
            "",
            "## Held-out accuracy",
            "",
            f"On {facts['held_out']['positions']:,} positions of held-out greedy answers. A single drafted chain",
            f"would bring {chain:.2f} tokens per target pass.",
            "",
            header,
            rule,
            *rows,
            "",
            "## Cost",
            "",
            f"CPU, {facts['threads']} thread(s), wall clock (features that were cached not counted): {parts}.",
            "Recipe and negative results: `docs/design/drafter-training.md`.",
            "",
        ]
    )
