"""EAGLE-3 checkpoints in their public layouts: official, `layers.0.`, `model.`-prefixed, speculators.

Names and shapes decide wherever they can. Only the config tells `norm_before_residual`, `norm_output` and which
layers of the target are tapped. `eagle_aux_hidden_state_layer_ids` names the layers whose *inputs* are read where
it stands at the top (vLLM, speculators), and those whose *outputs* are read where it stands in `eagle_config`
(SGLang, SpecForge, ModelOpt).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from explorer.drafters.checkpoint import Checkpoint, config_flag, describe, need
from explorer.drafters.detect import TITLES, detect
from explorer.drafters.eagle3_head import Eagle3Head, Eagle3Shape, default_aux_layers
from explorer.drafters.eagle_file import EagleFile, own_matrix
from explorer.errors import ExplorerError, brief

AUX_KEYS = ("eagle_aux_hidden_state_layer_ids", "aux_hidden_state_layer_ids")
UNUSED = ("verifier_lm_head.weight", "verifier_norm.weight")
"""Copies of the target's, kept for training."""
MAPS = ("d2t", "t2d")


def load_eagle3(
    folder: Path, *, embed_weight: Tensor, num_layers: int, device: torch.device | str, dtype: torch.dtype
) -> Eagle3Head:
    """The head of a checkpoint folder for a target of `num_layers` layers, bound to its embedding (V, h)."""
    file = EagleFile(Checkpoint(folder))
    if (kind := detect(file.shapes, folder)) != "eagle3":
        raise ExplorerError(f"The drafter in {folder} is {TITLES[kind]}, not an EAGLE-3 head.")
    file.rename("layers.0.", "midlayer.")
    file.rename("draft_id_to_target_id", "d2t")
    file.drop(UNUSED)
    vocab_size, target_size = embed_weight.shape
    shape = _read_shape(file, target_size)
    tensors = file.read()
    own = tensors.get("embed_tokens.weight")
    if own is not None and shape.hidden_size == target_size:
        borrowed = own_matrix(tensors, "embed_tokens.weight", embed_weight, folder) is embed_weight
        own = None if borrowed else own
    if own is not None:
        need(tensors, "embed_tokens.weight", (vocab_size, shape.hidden_size), folder)
        shape = _with(shape, own_embedding=vocab_size)
    head = Eagle3Head(
        shape,
        token_map=_token_map(tensors, shape.draft_vocab_size, vocab_size, folder),
        aux_layers=_aux_layers(file, shape.taps, num_layers),
        info=describe(folder, tensors, file.config),
    )
    file.fill(head, tensors, "a plain EAGLE-3 head", (*MAPS, "embed_tokens.weight"))
    head = head.to(device=device, dtype=dtype).eval().requires_grad_(False)
    head.bind(embed_weight.to(device))
    return head


def _with(shape: Eagle3Shape, **changes: Any) -> Eagle3Shape:
    return Eagle3Shape(**{**vars(shape), **changes})


def _read_shape(file: EagleFile, target_size: int) -> Eagle3Shape:
    folder, shapes, config = file.folder, file.shapes, file.config
    for name in ("fc.weight", "lm_head.weight", "midlayer.self_attn.q_proj.weight", "midlayer.self_attn.k_proj.weight"):
        if name not in shapes or len(shapes[name]) != 2:
            raise ExplorerError(f"The drafter in {folder} is not an EAGLE-3 head: it lacks the tensor {name}.")
    hidden_size, width = shapes["fc.weight"]
    if width % target_size:
        stated = config.get("target_hidden_size")
        made_for = stated if isinstance(stated, int) and not isinstance(stated, bool) else width // 3
        raise ExplorerError(
            f"The EAGLE-3 head in {folder} is made for hidden size {made_for}, the target has {target_size}."
        )
    if hidden_size != target_size and "embed_tokens.weight" not in shapes:
        raise ExplorerError(
            f"The EAGLE-3 head in {folder} has hidden size {hidden_size} and no embedding of its own; "
            f"the target has {target_size}."
        )
    taps, drafted = width // target_size, shapes["lm_head.weight"]
    if drafted[1] != hidden_size:
        raise ExplorerError(
            f"Tensor lm_head.weight in {folder} has shape {drafted}, but a width of {hidden_size} is needed."
        )
    return Eagle3Shape(
        hidden_size=hidden_size,
        draft_vocab_size=drafted[0],
        target_hidden_size=None if hidden_size == target_size else target_size,
        taps=taps,
        qkv_bias="midlayer.self_attn.q_proj.bias" in shapes,
        qk_norm="midlayer.self_attn.q_norm.weight" in shapes,
        norm_before_residual=config_flag(config, "norm_before_residual", folder),
        norm_before_fc="input_norm.weight" in shapes,
        fc_norm="fc_norm.0.weight" in shapes,
        norm_output=config_flag(config, "norm_output", folder),
        **file.layer_sizes("midlayer", hidden_size, 2 * hidden_size),
    )


