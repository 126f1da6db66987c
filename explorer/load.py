"""Targets from disk: device and dtype chosen or overridden, errors in one sentence."""

from __future__ import annotations

import hashlib
import logging
import statistics
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING
from transformers.utils import logging as transformers_logging

from explorer import attention
from explorer.architectures import refuse_unsupported
from explorer.errors import ExplorerError
from explorer.execution import choose_execution
from explorer.fused import pack
from explorer.machine import free_bytes, in_gb
from explorer.products import Product, pack_linears, split_fused
from explorer.selfcheck import check_passes
from explorer.target import TargetModel, execution_device
from explorer.trace import ModelInfo

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
FASTEST = "fastest"
"""The dtype setting that measures."""
TRIAL_ROWS, TRIAL_COLUMNS, TRIALS = 16_384, 1_024, 6
"""A weight that no cache holds: 64 MiB in float32."""
CLEARLY = 1.15
"""How many times faster bfloat16 must be."""
LOG = logging.getLogger(__name__)
SPREAD = "spread"
"""The device setting that lets accelerate place the layers: GPUs first, then memory, then disk."""


def choose_device(wanted: str = "auto") -> torch.device:
    """`auto` takes CUDA where there is one; cpu, cuda and cuda:N are taken at their word; `spread` starts as auto."""
    if wanted in ("auto", SPREAD):
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(wanted)
    except RuntimeError:
        raise ExplorerError(f"There is no device {wanted!r}; use auto, cpu, cuda or spread.") from None
    if device.type not in ("cpu", "cuda"):
        raise ExplorerError(f"Device {wanted!r} is not supported; use auto, cpu, cuda or spread.")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ExplorerError("This machine has no CUDA device that PyTorch can use; use cpu or auto.")
    if device.index is not None and device.type == "cuda" and device.index >= torch.cuda.device_count():
        raise ExplorerError(f"This machine has {torch.cuda.device_count()} CUDA devices, so no {wanted}; use auto.")
    return device


def choose_dtype(wanted: str, device: torch.device) -> torch.dtype:
    """`auto`: float32 on a CPU, bfloat16 on CUDA. `fastest`: on a CPU what a short measurement says.

    auto does not measure: two machines would write other tokens where two logits are as good as equal, and one
    machine perhaps other ones tomorrow. Whoever wants the speed asks for it.
    """
    if wanted == FASTEST and device.type == "cpu":
        return fastest_dtype()
    if wanted in ("auto", FASTEST):
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    if wanted not in DTYPES:
        raise ExplorerError(f"dtype {wanted!r} is not known; use auto, {FASTEST}, float32 or bfloat16.")
    return DTYPES[wanted]


@cache
def fastest_dtype() -> torch.dtype:
    """bfloat16 where products with 1 and with 16 rows are clearly faster in it on this CPU, else float32.

    Measured once in a process.
    """
    times = {dtype: 0.0 for dtype in DTYPES.values()}
    weights = {dtype: Product(torch.full((TRIAL_ROWS, TRIAL_COLUMNS), 0.01, dtype=dtype)) for dtype in times}
    for rows in (1, 16):
        inputs = {dtype: torch.full((rows, TRIAL_COLUMNS), 0.01, dtype=dtype) for dtype in times}
        spent: dict[torch.dtype, list[float]] = {dtype: [] for dtype in times}
        for _ in range(TRIALS):
            for dtype in times:  # in turns, so that other work on the machine meets both alike
                begin = time.perf_counter()
                weights[dtype](inputs[dtype])
                spent[dtype].append(time.perf_counter() - begin)
        for dtype in times:
            times[dtype] += statistics.median(spent[dtype][1:])
    faster = times[torch.bfloat16] * CLEARLY <= times[torch.float32]
    return torch.bfloat16 if faster else torch.float32


def load_target(
    folder: Path,
    *,
    model_id: str,
    label: str,
    sha256: str | None = None,
    revision: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
    execution: str = "eager",
    device_map: Mapping[str, str | int] | None = None,
    keep_weights: bool = False,
    fuse: bool = True,
) -> TargetModel:
    """A causal LM from a folder in the usual transformers layout. ExplorerError where it cannot be loaded.

    `device_map` places modules by name (accelerate's format, "cpu" and "disk" included); it goes before `device`,
    whose value `spread` lets accelerate make such a map. keep_weights: layers keep their plain weights beside the
    packed ones (explorer/products.py), for whoever exports them. fuse: see `packed_target`. execution: see
    explorer/execution.py.
    """
    if not (folder / "config.json").is_file():
        raise ExplorerError(f"{folder} holds no model: config.json is missing.")
    place = choose_device(device)
    kind = choose_dtype(dtype, place)
    placing: Any = dict(device_map) if device_map is not None else "auto" if device == SPREAD else None
    running = choose_execution(execution, place, spread=placing is not None)
    transformers_logging.disable_progress_bar()  # two seconds of loading: a bar would only stand in the way of an error
    config = _read_config(folder)
    if placing is None:
        _refuse_too_large(config, kind, place, label)
    tokenizer = _read_tokenizer(folder)
    model = _read_model(folder, kind, placing)
    if placing is None:
        _move(model, place, label)
    info = describe(model, model_id=model_id, label=label, sha256=sha256, revision=revision)
    target = TargetModel(model, tokenizer, info, running)
    if placing is None:  # accelerate's hooks hold on to the modules that they fetch weights for
        return packed_target(target, keep_weights=keep_weights, fuse=fuse)
    check_passes(target)
    return target


