"""Medusa heads (Cai et al. 2024, arXiv 2401.10774, section 2.1.1): K residual blocks on the last hidden state.

Head i (from 0) at position t predicts token t+2+i: z = h + SiLU(W z + b) once per layer, logits = U z.
U is the head's own output matrix where the checkpoint has one (`{i}.{layers}.weight`), else the target's
output matrix, shared by all heads (the "version 2" layout of the public code).

Deviation from the public layouts: an optional `token_map` tensor limits the shared output matrix to the
rows of a draft vocabulary. Tokens outside of it are never drafted; the output stays right.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer.drafters.checkpoint import DrafterInfo, describe, need, read_checkpoint, read_token_map
from explorer.errors import ExplorerError
from explorer.products import output_product

_PREFIX = re.compile(r"^medusa_heads?\.")
_BLOCK = re.compile(r"^(\d+)\.(\d+)\.linear\.(weight|bias)$")
_OUTPUT = re.compile(r"^(\d+)\.(\d+)\.weight$")


class MedusaHeads(nn.Module):
    """All heads stacked, so that one batched product computes them together."""

    token_map: Tensor | None
    output_weight: Tensor | None

    def __init__(
        self,
        num_heads: int,
        hidden_size: int,
        *,
        num_layers: int = 1,
        own_output: int | None = None,
        token_map: Tensor | None = None,
        accuracies: list[list[float]] | None = None,
        info: DrafterInfo | None = None,
    ) -> None:
        """`own_output` is the vocabulary size of the heads' own output matrices, None for the shared one."""
        super().__init__()
        self.num_heads = num_heads
        self.hidden_size = hidden_size
        # Zero weights: an untrained head repeats the target's own next-token logits (paper, section 2.2.1).
        self.weight = nn.Parameter(torch.zeros(num_layers, num_heads, hidden_size, hidden_size))
        self.bias = nn.Parameter(torch.zeros(num_layers, num_heads, 1, hidden_size))
        self.own_output = None if own_output is None else nn.Parameter(torch.zeros(num_heads, own_output, hidden_size))
        self.register_buffer("token_map", token_map, persistent=False)
        self.register_buffer("output_weight", None, persistent=False)
        self.accuracies = accuracies or []
        own = self.weight.numel() + self.bias.numel() + (0 if self.own_output is None else self.own_output.numel())
        self.info = info or DrafterInfo("untrained", own, own * self.weight.element_size(), None)

    def bind(self, output_weight: Tensor) -> None:
        """Take the target's output matrix (V, h), or its rows of the draft vocabulary."""
        if output_weight.shape[-1] != self.hidden_size:
            raise ExplorerError(
                f"The Medusa heads are made for hidden size {self.hidden_size}, "
                f"the target has {output_weight.shape[-1]}."
            )
        if self.own_output is not None:
            if self.own_output.shape[1] != output_weight.shape[0]:
                raise ExplorerError(
                    f"The Medusa heads have {self.own_output.shape[1]} tokens, the target has {output_weight.shape[0]}."
                )
            return
        rows = output_weight.detach() if self.token_map is None else output_weight.detach()[self.token_map]
        self.output_weight = rows.to(self.weight).contiguous()  # (D, h)

    def states(self, hidden: Tensor) -> Tensor:
        """(T, h) -> (K, T, h): the heads' guesses of later hidden states."""
        state = hidden.expand(self.num_heads, -1, -1)
        for weight, bias in zip(self.weight, self.bias, strict=True):
            state = state + F.silu(torch.baddbmm(bias, state, weight.transpose(1, 2)))
        return state

    def forward(self, hidden: Tensor) -> Tensor:
        """(h,) -> (K, D) logits, or (T, h) -> (K, T, D)."""
        states = self.states(hidden.unsqueeze(0) if hidden.ndim == 1 else hidden)  # (K, T, h)
        if self.own_output is not None:
            logits = torch.bmm(states, self.own_output.transpose(1, 2))
        else:
            assert self.output_weight is not None, "bind() comes before forward()"
            logits = output_product(states.flatten(0, 1), self.output_weight).unflatten(0, states.shape[:2])
        return logits[:, 0] if hidden.ndim == 1 else logits

    def export(self) -> dict[str, Tensor]:
        """Tensors under their public names, bf16, without any tensor of the target."""
        tensors: dict[str, Tensor] = {}
        for layer in range(self.weight.shape[0]):
            for head in range(self.num_heads):
                tensors[f"{head}.{layer}.linear.weight"] = self.weight[layer, head].detach().to(torch.bfloat16)
                tensors[f"{head}.{layer}.linear.bias"] = self.bias[layer, head, 0].detach().to(torch.bfloat16)
        if self.token_map is not None:
            tensors["token_map"] = self.token_map.to(torch.int32)
        return tensors


