"""One weights file, read tensor by tensor: safetensors, or a pickle that may hold nothing but tensors."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from explorer.errors import ExplorerError

SUFFIXES = (".safetensors", ".bin", ".pt")


class WeightsFile:
    """Names, shapes and tensors of a file. The tensors of a safetensors file are loaded one by one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_file():
            raise ExplorerError(f"The weights file {path} is missing.")
        with _told(path):
            self._tensors = _read_pickle(path) if path.suffix != ".safetensors" else None
            self._file: Any = None if self._tensors is not None else safe_open(path, framework="pt")

    @property
    def names(self) -> list[str]:
        """In the file's order."""
        return list(self._tensors) if self._tensors is not None else list(self._file.keys())

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor, without loading it where the format allows."""
        with _told(self.path):
            tensors = self._tensors
            shape = tuple(tensors[name].shape if tensors is not None else self._file.get_slice(name).get_shape())
        if 0 in shape:  # a size next to it could be anything, for no bytes stand behind it
            raise ExplorerError(f"Tensor {name} in {self.path} is empty: its shape is {shape}.")
        return shape

    def tensor(self, name: str) -> Tensor:
        """The tensor, on the CPU."""
        with _told(self.path):
            return self._tensors[name] if self._tensors is not None else self._file.get_tensor(name)


def _read_pickle(path: Path) -> Mapping[str, Tensor]:
    """torch.load refuses everything but tensors and plain containers, and runs no code (weights_only)."""
    mapped = zipfile.is_zipfile(path)  # the older format cannot be mapped
    tensors = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    if not isinstance(tensors, dict) or not all(isinstance(name, str) for name in tensors):
        raise ExplorerError(f"{path} does not hold a plain mapping of names to tensors.")
    if not all(_is_plain(value) for value in tensors.values()):
        raise ExplorerError(f"{path} does not hold a plain mapping of names to tensors.")
    return tensors


def _is_plain(value: Any) -> bool:
    """A dense tensor in memory that is not larger than its storage."""
    if not isinstance(value, Tensor) or value.layout != torch.strided or value.is_quantized:
        return False
    return value.device.type == "cpu" and value.nbytes <= value.untyped_storage().nbytes()


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Any failure of the readers as one sentence; damaged files make them raise whatever there is."""
    try:
        yield
    except ExplorerError:
        raise
    except Exception as error:
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise ExplorerError(f"{path} is damaged or not a weights file: {reason.rstrip('.')}.") from error
