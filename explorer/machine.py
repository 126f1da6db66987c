"""What this machine can hold: memory that is free now, containers' limits included."""

from __future__ import annotations

from pathlib import Path

import psutil
import torch

GB = 1_000_000_000
_CGROUP = Path("/sys/fs/cgroup")


def free_bytes(device: torch.device) -> int:
    """Memory that a model may take on the device now."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    free = int(psutil.virtual_memory().available)
    limit = container_free_bytes(_CGROUP)
    return free if limit is None else min(free, limit)


def container_free_bytes(group: Path) -> int | None:
    """What a container may still take (its limit less its use, without reclaimable file pages); None: no limit."""
    try:
        limit = (group / "memory.max").read_text(encoding="ascii").strip()
        used = int((group / "memory.current").read_text(encoding="ascii"))
        lines = (group / "memory.stat").read_text(encoding="ascii").splitlines()
        files = next((int(line.split()[1]) for line in lines if line.startswith("inactive_file ")), 0)
        return None if limit == "max" else max(int(limit) - used + files, 0)
    except (OSError, ValueError):
        return None


def in_gb(count: float) -> str:
    """A number of bytes for people."""
    return f"{count / GB:.2f} GB" if count < GB else f"{count / GB:.1f} GB"