def load_medusa(folder: Path, *, output_weight: Tensor, device: torch.device | str, dtype: torch.dtype) -> MedusaHeads:
    """Heads of a checkpoint folder, bound to the target's output matrix (V, h)."""
    raw, config = read_checkpoint(folder)
    tensors = {_PREFIX.sub("", name): tensor for name, tensor in raw.items()}
    vocab_size, hidden_size = output_weight.shape
    # Counted from the keys: public configs name another number of heads than their files hold.
    num_heads, num_layers, has_output = _layout(tensors, folder)
    heads = MedusaHeads(
        num_heads,
        hidden_size,
        num_layers=num_layers,
        own_output=vocab_size if has_output else None,
        token_map=read_token_map(tensors, vocab_size, folder),
        accuracies=_accuracies(config, num_heads, folder),
        info=describe(folder, tensors, config),
    )
    _check_size(tensors, hidden_size, folder)
    _fill(heads, tensors, num_layers, folder)
    heads = heads.to(device=device, dtype=dtype).eval().requires_grad_(False)
    heads.bind(output_weight.to(device))
    return heads


def _layout(tensors: Mapping[str, Tensor], folder: Path) -> tuple[int, int, bool]:
    """Number of heads, number of layers, whether heads have their own output matrix."""
    blocks = [match for name in tensors if (match := _BLOCK.match(name))]
    outputs = [match for name in tensors if (match := _OUTPUT.match(name))]
    unknown = sorted(
        name for name in tensors if name != "token_map" and not _BLOCK.match(name) and not _OUTPUT.match(name)
    )
    if unknown or not blocks:
        found = f"it has {unknown[0]}" if unknown else "it has no residual block"
        raise ExplorerError(f"The drafter in {folder} is not a set of Medusa heads: {found}.")
    num_heads = 1 + max(int(match[1]) for match in (*blocks, *outputs))
    num_layers = 1 + max(int(match[2]) for match in blocks)
    return num_heads, num_layers, bool(outputs)


def _check_size(tensors: Mapping[str, Tensor], hidden_size: int, folder: Path) -> None:
    found = tensors["0.0.linear.weight"].shape[-1] if "0.0.linear.weight" in tensors else hidden_size
    if found != hidden_size:
        raise ExplorerError(
            f"The Medusa heads in {folder} are made for hidden size {found}, the target has {hidden_size}."
        )


def _fill(heads: MedusaHeads, tensors: Mapping[str, Tensor], num_layers: int, folder: Path) -> None:
    size = heads.hidden_size
    with torch.no_grad():
        for head in range(heads.num_heads):
            for layer in range(num_layers):
                heads.weight[layer, head] = need(tensors, f"{head}.{layer}.linear.weight", (size, size), folder)
                heads.bias[layer, head, 0] = need(tensors, f"{head}.{layer}.linear.bias", (size,), folder)
            if heads.own_output is not None:
                shape = (heads.own_output.shape[1], size)
                heads.own_output[head] = need(tensors, f"{head}.{num_layers}.weight", shape, folder)


def _accuracies(config: Mapping[str, Any], num_heads: int, folder: Path) -> list[list[float]]:
    """[head][rank] held-out probability that the head's rank-th token is right; [] if the config has none."""
    rows = config.get("accuracies", [])
    numeric = isinstance(rows, list) and all(
        isinstance(row, list) and all(isinstance(value, int | float) and 0 <= value <= 1 for value in row)
        for row in rows
    )
    if not numeric or (rows and len(rows) != num_heads):
        raise ExplorerError(f"`accuracies` in config.json of {folder} must be {num_heads} lists of probabilities.")
    return [[float(value) for value in row] for row in rows]
