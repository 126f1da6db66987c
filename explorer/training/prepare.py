"""From options to what both trainings need: samples with features, draft vocabulary, the target's matrices."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PretrainedConfig

from explorer.errors import ExplorerError
from explorer.training.data import Example, build_examples, frequent_tokens, read_pairs
from explorer.training.features import Sample, extract_features
from explorer.training.options import TrainOptions
from explorer.training.target import load_frozen, use_threads


@dataclass(frozen=True)
class Prepared:
    """Everything a training run reads."""

    train: list[Sample]
    held_out: list[Sample]
    token_map: Tensor | None  # (D,) ascending target ids; None = full vocabulary
    embed_weight: Tensor  # (V, h)
    output_weight: Tensor  # (V, h)
    target_config: PretrainedConfig
    target_sha256: str
    fingerprint: str

    @property
    def train_tokens(self) -> int:
        return sum(len(sample.example) for sample in self.train)

    @property
    def train_answer_tokens(self) -> int:
        return sum(len(sample.example) - sample.example.prompt_length for sample in self.train)


def prepare(options: TrainOptions) -> Prepared:
    """Read the data, run the target over them where the cache lacks features, split, choose the draft vocabulary."""
    use_threads(options.threads)
    pairs = read_pairs(options.data)
    target = load_frozen(options.model, sha256=options.target_sha256)
    examples = build_examples(
        pairs,
        target.codec,
        vocab_size=target.vocab_size,
        max_length=options.max_length,
        max_tokens=options.max_tokens,
    )
    samples = extract_features(target.model, examples, options.work_folder / "features", target_sha256=target.sha256)
    held_out = [sample for sample in samples if sample.example.held_out]
    if not held_out:
        raise ExplorerError("No held-out example is left: the data or --max-tokens are too small.")
    token_map = None
    if options.draft_vocab < target.vocab_size:
        token_map = torch.tensor(frequent_tokens(examples, options.draft_vocab))
    return Prepared(
        train=[sample for sample in samples if not sample.example.held_out],
        held_out=held_out,
        token_map=token_map,
        embed_weight=target.embed_weight,
        output_weight=target.output_weight,
        target_config=target.config,
        target_sha256=target.sha256,
        fingerprint=_fingerprint(examples, token_map, target.sha256),
    )


def training_rows(prepared: Prepared) -> list[int]:
    """Lengths of the training samples."""
    return [len(sample.example) for sample in prepared.train]


def _fingerprint(examples: list[Example], token_map: Tensor | None, target_sha256: str) -> str:
    digest = hashlib.sha256(target_sha256.encode())
    for example in examples:
        digest.update(repr(example.ids).encode())
    digest.update(repr(None if token_map is None else token_map.tolist()).encode())
    return digest.hexdigest()[:16]
