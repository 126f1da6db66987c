"""Where the pieces of Medusa heads lie in a checkpoint: the public layouts, told by their tensors' names.

v0.1: `{i}.{j}.linear.weight|bias` and `{i}.{layers}.weight`, a head's own output matrix. v2: the same without
output matrices (the target's serves all heads). v1.0: v0.1's names after `medusa_head.` in a whole model. vLLM:
`blocks.{i}.layers.{j}.weight`, `lm_heads.{i}.weight` (only the first: one for all heads), `token_map`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from explorer.drafters.detect import MEDUSA_PREFIX
from explorer.errors import ExplorerError

_BLOCK = re.compile(r"^(\d+)\.(\d+)\.linear\.(weight|bias)$")
_VLLM_BLOCK = re.compile(r"^blocks\.(\d+)\.layers\.(\d+)\.(weight|bias)$")
_OUTPUT = re.compile(r"^(\d+)\.(\d+)\.weight$")
_VLLM_OUTPUT = re.compile(r"^lm_heads\.(\d+)\.weight$")

MOST_LAYERS = 32


@dataclass
class MedusaLayout:
    """Names in the file of every piece; heads and layers count from 0."""

    num_heads: int = 0
    num_layers: int = 0
    weights: dict[tuple[int, int], str] = field(default_factory=dict)
    biases: dict[tuple[int, int], str] = field(default_factory=dict)
    outputs: dict[int, str] = field(default_factory=dict)
    """Head to its own output matrix."""
    shared_output: str | None = None
    """One output matrix of the file for all heads."""
    token_map: str | None = None
    vllm: bool = False

    def block(self, head: int, layer: int) -> tuple[int, int]:
        """Which stored block a head's layer is. The public code repeats one module, so that block 0 may be all."""
        shared = layer > 0 and all(stored == 0 for _, stored in self.weights)
        return (head, 0) if shared else (head, layer)


def read_layout(names: Iterable[str], folder: Path, stated_layers: int = 1) -> MedusaLayout:
    """The layout of these tensors. ExplorerError where they are no set of Medusa heads.

    Heads and layers are counted from the names, since public configs name another number of heads than
    their files hold. `stated_layers` counts only where one block serves all layers and no output matrix tells.
    """
    stripped = {MEDUSA_PREFIX.sub("", name): name for name in names}
    if any(MEDUSA_PREFIX.match(name) for name in stripped.values()):  # the other tensors are the model's
        stripped = {short: name for short, name in stripped.items() if MEDUSA_PREFIX.match(name)}
    layout = MedusaLayout()
    levels = {int(match[2]) for short in stripped if (match := _OUTPUT.match(short))}
    for short, name in stripped.items():
        if not _place(layout, short, name):
            raise ExplorerError(f"The drafter in {folder} is not a set of Medusa heads: it has {name}.")
    if not layout.weights:
        raise ExplorerError(f"The drafter in {folder} is not a set of Medusa heads: it has no residual block.")
    _count(layout, levels, stated_layers, folder)
    if layout.vllm and len(layout.outputs) == 1 and layout.num_heads > 1:
        layout.shared_output = layout.shared_output or layout.outputs.get(0)
    if layout.shared_output is not None:
        layout.outputs = {}
    return layout


def _count(layout: MedusaLayout, levels: set[int], stated_layers: int, folder: Path) -> None:
    """Numbers of heads and layers, from the names; `levels` are the places of output matrices."""
    layout.num_heads = 1 + max(*layout.outputs, *(head for head, _ in layout.weights), -1)
    blocks = 1 + max(layer for _, layer in layout.weights)
    layout.num_layers = max(levels, default=blocks if blocks > 1 or layout.vllm else stated_layers)
    if layout.num_layers > MOST_LAYERS or layout.num_heads > len(layout.weights):
        raise ExplorerError(f"The Medusa heads in {folder} are not numbered in order from 0.")
    if len(levels) > 1 or layout.num_layers < blocks:
        raise ExplorerError(f"The Medusa heads in {folder} do not have their output matrices behind their last block.")
    if layout.shared_output is not None and not layout.vllm:
        raise ExplorerError(f"The drafter in {folder} is not a set of Medusa heads: it has {layout.shared_output}.")


def _place(layout: MedusaLayout, short: str, name: str) -> bool:
    """Note one tensor; False for one that belongs to no layout."""
    if short in ("token_map", "lm_head.weight"):
        setattr(layout, "token_map" if short == "token_map" else "shared_output", name)
    elif match := _BLOCK.match(short) or _VLLM_BLOCK.match(short):
        layout.vllm = layout.vllm or short.startswith("blocks.")
        pieces: Mapping[str, dict[tuple[int, int], str]] = {"weight": layout.weights, "bias": layout.biases}
        pieces[match[3]][int(match[1]), int(match[2])] = name
    elif match := _OUTPUT.match(short) or _VLLM_OUTPUT.match(short):
        layout.outputs[int(match[1])] = name
    else:
        return False
    return True