def packed_target(target: TargetModel, *, keep_weights: bool = False, fuse: bool = True) -> TargetModel:
    """The target on packed layers, fused where its kind is known and the fused passes give what its forward gives.

    Its model is changed in place. keep_weights: layers keep their plain weights too. fuse: False for whoever calls the
    model's own forward, which fused products make slower. ExplorerError where passes differ from that forward even
    without fusing.
    """
    model = target.transformers_model
    if fuse:
        decoder = pack(model, keep=model.get_output_embeddings(), keep_weights=keep_weights)
        if decoder is not None:
            fused = target.with_decoder(decoder)
            try:
                check_passes(fused)
            except (ExplorerError, RuntimeError) as error:  # of a known kind, and yet not computed as its kind is
                LOG.warning("%s runs its own forward: %s", target.info.id, str(error).splitlines()[0][:200])
                split_fused(model)
            else:
                return fused
    pack_linears(model, keep=model.get_output_embeddings(), keep_weights=keep_weights)
    check_passes(target)
    return target


def _read_config(folder: Path) -> Any:
    """The config, of an architecture that can be shown."""
    try:
        config = AutoConfig.from_pretrained(folder)
    except Exception as error:  # whatever a damaged or unknown config raises
        raise ExplorerError(f"The model in {folder} cannot be loaded: {_reason(error)}") from error
    known: Any = MODEL_FOR_CAUSAL_LM_MAPPING
    model_class = known.get(type(config), None)
    refuse_unsupported(config, stateful=bool(getattr(model_class, "_is_stateful", False)))
    if model_class is None:
        raise ExplorerError(f"The model in {folder} is a {config.model_type}, which is no causal language model.")
    return config


def _read_tokenizer(folder: Path) -> Any:
    try:
        return AutoTokenizer.from_pretrained(folder)
    except Exception as error:
        raise ExplorerError(
            f"The model in {folder} has no tokenizer that can be read (tokenizer.json): {_reason(error)}"
        ) from error


def _read_model(folder: Path, dtype: torch.dtype, placing: Any) -> Any:
    """The weights. transformers reads pickles with weights_only and runs no code from a folder."""
    wanted: dict[str, Any] = {"dtype": dtype, "attn_implementation": attention.install(), "output_loading_info": True}
    if placing is not None:
        wanted["device_map"] = placing
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(folder, **wanted)
    except torch.OutOfMemoryError as error:
        raise ExplorerError(f"The model in {folder} does not fit the device's memory; {_WAYS_OUT}.") from error
    except MemoryError as error:
        raise ExplorerError(f"The model in {folder} does not fit this machine's memory; {_WAYS_OUT}.") from error
    except (OSError, ValueError, KeyError, RuntimeError, ImportError, AttributeError, TypeError) as error:
        raise ExplorerError(f"The model in {folder} cannot be loaded: {_reason(error)}") from error
    except Exception as error:  # safetensors raises its own class for a file that was cut short
        raise ExplorerError(f"The model file in {folder} is damaged: {_reason(error)}") from error
    model, found = loaded
    if missing := sorted(found["missing_keys"]):  # transformers only warns, and makes them up at random
        raise ExplorerError(f"The model in {folder} lacks the tensor {missing[0]} ({len(missing)} are missing).")
    return model


_WAYS_OUT = "take a smaller model, dtype bfloat16, or device spread"


def _refuse_too_large(config: Any, dtype: torch.dtype, place: torch.device, label: str) -> None:
    """Before anything is read: a machine that runs out of memory ends the whole program without a word."""
    if getattr(config, "quantization_config", None) is not None:
        return  # sizes are the quantiser's affair
    needed, free = parameters_of(config) * dtype.itemsize, free_bytes(place)
    if needed > free:
        raise ExplorerError(
            f"{label} needs {in_gb(needed)} in {str(dtype).removeprefix('torch.')}, but {in_gb(free)} of memory are "
            f"free on {device_name(place)}; {_WAYS_OUT}."
        )


def parameters_of(config: Any) -> int:
    """Number of a model's parameters, counted on a model without memory."""
    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(config)
    return sum(each.numel() for each in model.parameters())


def _move(model: Any, place: torch.device, label: str) -> None:
    try:
        model.to(place)
    except torch.OutOfMemoryError as error:
        raise ExplorerError(f"{label} does not fit the memory of {device_name(place)}; {_WAYS_OUT}.") from error


def _reason(error: Exception) -> str:
    """The first line of an error, at most 200 characters."""
    if "trust_remote_code" in str(error):
        return "it needs code of its own, which is never run here."
    text = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
    return text if text.endswith(".") else f"{text}."


def describe(
    model: Any, *, model_id: str, label: str, sha256: str | None = None, revision: str | None = None
) -> ModelInfo:
    """What the trace says about a loaded model."""
    place = execution_device(model)
    return ModelInfo(
        id=model_id,
        revision=revision,
        sha256=sha256,
        dtype=str(next(model.parameters()).dtype).removeprefix("torch."),
        device=_places(model, place),
        parameters=sum(each.numel() for each in model.parameters()),
        label=label,
        threads=torch.get_num_threads() if place.type == "cpu" else None,
    )


def _places(model: Any, place: torch.device) -> str:
    """The device, or all that a spread model lies on, as in `cpu + disk`."""
    spread = dict.fromkeys((getattr(model, "hf_device_map", None) or {}).values())
    if len(spread) < 2:
        return device_name(place)
    return " + ".join("disk" if each == "disk" else device_name(torch.device(each)) for each in spread)


def device_name(device: torch.device) -> str:
    """cpu, or the name of the CUDA device."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def weights_sha256(folder: Path) -> str:
    """Hash over all weight files of a folder, by name: identifies a target that has no pinned file."""
    digest = hashlib.sha256()
    for file in sorted([*folder.glob("*.safetensors"), *folder.glob("pytorch_model*.bin")]):
        with file.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()
