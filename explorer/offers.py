"""The models that the page lets a viewer choose: what each is, needs and lacks here, as plain data."""

from __future__ import annotations

from typing import Any

import torch

from explorer.catalogue import BARELY, DEFAULT_MODEL, Model
from explorer.hub import pinned
from explorer.load import choose_device, choose_dtype
from explorer.machine import free_bytes, in_gb
from explorer.pairs import PAIRS, Pair, Repo
from explorer.shelf import Shelf
from explorer.stock import title_of

LONGEST_REASON = 120


def offers(shelf: Shelf) -> list[dict[str, Any]]:
    """One dict a model: id, title, licence, kinds, needs (in words), available, reason, current, pinned.

    The model that the process was started with comes first, then the default model, then the pairs by size.
    """
    device = choose_device(shelf.settings.device)
    dtype = choose_dtype(shelf.settings.dtype, device)
    free = free_bytes(device)
    rows = [_default_row(DEFAULT_MODEL, dtype, free), *(_pair_row(pair, dtype, free) for pair in PAIRS)]
    known = {row["id"] for row in rows}
    extra = [_other_row(name) for name in dict.fromkeys((shelf.settings.model, shelf.model)) if name not in known]
    for row in (rows := [*extra, *rows]):
        row["current"] = row["id"] == shelf.model
        if row["current"]:
            row |= {"available": True, "reason": None}
    return rows


def _row(name: str, title: str, licence: str, kinds: list[str], needs: str, lacks: str | None, pin: bool) -> Any:
    reason = None if lacks is None else lacks[:LONGEST_REASON]
    return {
        "id": name,
        "title": title,
        "licence": licence,
        "kinds": kinds,
        "needs": needs,
        "available": reason is None,
        "reason": reason,
        "pinned": pin,
    }


def _default_row(model: Model, dtype: torch.dtype, free: int) -> Any:
    needed = 2 * model.file.size_bytes * dtype.itemsize + 300_000_000  # 4 bits a weight, and what a pass needs
    needs = f"{in_gb(model.file.size_bytes)} to download, {in_gb(needed)} of memory"
    return _row(
        model.id,
        model.title,
        model.licence,
        [kind for kind in model.drafters if not kind.endswith(BARELY)],
        needs,
        _lacks(needed, free),
        True,
    )


def _pair_row(pair: Pair, dtype: torch.dtype, free: int) -> Any:
    repos = [pair.target, *(each.repo for each in pair.drafters)]
    needed = pair.needed_bytes(dtype.itemsize)
    more = " or more" if any(repo.parameters is None for repo in repos) else ""
    download = sum(repo.download_bytes or 0 for repo in repos)
    needs = f"{in_gb(download)}{more} to download, {in_gb(needed)}{more} of memory"
    needs += "; gated" if pair.target.gated else ""
    kinds = [each.kind for each in pair.drafters]
    return _row(
        pair.id,
        pair.title,
        pair.target.licence,
        kinds,
        needs,
        _lacks(needed, free),
        all(_is_pinned(repo) for repo in repos),
    )


def _other_row(name: str) -> Any:
    return _row(name, title_of(name), "its own", [], "", None, True)


def _is_pinned(repo: Repo) -> bool:
    return repo.revision is not None or pinned(repo.name) is not None


def _lacks(needed: int, free: int) -> str | None:
    """Why this machine cannot hold it beside the model that goes on answering while it loads."""
    if needed <= free:
        return None
    return f"needs {in_gb(needed)} of memory, {in_gb(free)} are free"
