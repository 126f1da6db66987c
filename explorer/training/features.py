"""Features of the frozen target: last hidden states after the final norm and inner taps, cached on disk as bf16.

One shard file holds the features of up to 64 consecutive examples. Its name is a hash of the target and
of the token ids in it, so an interrupted extraction goes on where it stopped, and a run with more data
reuses what a smaller one left. A shard is complete or absent (written under another name, then renamed).

Taps are what EAGLE-3 fuses (arXiv 2503.01840, section 3.1): hidden states before the norm, numbered as in
transformers, where state i is the input of layer i. They lie in files of their own, so the other drafters
never read them.
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
    taps: Tensor | None = None  # (len(example), n * h) bfloat16, low layer first; None if not asked for


@dataclass(frozen=True)
class Shard:
    """Consecutive examples and the files that hold their states."""

    members: Sequence[Example]
    last_path: Path
    taps_path: Path | None

    @property
    def tokens(self) -> int:
        return sum(len(example) for example in self.members)

    @property
    def complete(self) -> bool:
        return self.last_path.exists() and (self.taps_path is None or self.taps_path.exists())


def extract_features(
    model: PreTrainedModel,
    examples: Sequence[Example],
    folder: Path,
    *,
    target_sha256: str,
    tap_layers: Sequence[int] = (),
    batch_tokens: int = 2048,
    part: int = 0,
    parts: int = 1,
    show_progress: bool = True,
) -> list[Shard]:
    """Compute what the cache lacks of every `parts`-th shard from `part` on; returns all shards.

    Several processes share the work by calling this with different parts. `read_samples` reads the result.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shards = list(_shards(examples, folder, target_sha256, tuple(tap_layers)))
    mine = shards[part::parts]
    total = sum(shard.tokens for shard in mine)
    with tqdm(total=total, unit="tok", unit_scale=True, desc="features", disable=not show_progress) as progress:
        for shard in mine:
            if not shard.complete:
                _write_shard(model, shard, tuple(tap_layers), batch_tokens)
            progress.update(shard.tokens)
    return shards


def read_samples(shards: Sequence[Shard], hidden_size: int, taps: int = 0) -> list[Sample]:
    """Samples of all shards, mapped from disk; `taps` inner states of `hidden_size` each where asked for."""
    return [sample for shard in shards for sample in _read_shard(shard, hidden_size, taps)]


def _shards(
    examples: Sequence[Example], folder: Path, target_sha256: str, tap_layers: tuple[int, ...]
) -> Iterator[Shard]:
    for start in range(0, len(examples), SHARD_EXAMPLES):
        members = examples[start : start + SHARD_EXAMPLES]
        digest = hashlib.sha256(target_sha256.encode())
        for example in members:
            digest.update(torch.tensor((len(example), *example.ids), dtype=torch.int32).numpy().tobytes())
        name = digest.hexdigest()[:16]
        taps = folder / f"taps-{'-'.join(map(str, tap_layers))}-{name}.bin" if tap_layers else None
        yield Shard(members, folder / f"features-{name}.bin", taps)


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
def _write_shard(model: PreTrainedModel, shard: Shard, tap_layers: tuple[int, ...], batch_tokens: int) -> None:
    """Run the target over the shard's examples and write both files."""
    last: list[Tensor | None] = [None] * len(shard.members)
    taps: list[Tensor | None] = [None] * len(shard.members)
    for batch in length_batches([len(example) for example in shard.members], batch_tokens):
        longest = max(len(shard.members[index]) for index in batch)
        ids = torch.zeros(len(batch), longest, dtype=torch.long)
        for row, index in enumerate(batch):
            ids[row, : len(shard.members[index])] = torch.tensor(shard.members[index].ids)
        # Padding stands on the right of a causal model, so no real position can see it: no mask needed.
        output = model.base_model(
            input_ids=ids.to(model.device), use_cache=False, output_hidden_states=bool(tap_layers)
        )
        hidden = output.last_hidden_state  # (B, L, h)
        inner = torch.cat([output.hidden_states[i] for i in tap_layers], dim=-1) if tap_layers else hidden
        for row, index in enumerate(batch):
            length = len(shard.members[index])
            last[index] = hidden[row, :length].to("cpu", torch.bfloat16)
            taps[index] = inner[row, :length].to("cpu", torch.bfloat16)
    if shard.taps_path is not None:
        _write(shard.taps_path, taps)
    _write(shard.last_path, last)


def _write(path: Path, rows: Sequence[Tensor | None]) -> None:
    flat = torch.cat([row for row in rows if row is not None])  # (tokens, width)
    if not torch.isfinite(flat).all():
        raise ExplorerError("The target gives hidden states that are not finite; train with another data type.")
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(flat.view(torch.int16).numpy().tobytes())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ExplorerError(f"The features cannot be written to {path.parent}: {error.strerror or error}.") from error


def _read_shard(shard: Shard, hidden_size: int, taps: int) -> Iterator[Sample]:
    last = _map(shard.last_path, shard.tokens, hidden_size)
    inner = _map(shard.taps_path, shard.tokens, hidden_size * taps) if shard.taps_path is not None and taps else None
    position = 0
    for example in shard.members:
        rows = slice(position, position + len(example))
        yield Sample(example, last[rows], None if inner is None else inner[rows])
        position += len(example)


def _map(path: Path, tokens: int, width: int) -> Tensor:
    """(tokens, width) bfloat16, read from disk where it is touched."""
    if not path.exists() or path.stat().st_size != tokens * width * 2:
        raise ExplorerError(f"The feature cache file {path} has the wrong size; delete it and run again.")
    return torch.from_file(str(path), shared=False, size=tokens * width, dtype=torch.bfloat16).view(tokens, width)
