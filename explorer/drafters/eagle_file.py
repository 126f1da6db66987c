"""An EAGLE or EAGLE-3 checkpoint under plain names, and what its config says about the layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from explorer.drafters.checkpoint import Checkpoint, config_integer, config_number, need
from explorer.drafters.detect import eagle_name
from explorer.drafters.layers import rope_table
from explorer.errors import ExplorerError

IGNORED_SUFFIXES = ("rotary_emb.inv_freq",)
"""Computed from the config again."""
NESTED_CONFIGS = ("model", "transformer_layer_config")
"""Where vLLM and speculators keep the layer's sizes."""
SCALED_ROPES = ("linear", "llama3", "yarn")
# mrope has one position for text; dynamic scaling leaves the trained length as it is.
PLAIN_ROPES = ("default", "dynamic", "mrope")


class EagleFile:
    """A checkpoint's tensors without the prefixes and names that other tools give them."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.folder = checkpoint.folder
        self._checkpoint = checkpoint
        self._names: dict[str, str] = {}
        for name in checkpoint:
            plain = eagle_name(name)
            if plain in self._names:
                raise ExplorerError(f"The drafter in {self.folder} has the tensor {plain} twice.")
            if not plain.endswith(IGNORED_SUFFIXES):
                self._names[plain] = name
        self.config: dict[str, Any] = dict(checkpoint.config)
        for key in NESTED_CONFIGS:
            nested = checkpoint.config.get(key)
            self.config |= nested if isinstance(nested, dict) else {}

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Plain name to shape."""
        return _Shapes(self._checkpoint, self._names)

    def rename(self, old: str, new: str) -> None:
        """Move all names that begin with `old` to begin with `new`."""
        moved = {name: new + name.removeprefix(old) for name in self._names if name.startswith(old)}
        for name, plain in moved.items():
            if plain in self._names:
                raise ExplorerError(f"The drafter in {self.folder} has the tensor {plain} twice.")
            self._names[plain] = self._names.pop(name)

    def drop(self, names: Sequence[str]) -> None:
        """Forget tensors that drafting does not need."""
        for name in names:
            self._names.pop(name, None)

    def read(self) -> dict[str, Tensor]:
        """All tensors by plain name."""
        tensors = self._checkpoint.read(self._names.values())
        return {plain: tensors[name] for plain, name in self._names.items()}

    def layer_sizes(self, layer: str, hidden_size: int, attention_input: int) -> dict[str, Any]:
        """Sizes of the decoder layer, as the shapes name them: from its tensors first, then from the config."""
        config, folder = self.config, self.folder
        rows = self._rows(f"{layer}.self_attn.q_proj.weight", attention_input)
        kv_rows = self._rows(f"{layer}.self_attn.k_proj.weight", attention_input)
        heads, kv_heads, head_dim = self._attention(rows, kv_rows)
        if config.get("hidden_act", "silu") not in ("silu", "swish"):
            raise ExplorerError(f"The drafter in {folder} has the activation {config['hidden_act']!r}, not silu.")
        theta, scaling = self._rope()
        _check_rope(head_dim, theta, scaling, folder)
        return {
            "intermediate_size": self._rows(f"{layer}.mlp.gate_proj.weight", hidden_size),
            "num_heads": heads,
            "num_kv_heads": kv_heads,
            "head_dim": head_dim,
            "rms_norm_eps": config_number(config, "rms_norm_eps", 1e-6, folder),
            "rope_theta": theta,
            "rope_scaling": scaling,
        }

    def _rows(self, name: str, width: int) -> int:
        """Rows of a matrix of that width."""
        if name not in self.shapes:
            raise ExplorerError(f"The drafter in {self.folder} lacks the tensor {name}.")
        shape = self.shapes[name]
        if len(shape) != 2 or shape[1] != width:
            raise ExplorerError(f"Tensor {name} in {self.folder} has shape {shape}, but a width of {width} is needed.")
        return shape[0]

    def _attention(self, rows: int, kv_rows: int) -> tuple[int, int, int]:
        """Heads, key/value heads, width of a head. A config's head_dim counts only where it lacks the heads."""
        config, folder = self.config, self.folder
        default = rows // config_integer(config, "head_dim", None, folder) if config.get("head_dim") else None
        heads = config_integer(config, "num_attention_heads", default, folder)
        head_dim = rows // heads
        fits = head_dim > 0 and head_dim % 2 == 0 and rows % heads == 0 and kv_rows % head_dim == 0
        kv_heads = kv_rows // head_dim if fits else 0
        if not fits or kv_heads == 0 or heads % kv_heads:
            raise ExplorerError(f"The attention heads in config.json of {folder} do not fit its tensors.")
        return heads, kv_heads, head_dim

    def _rope(self) -> tuple[float, dict[str, Any] | None]:
        """Rotary base and scaling. The draft does not inherit the target's base: absent means 10,000."""
        parameters: dict[str, Any] = {}
        for key in ("rope_scaling", "rope_parameters"):
            value = self.config.get(key)
            if value is not None and not isinstance(value, dict):
                raise ExplorerError(f"config.json in {self.folder} needs an object for {key}.")
            parameters |= value or {}
        theta = config_number({**self.config, **parameters}, "rope_theta", 10000.0, self.folder)
        kind = parameters.pop("rope_type", None) or parameters.get("type") or "default"
        if kind in PLAIN_ROPES:
            return theta, None
        if kind not in SCALED_ROPES:
            known = ", ".join(SCALED_ROPES)
            raise ExplorerError(f"The drafter in {self.folder} has the rotary scaling {kind!r}; supported: {known}.")
        parameters = {key: value for key, value in parameters.items() if key not in ("type", "rope_theta")}
        return theta, {**parameters, "rope_type": kind}

    def fill(self, head: nn.Module, tensors: Mapping[str, Tensor], title: str, others: Sequence[str]) -> None:
        """Copy every parameter, and refuse tensors that would be ignored silently."""
        parameters = dict(head.named_parameters())
        unknown = sorted(set(tensors) - set(parameters) - set(others))
        if unknown:
            raise ExplorerError(f"The drafter in {self.folder} is not {title}: it has the tensor {unknown[0]}.")
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(need(tensors, name, tuple(parameter.shape), self.folder))


class _Shapes(Mapping[str, tuple[int, ...]]):
    def __init__(self, checkpoint: Checkpoint, names: Mapping[str, str]) -> None:
        self._checkpoint, self._names = checkpoint, names

    def __getitem__(self, plain: str) -> tuple[int, ...]:
        return self._checkpoint[self._names[plain]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, plain: object) -> bool:
        return plain in self._names


def own_matrix(tensors: Mapping[str, Tensor], name: str, borrowed: Tensor, folder: Path) -> Tensor:
    """A matrix of the checkpoint in the place of the target's; the target's where they are equal, to share it."""
    own = need(tensors, name, tuple(borrowed.shape), folder)
    same = torch.equal(own.to(borrowed.device, borrowed.dtype), borrowed)
    return borrowed if same else own.clone()  # not the file's pages, which somebody may overwrite


def _check_rope(head_dim: int, theta: float, scaling: Mapping[str, Any] | None, folder: Path) -> None:
    try:
        table = rope_table(2, head_dim, theta, scaling)
    except (KeyError, TypeError, ValueError, ZeroDivisionError, RuntimeError) as error:
        raise ExplorerError(f"The rotary scaling in config.json of {folder} is incomplete: {error}.") from error
    if not all(torch.isfinite(part).all() for part in table):
        raise ExplorerError(f"The rotary settings in config.json of {folder} give values that are not finite.")