def _token_map(tensors: Mapping[str, Tensor], drafted: int, vocab_size: int, folder: Path) -> Tensor | None:
    """(D,) target id of each draft id, from the offsets in `d2t`; None where draft ids are target ids."""
    offsets, kept = tensors.get("d2t"), tensors.get("t2d")
    if offsets is None:
        if drafted != vocab_size:
            raise ExplorerError(
                f"The EAGLE-3 head in {folder} drafts {drafted} tokens and has no d2t; the target has {vocab_size}."
            )
        return None
    if tuple(offsets.shape) != (drafted,) or offsets.is_floating_point() or offsets.dtype == torch.bool:
        raise ExplorerError(f"d2t in {folder} must be {drafted} whole numbers, one for each draft token.")
    ids = torch.arange(drafted) + offsets.long()
    if int(ids.min()) < 0 or int(ids.max()) >= vocab_size:
        raise ExplorerError(f"d2t in {folder} names tokens outside the target's {vocab_size}.")
    if ids.unique().numel() != drafted:
        raise ExplorerError(f"d2t in {folder} names a token twice.")
    if kept is not None and tuple(kept.shape) != (vocab_size,):
        raise ExplorerError(
            f"The EAGLE-3 head in {folder} is made for a target of {kept.numel()} tokens, this one has {vocab_size}."
        )
    if kept is not None and not (int(kept.bool().sum()) == drafted and bool(kept.bool()[ids].all())):
        raise ExplorerError(f"d2t and t2d in {folder} do not name the same tokens.")
    return None if drafted == vocab_size and not offsets.any() else ids


def _aux_layers(file: EagleFile, taps: int, num_layers: int) -> tuple[int, ...] | None:
    """transformers' `hidden_states` indices of the taps; None for the original's choice."""
    nested = file.config.get("eagle_config")
    at_top = [file.config[key] for key in AUX_KEYS if file.config.get(key)]
    below = [nested[key] for key in AUX_KEYS if nested.get(key)] if isinstance(nested, dict) else []
    if not at_top and not below:
        if taps != 3:
            raise ExplorerError(f"config.json in {file.folder} must say which {taps} layers of the target are read.")
        default_aux_layers(num_layers)
        return None
    numbers = [*at_top, *below][0]
    plain = isinstance(numbers, list) and all(isinstance(n, int) and not isinstance(n, bool) for n in numbers)
    inputs = _as_inputs(tuple(numbers), num_layers, outputs=not at_top) if plain else ()
    if len(inputs) != taps or not all(0 <= n < num_layers for n in inputs):
        raise ExplorerError(
            f"config.json in {file.folder} reads the target's layers {brief(numbers)}; {taps} of a target of "
            f"{num_layers} layers are needed."
        )
    return inputs


def _as_inputs(numbers: tuple[int, ...], num_layers: int, *, outputs: bool) -> tuple[int, ...]:
    """The layers whose inputs are read: the original's choice in either way of counting, else as the place tells."""
    original = (2, num_layers // 2, num_layers - 3)
    shifted = tuple(number + 1 for number in numbers)
    if numbers == original or shifted == original:
        return original
    return shifted if outputs else numbers
