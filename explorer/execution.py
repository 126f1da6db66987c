"""How passes are run: as they come, padded to fixed shapes, or padded and replayed as CUDA graphs."""

from __future__ import annotations

from typing import Literal

import torch

from explorer.errors import ExplorerError

Execution = Literal["eager", "static", "graphs"]
EXECUTIONS = ("auto", "eager", "static", "graphs")


def choose_execution(wanted: str, device: torch.device, *, spread: bool = False) -> Execution:
    """`auto`: CUDA graphs on one CUDA device, else eager. static: the same padded passes without graphs, anywhere.

    A model spread over devices is always eager: what accelerate fetches between its layers has no fixed address.
    """
    if wanted not in EXECUTIONS:
        raise ExplorerError(f"There is no execution {wanted!r}; use {', '.join(EXECUTIONS[:-1])} or {EXECUTIONS[-1]}.")
    if wanted == "eager" or (wanted == "auto" and (spread or device.type != "cuda")):
        return "eager"
    if spread:
        raise ExplorerError(f"A model spread over devices cannot run with execution {wanted}; use auto or eager.")
    if wanted == "static":
        return "static"
    if device.type != "cuda":
        raise ExplorerError("CUDA graphs need a CUDA device; use execution auto, eager or static.")
    return "graphs"
