"""From options to what all trainings need: samples with features, draft vocabulary, the target's matrices."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from torch import Tensor

from explorer.errors import ExplorerError
from explorer.training.data import Example, build_examples, frequent_tokens, read_pairs
from explorer.training.features import Sample, extract_features, read_samples
from explorer.training.loop import start_workers
from explorer.training.options import TrainOptions
from explorer.training.target import FrozenTarget, load_frozen, tap_layers, use_threads


@dataclass(frozen=True)
class Prepared:
    """Everything a training run reads."""

    train: list[Sample]
    held_out: list[Sample]
    token_map: Tensor | None  # (D,) ascending target ids; None = full vocabulary
    target: FrozenTarget
    taps: tuple[int, ...]  # layers whose inputs the samples hold, () if none
    fingerprint: str
    workers: Accelerator

    @property
    def device(self) -> torch.device:
        return self.workers.device

    @property
    def lengths(self) -> list[int]:
        """Tokens of the training samples."""
        return [len(sample.example) for sample in self.train]

    @property
    def train_tokens(self) -> int:
        return sum(self.lengths)

    @property
    def train_answer_tokens(self) -> int:
        return sum(len(sample.example) - sample.example.prompt_length for sample in self.train)

    def embed_rows(self) -> Tensor:
        """(V, h) float32 on the training device."""
        return self.target.embed_weight.to(self.device, torch.float32)

    def output_rows(self) -> Tensor:
        """(V, h) float32 on the training device."""
        return self.target.output_weight.to(self.device, torch.float32)


def prepare(options: TrainOptions, *, with_taps: bool = False) -> Prepared:
    """Read the data, run the target over them where the cache lacks features, split, choose the draft vocabulary."""
    use_threads(options.threads)
    workers = start_workers(
        mixed_precision=options.mixed_precision, accumulate=options.accumulate, device=options.device
    )
    pairs = read_pairs(options.data)
    target = load_frozen(options.model, sha256=options.target_sha256, device=str(workers.device))
    examples = build_examples(
        pairs,
        target.codec,
        vocab_size=target.vocab_size,
        max_length=min(options.max_length, int(target.config.max_position_embeddings)),
        max_tokens=options.max_tokens,
    )
    taps = tap_layers(int(target.config.num_hidden_layers)) if with_taps else ()
    samples = _samples(target, examples, taps, options, workers)
    held_out = [sample for sample in samples if sample.example.held_out]
    if not held_out:
        raise ExplorerError("No held-out example is left: the data or --max-tokens are too small.")
    token_map = None
    if options.draft_vocab < target.vocab_size and not options.own_output:
        token_map = torch.tensor(frequent_tokens(examples, options.draft_vocab))
    return Prepared(
        train=[sample for sample in samples if not sample.example.held_out],
        held_out=held_out,
        token_map=token_map,
        target=target,
        taps=taps,
        fingerprint=_fingerprint(examples, token_map, target.sha256, options),
        workers=workers,
    )


def _samples(
    target: FrozenTarget, examples: list[Example], taps: tuple[int, ...], options: TrainOptions, workers: Accelerator
) -> list[Sample]:
    """Each process computes its part of the missing features; all read all of them."""
    shards = extract_features(
        target.model,
        examples,
        options.features_folder,
        target_sha256=target.sha256,
        tap_layers=taps,
        part=workers.process_index,
        parts=workers.num_processes,
        show_progress=workers.is_main_process,
    )
    workers.wait_for_everyone()
    return read_samples(shards, int(target.config.hidden_size), len(taps))


def _fingerprint(examples: list[Example], token_map: Tensor | None, target_sha256: str, options: TrainOptions) -> str:
    """Names what a saved state belongs to: target, texts, draft vocabulary and recipe."""
    digest = hashlib.sha256(target_sha256.encode())
    for example in examples:
        digest.update(repr(example.ids).encode())
    digest.update(repr(None if token_map is None else token_map.tolist()).encode())
    # Accumulation and precision are in the loop's part: two processes may take up what one began.
    recipe = {key: value for key, value in options.recipe().items() if key not in ("accumulate", "mixed_precision")}
    digest.update(repr(sorted(recipe.items())).encode())
    return digest.hexdigest()[:16]
