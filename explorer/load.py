"""Targets from disk: device and dtype chosen or overridden, errors in one sentence."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from explorer.errors import ExplorerError
from explorer.target import TargetModel, refuse_unsupported
from explorer.trace import ModelInfo

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def choose_device(wanted: str = "auto") -> torch.device:
    """`auto` takes CUDA where there is one; cpu, cuda and cuda:N are taken at their word."""
    if wanted == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(wanted)
    except RuntimeError:
        raise ExplorerError(f"There is no device {wanted!r}; use auto, cpu or cuda.") from None
    if device.type not in ("cpu", "cuda"):
        raise ExplorerError(f"Device {wanted!r} is not supported; use auto, cpu or cuda.")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ExplorerError("This machine has no CUDA device that PyTorch can use; use cpu or auto.")
    return device


def choose_dtype(wanted: str, device: torch.device) -> torch.dtype:
    """`auto`: float32 on a CPU (the reproducible one), bfloat16 on CUDA."""
    if wanted == "auto":
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    if wanted not in DTYPES:
        raise ExplorerError(f"dtype {wanted!r} is not known; use auto, float32 or bfloat16.")
    return DTYPES[wanted]


def load_target(
    folder: Path,
    *,
    model_id: str,
    label: str,
    sha256: str | None = None,
    revision: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
) -> TargetModel:
    """A causal LM from a folder in the usual transformers layout. ExplorerError where it cannot be loaded."""
    if not (folder / "config.json").is_file():
        raise ExplorerError(f"{folder} holds no model: config.json is missing.")
    place = choose_device(device)
    kind = choose_dtype(dtype, place)
    logging.disable_progress_bar()  # two seconds of loading: a bar would only stand in the way of an error
    try:
        refuse_unsupported(AutoConfig.from_pretrained(folder))
        model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=kind, attn_implementation="sdpa")
        model.to(place)
        tokenizer = AutoTokenizer.from_pretrained(folder)
    except ExplorerError:
        raise
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise ExplorerError(f"The model in {folder} cannot be loaded: {reason}") from error
    except Exception as error:  # safetensors raises its own class for a file that was cut short
        raise ExplorerError(f"The model file in {folder} is damaged: {error}") from error
    info = describe(model, model_id=model_id, label=label, sha256=sha256, revision=revision)
    return TargetModel(model, tokenizer, info)


def describe(
    model: Any, *, model_id: str, label: str, sha256: str | None = None, revision: str | None = None
) -> ModelInfo:
    """What the trace says about a loaded model."""
    parameter = next(model.parameters())
    return ModelInfo(
        id=model_id,
        revision=revision,
        sha256=sha256,
        dtype=str(parameter.dtype).removeprefix("torch."),
        device=device_name(parameter.device),
        parameters=sum(each.numel() for each in model.parameters()),
        label=label,
        threads=torch.get_num_threads() if parameter.device.type == "cpu" else None,
    )


def device_name(device: torch.device) -> str:
    """cpu, or the name of the CUDA device."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def weights_sha256(folder: Path) -> str:
    """Hash over all weight files of a folder, by name: identifies a target that has no pinned file."""
    digest = hashlib.sha256()
    for file in sorted(folder.glob("*.safetensors")):
        with file.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()
