"""Between host and device without waiting: pinned copies that are queued, and one wait for all that is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def to_device(values: Sequence[Any] | Tensor, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """Numbers as a tensor on the device. On CUDA the host does not wait; torch keeps the pinned pages until then."""
    made = values if isinstance(values, Tensor) else torch.tensor(values, dtype=dtype)
    return pinned(made, device).to(device, non_blocking=True)


def pinned(tensor: Tensor, device: torch.device) -> Tensor:
    """A host tensor as a copy to that device wants it: in pages that stay in memory, where the device is CUDA's."""
    return tensor.pin_memory() if device.type == "cuda" else tensor


def to_host(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors on the host, after one wait for all of them; the very tensors where they are there already."""
    devices = {tensor.device for tensor in tensors if tensor.device.type == "cuda"}
    if not devices:
        return tensors
    copies = tuple(_queued(tensor) for tensor in tensors)
    for device in devices:
        torch.cuda.current_stream(device).synchronize()
    return copies


def _queued(tensor: Tensor) -> Tensor:
    if tensor.device.type != "cuda":
        return tensor
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)
