"""Saved training states: written whole or not at all, so that the last good one survives whatever happens."""

from __future__ import annotations

import io
import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from explorer.errors import ExplorerError


@dataclass
class Progress:
    """How far a stage is."""

    losses: list[float] = field(default_factory=list)
    """One per step, in order."""
    seconds: float = 0.0
    """Wall clock of all runs that the state went through."""


def trained_tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    """The parameters that training changes."""
    return {name: value.detach() for name, value in module.named_parameters() if value.requires_grad}


def save_state(
    path: Path,
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    progress: Progress,
    *,
    fingerprint: str,
    scaler: dict[str, Any] | None = None,
) -> None:
    """Write the state under another name, then rename. ExplorerError where the disk does not take it."""
    state = {
        "fingerprint": fingerprint,
        "module": trained_tensors(module),
        "optimizer": optimizer.state_dict(),
        "losses": progress.losses,
        "seconds": progress.seconds,
        "scaler": scaler,
    }
    # Into memory first: torch reports a full disk as an internal error of its file writer.
    buffer = io.BytesIO()
    torch.save(state, buffer)
    write_whole(path, buffer.getvalue(), what="The training state")


def write_whole(path: Path, data: bytes, *, what: str) -> None:
    """Replace a file in one go; the old one stays where the new one cannot be written."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        kept = "; the last one that was written is kept" if path.exists() else ""
        raise ExplorerError(f"{what} cannot be written to {path}: {error.strerror or error}{kept}.") from error


def restore_state(
    path: Path, module: nn.Module, optimizer: torch.optim.Optimizer, *, fingerprint: str
) -> tuple[Progress, dict[str, Any] | None]:
    """Take up a saved state if there is one; returns how far it got and the gradient scaler's state."""
    if not path.exists():
        return Progress(), None
    try:
        state = torch.load(path, weights_only=True, map_location="cpu")
        found, tensors, losses = state["fingerprint"], state["module"], list(state["losses"])
    except (OSError, RuntimeError, EOFError, ValueError, KeyError, TypeError, pickle.UnpicklingError) as error:
        raise ExplorerError(f"The training state {path} is damaged; delete it to start again.") from error
    own = trained_tensors(module)
    if found != fingerprint or set(tensors) != set(own):
        raise ExplorerError(f"The training state {path} belongs to other data or options; delete it to start again.")
    with torch.no_grad():
        for name, value in own.items():
            value.copy_(tensors[name])
    optimizer.load_state_dict(state["optimizer"])
    return Progress(losses, float(state["seconds"])), state.get("scaler")
