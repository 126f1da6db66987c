"""Features of the frozen target: its last hidden states after the final norm, cached on disk as bf16.

One shard file holds the features of up to 64 consecutive examples. Its name is a hash of the target and
of the token ids in it, so an interrupted extraction goes on where it stopped, and a run with more data
reuses what a smaller one left. A shard is complete or absent (written under another name, then renamed).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from tqdm import tqdm
from transformers import PreTrainedModel

from explorer.errors import ExplorerError
from explorer.training.data import Example

SHARD_EXAMPLES = 64


@dataclass(frozen=True)
class Sample:
    """An example with the target's features of all its positions."""

    example: Example
    features: Tensor  # (len(example), h) bfloat16, mapped from disk


def extract_features(
    model: PreTrainedModel,
    examples: Sequence[Example],
    folder: Path,
    *,
    target_sha256: str,
    batch_tokens: int = 2048,
    show_progress: bool = True,
) -> list[Sample]:
    """Features of all examples, computed where the cache lacks them."""
    folder.mkdir(parents=True, exist_ok=True)
    shards = list(_shards(examples, folder, target_sha256))
    total = sum(len(example) for example in examples)
    with tqdm(total=total, unit="tok", unit_scale=True, desc="features", disable=not show_progress) as progress:
        for path, members in shards:
            if not path.exists():
                _write_shard(model, members, path, batch_tokens)
            progress.update(sum(len(example) for example in members))
    return [sample for path, members in shards for sample in _read_shard(path, members, model.config.hidden_size)]


def _shards(examples: Sequence[Example], folder: Path, target_sha256: str) -> Iterator[tuple[Path, Sequence[Example]]]:
    for start in range(0, len(examples), SHARD_EXAMPLES):
        members = examples[start : start + SHARD_EXAMPLES]
        digest = hashlib.sha256(target_sha256.encode())
        for example in members:
            digest.update(torch.tensor((len(example), *example.ids), dtype=torch.int32).numpy().tobytes())
        yield folder / f"features-{digest.hexdigest()[:16]}.bin", members


def length_batches(lengths: Sequence[int], batch_tokens: int) -> list[list[int]]:
    """Indices grouped so that `rows * longest` stays within `batch_tokens`; similar lengths together."""
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda i: (lengths[i], i)):
        # Ascending order: the newest member is the longest, so it sets the padded width.
        if batches and (len(batches[-1]) + 1) * lengths[index] <= batch_tokens:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


@torch.inference_mode()
def _write_shard(model: PreTrainedModel, members: Sequence[Example], path: Path, batch_tokens: int) -> None:
    rows: list[Tensor | None] = [None] * len(members)
    for batch in length_batches([len(example) for example in members], batch_tokens):
        longest = max(len(members[index]) for index in batch)
        ids = torch.zeros(len(batch), longest, dtype=torch.long)
        for row, index in enumerate(batch):
            ids[row, : len(members[index])] = torch.tensor(members[index].ids)
        # Padding stands on the right of a causal model, so no real position can see it: no mask needed.
        hidden = model.base_model(input_ids=ids.to(model.device), use_cache=False).last_hidden_state  # (B, L, h)
        for row, index in enumerate(batch):
            rows[index] = hidden[row, : len(members[index])].to("cpu", torch.bfloat16)
    flat = torch.cat([row for row in rows if row is not None])  # (tokens, h)
    if not torch.isfinite(flat).all():
        raise ExplorerError("The target gives hidden states that are not finite; train with another data type.")
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_bytes(flat.view(torch.int16).numpy().tobytes())
    temporary.replace(path)


def _read_shard(path: Path, members: Sequence[Example], hidden_size: int) -> Iterator[Sample]:
    tokens = sum(len(example) for example in members)
    if path.stat().st_size != tokens * hidden_size * 2:
        raise ExplorerError(f"The feature cache file {path} has the wrong size; delete it and run again.")
    flat = torch.from_file(str(path), shared=False, size=tokens * hidden_size, dtype=torch.bfloat16)
    position = 0
    for example in members:
        block = flat[position * hidden_size : (position + len(example)) * hidden_size]
        yield Sample(example, block.view(len(example), hidden_size))
        position += len(example)
