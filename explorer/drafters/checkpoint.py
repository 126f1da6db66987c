"""Reading and writing drafter checkpoints: a safetensors file and a config.json in one folder."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from explorer.errors import ExplorerError

WEIGHTS_NAME = "model.safetensors"
# Names of the public checkpoints (methods.md 3.1, 3.2). Pickles are read with weights_only.
KNOWN_WEIGHTS = (WEIGHTS_NAME, "medusa_lm_head.safetensors", "medusa_lm_head.pt", "pytorch_model.bin")


@dataclass(frozen=True)
class DrafterInfo:
    """What a drafter is and what it costs; `parameters` and `bytes` count its own tensors only."""

    id: str
    parameters: int
    bytes: int
    target_sha256: str | None


def read_checkpoint(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and config of a drafter folder; one clear sentence for each way it can be broken."""
    if not folder.is_dir():
        raise ExplorerError(f"The drafter folder {folder} does not exist.")
    config = _read_config(folder / "config.json")
    path = next((folder / name for name in KNOWN_WEIGHTS if (folder / name).is_file()), None)
    if path is None:
        raise ExplorerError(f"The drafter folder {folder} has no weights file ({', '.join(KNOWN_WEIGHTS)}).")
    tensors = _read_tensors(path)
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise ExplorerError(f"Tensor {name} in {path} has values that are not finite.")
    return tensors, config


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ExplorerError(f"The drafter folder {path.parent} has no config.json.") from error
    except (OSError, ValueError) as error:
        raise ExplorerError(f"{path} cannot be read as JSON: {error}.") from error
    if not isinstance(config, dict):
        raise ExplorerError(f"{path} must hold a JSON object.")
    return config


def _read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        tensors = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, SafetensorError, RuntimeError, ValueError, EOFError, pickle.UnpicklingError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ExplorerError(f"{path} is damaged or not a weights file: {reason.rstrip('.')}.") from error
    if not isinstance(tensors, dict) or not all(isinstance(value, Tensor) for value in tensors.values()):
        raise ExplorerError(f"{path} does not hold a plain mapping of names to tensors.")
    return tensors


def write_checkpoint(folder: Path, tensors: Mapping[str, Tensor], config: Mapping[str, Any], card: str) -> None:
    """Write weights, config and card; each file under another name first, so readers never see half of one."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = folder / f"{WEIGHTS_NAME}.tmp"
    # Not save_file: that makes a file which only its owner may read.
    weights.write_bytes(save({name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}))
    weights.replace(folder / WEIGHTS_NAME)
    for name, text in (("config.json", json.dumps(config, indent=2) + "\n"), ("README.md", card)):
        temporary = folder / f"{name}.tmp"
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(folder / name)


def describe(folder: Path, tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> DrafterInfo:
    """Size of the tensors as stored, and which target they were trained for."""
    sha256 = config.get("target_sha256")
    return DrafterInfo(
        id=folder.resolve().name,
        parameters=sum(tensor.numel() for tensor in tensors.values() if tensor.is_floating_point()),
        bytes=sum(tensor.numel() * tensor.element_size() for tensor in tensors.values()),
        target_sha256=sha256 if isinstance(sha256, str) else None,
    )


def need(tensors: Mapping[str, Tensor], name: str, shape: tuple[int, ...], folder: Path) -> Tensor:
    """The tensor of that name and shape, or one sentence that says what is wrong."""
    if name not in tensors:
        raise ExplorerError(f"The drafter in {folder} lacks the tensor {name}.")
    if tuple(tensors[name].shape) != shape:
        raise ExplorerError(f"Tensor {name} in {folder} has shape {tuple(tensors[name].shape)}, but {shape} is needed.")
    return tensors[name]


def read_token_map(tensors: Mapping[str, Tensor], vocab_size: int, folder: Path) -> Tensor | None:
    """The optional map from draft ids to target ids, (D,) long."""
    token_map = tensors.get("token_map")
    if token_map is None:
        return None
    if token_map.ndim != 1 or token_map.numel() == 0 or token_map.is_floating_point():
        raise ExplorerError(f"The token_map in {folder} must be a list of token ids.")
    token_map = token_map.long()
    if int(token_map.min()) < 0 or int(token_map.max()) >= vocab_size:
        raise ExplorerError(f"The token_map in {folder} names tokens outside the target's {vocab_size}.")
    if token_map.unique().numel() != token_map.numel():
        raise ExplorerError(f"The token_map in {folder} names a token twice.")
    return token_map


def config_integer(config: Mapping[str, Any], key: str, default: int | None, folder: Path) -> int:
    """A positive integer of the config."""
    value = config.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise ExplorerError(f"config.json in {folder} needs a positive whole number for {key}.")
    return value
