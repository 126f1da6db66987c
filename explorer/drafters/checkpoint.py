"""Reading and writing drafter checkpoints: weights and a config.json in one folder."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from explorer.drafters.weights import SUFFIXES, WeightsFile
from explorer.errors import ExplorerError

WEIGHTS_NAME = "model.safetensors"
# Names of the public checkpoints (docs/checkpoints.md); Medusa heads may lie next to a whole model.
KNOWN_WEIGHTS = (
    "medusa_lm_head.safetensors",
    "medusa_lm_head.pt",
    WEIGHTS_NAME,
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


@dataclass(frozen=True)
class DrafterInfo:
    """What a drafter is and what it costs; `parameters` and `bytes` count its own tensors only."""

    id: str
    parameters: int
    bytes: int
    target_sha256: str | None


class Checkpoint(Mapping[str, tuple[int, ...]]):
    """Names and shapes of the tensors in a drafter folder; only the tensors that are read get loaded.

    One file, or shards that an index lists. Every way in which it can be broken is one ExplorerError.
    """

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise ExplorerError(f"The drafter folder {folder} does not exist.")
        self.folder = folder
        self.config = _read_json(folder / "config.json")
        path = next((folder / name for name in KNOWN_WEIGHTS if (folder / name).is_file()), None)
        if path is None:
            raise ExplorerError(f"The drafter folder {folder} has no weights file ({', '.join(KNOWN_WEIGHTS)}).")
        self._open: dict[Path, WeightsFile] = {}
        if path.suffix == ".json":
            self._files = _read_index(path)
        else:
            self._files = dict.fromkeys(self._file(path).names, path)
        if not self._files:
            raise ExplorerError(f"{path} holds no tensors.")

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, name: str) -> tuple[int, ...]:
        return self._file(self._files[name]).shape(name)

    def __contains__(self, name: object) -> bool:
        return name in self._files

    def read(self, names: Iterable[str] | None = None) -> dict[str, Tensor]:
        """These tensors, or all. ExplorerError where one is quantised or has values that are not finite."""
        tensors = {}
        for name in self if names is None else names:
            path = self._files[name]
            tensors[name] = _checked(self._file(path).tensor(name), name, path)
        return tensors

    def _file(self, path: Path) -> WeightsFile:
        if path not in self._open:
            self._open[path] = WeightsFile(path)
        return self._open[path]


def read_checkpoint(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """All tensors and the config of a drafter folder."""
    checkpoint = Checkpoint(folder)
    return checkpoint.read(), checkpoint.config


def _checked(tensor: Tensor, name: str, path: Path) -> Tensor:
    if tensor.is_floating_point():
        if tensor.dtype not in FLOATS:
            kind = str(tensor.dtype).removeprefix("torch.")
            raise ExplorerError(f"Tensor {name} in {path} is quantised ({kind}); use an unquantised checkpoint.")
        if not torch.isfinite(tensor).all():
            raise ExplorerError(f"Tensor {name} in {path} has values that are not finite.")
    return tensor


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ExplorerError(f"The drafter folder {path.parent} has no {path.name}.") from error
    except (OSError, ValueError, RecursionError) as error:
        raise ExplorerError(f"{path} cannot be read as JSON: {str(error) or type(error).__name__}.") from error
    if not isinstance(content, dict):
        raise ExplorerError(f"{path} must hold a JSON object.")
    return content


def _read_index(path: Path) -> dict[str, Path]:
    """Tensor name to shard of an index.json. A shard lies next to the index, nowhere else."""
    names = _read_json(path).get("weight_map")
    if not isinstance(names, dict):
        raise ExplorerError(f"{path} has no weight_map.")
    for shard in names.values():
        if not isinstance(shard, str) or Path(shard).name != shard or Path(shard).suffix not in SUFFIXES:
            raise ExplorerError(f"{path} names a shard {shard!r}, which is no weights file next to it.")
    return {name: path.parent / shard for name, shard in names.items()}


def write_checkpoint(
    folder: Path,
    tensors: Mapping[str, Tensor],
    config: Mapping[str, Any],
    card: str,
    weights_name: str = WEIGHTS_NAME,
) -> None:
    """Write weights, config and card; each file under another name first, so readers never see half of one.

    A weights name that does not end in .safetensors gets torch's own format.
    """
    plain = {name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}
    if weights_name.endswith(".safetensors"):
        # Not save_file: that makes a file which only its owner may read.
        weights = save(plain)
    else:
        buffer = io.BytesIO()
        torch.save(plain, buffer)
        weights = buffer.getvalue()
    texts = {"config.json": json.dumps(config, indent=2) + "\n", "README.md": card}
    files = {weights_name: weights, **{name: text.encode() for name, text in texts.items()}}
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        temporary = folder / f"{name}.tmp"
        temporary.write_bytes(content)
        temporary.replace(folder / name)


def describe(folder: Path, tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> DrafterInfo:
    """Size of the tensors as stored, and which target they were trained for, if the config says so."""
    sha256 = config.get("target_sha256")
    return DrafterInfo(
        id=folder_name(folder),
        parameters=sum(tensor.numel() for tensor in tensors.values() if tensor.is_floating_point()),
        bytes=sum(tensor.numel() * tensor.element_size() for tensor in tensors.values()),
        target_sha256=sha256 if isinstance(sha256, str) else None,
    )


def folder_name(folder: Path) -> str:
    """What a drafter is called: its folder's name, or repository and revision in the hub's cache."""
    place = folder.absolute()
    if place.parent.name == "snapshots" and place.parent.parent.name.startswith("models--"):
        repository = place.parent.parent.name.removeprefix("models--").replace("--", "/")
        return f"{repository}@{place.name[:7]}"
    return folder.resolve().name


def need(tensors: Mapping[str, Tensor], name: str, shape: tuple[int, ...], folder: Path) -> Tensor:
    """The tensor of that name and shape, or one sentence that says what is wrong."""
    if name not in tensors:
        raise ExplorerError(f"The drafter in {folder} lacks the tensor {name}.")
    if tuple(tensors[name].shape) != shape:
        raise ExplorerError(f"Tensor {name} in {folder} has shape {tuple(tensors[name].shape)}, but {shape} is needed.")
    if tensors[name].dtype not in FLOATS:
        kind = str(tensors[name].dtype).removeprefix("torch.")
        raise ExplorerError(f"Tensor {name} in {folder} is quantised ({kind}); use an unquantised checkpoint.")
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


def config_number(config: Mapping[str, Any], key: str, default: float, folder: Path) -> float:
    """A positive number of the config."""
    value = config.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise ExplorerError(f"config.json in {folder} needs a positive number for {key}.")
    return float(value)


def config_flag(config: Mapping[str, Any], key: str, folder: Path) -> bool:
    """A switch of the config, off where it is absent."""
    value = config.get(key)
    if value is not None and not isinstance(value, bool):
        raise ExplorerError(f"config.json in {folder} needs true or false for {key}.")
    return bool(value)
