"""The one way from a folder to a loaded drafter, whatever kind it is."""

from __future__ import annotations

from pathlib import Path

import torch

from explorer.drafters.checkpoint import Checkpoint
from explorer.drafters.detect import KINDS, TITLES, Kind, detect
from explorer.drafters.draft_checkpoint import load_draft_model
from explorer.drafters.draft_model import DraftModel
from explorer.drafters.eagle3_checkpoint import load_eagle3
from explorer.drafters.eagle3_head import Eagle3Head
from explorer.drafters.eagle_head import EagleHead, load_eagle
from explorer.drafters.medusa_heads import MedusaHeads, load_medusa
from explorer.errors import ExplorerError
from explorer.products import fuse_layer, pack_linears
from explorer.target import TargetModel

Drafter = MedusaHeads | EagleHead | Eagle3Head | DraftModel


def kind_of(folder: Path) -> Kind:
    """Which kind of drafter the folder holds. ExplorerError where it holds none."""
    return detect(Checkpoint(folder), folder)


def load(
    kind: str | None,
    folder: Path,
    target: TargetModel,
    *,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> Drafter:
    """The drafter of a folder, bound to the target, on its device and in its type unless told otherwise.

    ExplorerError where the folder holds none, or another kind than `kind` (None: whatever it holds).
    """
    if kind is not None and kind not in KINDS:
        raise ExplorerError(f"There is no drafter kind {kind!r}; there is {', '.join(KINDS)}.")
    found = kind_of(folder)
    if kind is not None and found != kind:
        raise ExplorerError(f"The drafter in {folder} is {TITLES[found]}, not {TITLES[kind]}.")
    device, dtype = device or target.device, dtype or target.dtype
    if found == "draft-model":
        return load_draft_model(folder, target=target, device=device, dtype=dtype)
    if found == "medusa":
        return load_medusa(folder, output_weight=target.output_weight, device=device, dtype=dtype)
    head: EagleHead | Eagle3Head
    if found == "eagle":
        matrices = {"embed_weight": target.embed_weight, "output_weight": target.output_weight}
        head = load_eagle(folder, **matrices, device=device, dtype=dtype)
    else:
        layers = target.num_layers
        head = load_eagle3(folder, embed_weight=target.embed_weight, num_layers=layers, device=device, dtype=dtype)
    fuse_layer(head.layer.self_attn, head.layer.mlp, keep_weights=True)
    pack_linears(head, keep_weights=True)
    return head
