"""Medusa heads (Cai et al. 2024, arXiv 2401.10774, section 2.1.1): K residual blocks on the last hidden state.

Head i (from 0) at position t predicts token t+2+i: z = h + SiLU(W z + b) once per layer, logits = U z.
U is the head's own output matrix where the checkpoint has one (`{i}.{layers}.weight`), else the target's
output matrix, shared by all heads (the "version 2" layout of the public code).

An optional `token_map` tensor (vLLM's; a deviation in the other layouts) limits the output matrix to the rows
of a draft vocabulary. Tokens outside of it are never drafted; the output stays right.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer.drafters.checkpoint import Checkpoint, DrafterInfo, config_integer, describe, need, read_token_map
from explorer.drafters.medusa_layout import MedusaLayout, read_layout
from explorer.errors import ExplorerError
from explorer.products import Product


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
        shared_output: bool = False,
        token_map: Tensor | None = None,
        accuracies: list[list[float]] | None = None,
        info: DrafterInfo | None = None,
    ) -> None:
        """`own_output` is the number of rows of the heads' own output matrices, None where the target's serves all.

        With `shared_output` one own matrix serves all heads.
        """
        super().__init__()
        self.num_heads = num_heads
        self.hidden_size = hidden_size
        # Zero weights: an untrained head repeats the target's own next-token logits (paper, section 2.2.1).
        self.weight = nn.Parameter(torch.zeros(num_layers, num_heads, hidden_size, hidden_size))
        self.bias = nn.Parameter(torch.zeros(num_layers, num_heads, 1, hidden_size))
        matrices = 1 if shared_output else num_heads
        self.own_output = None if own_output is None else nn.Parameter(torch.zeros(matrices, own_output, hidden_size))
        self.register_buffer("token_map", token_map, persistent=False)
        self.register_buffer("output_weight", None, persistent=False)
        self._output: Product | None = None
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
            tokens = output_weight.shape[0] if self.token_map is None else len(self.token_map)
            if self.own_output.shape[1] != tokens:
                raise ExplorerError(
                    f"The Medusa heads have {self.own_output.shape[1]} tokens, the target has {tokens}."
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
            outputs = self.own_output.expand(self.num_heads, -1, -1)
            logits = torch.bmm(states, outputs.transpose(1, 2))
        else:
            assert self.output_weight is not None, "bind() comes before forward()"
            self._output = Product.of(self.output_weight, self._output)
            logits = self._output(states.flatten(0, 1)).unflatten(0, states.shape[:2])
        return logits[:, 0] if hidden.ndim == 1 else logits

    def export(self) -> dict[str, Tensor]:
        """Tensors under their public names, bf16, without any tensor of the target."""
        tensors: dict[str, Tensor] = {}
        for head in range(self.num_heads):
            for layer in range(self.weight.shape[0]):
                tensors[f"{head}.{layer}.linear.weight"] = self.weight[layer, head].detach().to(torch.bfloat16)
                tensors[f"{head}.{layer}.linear.bias"] = self.bias[layer, head, 0].detach().to(torch.bfloat16)
            if self.own_output is not None:
                output = self.own_output[head if len(self.own_output) > 1 else 0]
                tensors[f"{head}.{self.weight.shape[0]}.weight"] = output.detach().to(torch.bfloat16)
        if self.token_map is not None:
            tensors["token_map"] = self.token_map.to(torch.int32)
        return tensors


def load_medusa(folder: Path, *, output_weight: Tensor, device: torch.device | str, dtype: torch.dtype) -> MedusaHeads:
    """Heads of a checkpoint folder in any public layout, bound to the target's output matrix (V, h).

    Of a whole model with heads in it, only the heads are read.
    """
    checkpoint = Checkpoint(folder)
    config, vocab_size = checkpoint.config, output_weight.shape[0]
    layout = read_layout(checkpoint, folder, config_integer(config, "medusa_num_layers", 1, folder))
    _check_size(checkpoint[min(layout.weights.items())[1]], output_weight.shape[1], folder)
    pieces = [*layout.weights.values(), *layout.biases.values(), *layout.outputs.values()]
    tensors = checkpoint.read([*pieces, *(name for name in (layout.shared_output, layout.token_map) if name)])
    token_map = None
    if layout.token_map is not None:
        token_map = read_token_map({"token_map": tensors[layout.token_map]}, vocab_size, folder)
    outputs = _outputs(layout, tensors, output_weight.shape, token_map, folder)
    heads = MedusaHeads(
        layout.num_heads,
        output_weight.shape[1],
        num_layers=layout.num_layers,
        own_output=outputs[0].shape[0] if outputs else None,
        shared_output=layout.shared_output is not None,
        token_map=token_map,
        accuracies=_accuracies(config, layout.num_heads, folder),
        info=describe(folder, tensors, config),
    )
    _fill(heads, layout, tensors, folder)
    with torch.no_grad():
        for head, output in enumerate(outputs):
            assert heads.own_output is not None
            heads.own_output[head] = output
    heads = heads.to(device=device, dtype=dtype).eval().requires_grad_(False)
    heads.bind(output_weight.to(device))
    return heads


def _check_size(shape: tuple[int, ...], hidden_size: int, folder: Path) -> None:
    if shape[-1:] != (hidden_size,):
        raise ExplorerError(
            f"The Medusa heads in {folder} are made for hidden size {shape[-1]}, the target has {hidden_size}."
        )


def _fill(heads: MedusaHeads, layout: MedusaLayout, tensors: Mapping[str, Tensor], folder: Path) -> None:
    size = heads.hidden_size
    plain = layout.vllm and not layout.biases  # vLLM's blocks have no bias unless the config asks for one
    with torch.no_grad():
        for head in range(heads.num_heads):
            for layer in range(layout.num_layers):
                block = layout.block(head, layer)
                name = layout.weights.get(block, f"{block[0]}.{block[1]}.linear.weight")
                heads.weight[layer, head] = need(tensors, name, (size, size), folder)
                name = layout.biases.get(block, f"{block[0]}.{block[1]}.linear.bias")
                if not plain:
                    heads.bias[layer, head, 0] = need(tensors, name, (size,), folder)


def _outputs(
    layout: MedusaLayout, tensors: Mapping[str, Tensor], matrix: torch.Size, token_map: Tensor | None, folder: Path
) -> list[Tensor]:
    """Output matrices of the file, (V or D, h) each: one for all heads, one for each, or none."""
    names = [layout.shared_output] if layout.shared_output else []
    if layout.outputs:
        missing = f".{layout.num_layers}.weight"
        names = [layout.outputs.get(head, f"{head}{missing}") for head in range(layout.num_heads)]
    kept = None if token_map is None else len(token_map)
    outputs = []
    for name in names:
        rows = tensors[name].shape[0] if name in tensors and tensors[name].ndim else 0
        output = need(tensors, name, (kept if rows == kept else matrix[0], matrix[1]), folder)
        outputs.append(output if token_map is None or rows == kept else output[token_map])
    return outputs


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
