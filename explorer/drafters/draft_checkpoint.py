"""Draft models from folders: a transformers causal LM with the target's vocabulary, or this project's own layout."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from explorer.drafters.checkpoint import (
    Checkpoint,
    DrafterInfo,
    config_integer,
    describe,
    folder_name,
    need,
    read_token_map,
)
from explorer.drafters.detect import TITLES, detect
from explorer.drafters.draft_model import DraftModel, DraftShape, new_transformer, own_tensors
from explorer.drafters.eagle_file import EagleFile
from explorer.drafters.vocabulary import need_same_vocabulary
from explorer.errors import ExplorerError
from explorer.load import load_target, packed_target
from explorer.target import TargetModel

_LAYER = re.compile(r"^layers\.(\d+)\.")
OWN_CONTEXT_TOKENS = 2048
MOST_LAYERS = 64


def load_draft_model(
    folder: Path, *, target: TargetModel, device: torch.device | str, dtype: torch.dtype, packed: bool = True
) -> DraftModel:
    """The draft model of a folder. ExplorerError where it is none, or where its vocabulary is not the target's.

    packed: layers of the own layout are packed for inference (explorer/products.py); another model's always are.
    """
    checkpoint = Checkpoint(folder)
    if (kind := detect(checkpoint, folder)) != "draft-model":
        raise ExplorerError(f"The drafter in {folder} is {TITLES[kind]}, not a language model.")
    if "norm.weight" in checkpoint and "layers.0.input_layernorm.weight" in checkpoint:
        draft = _load_own(checkpoint, target, device, dtype)
        return _packed(draft, folder) if packed else draft
    return _load_language_model(checkpoint, target, device, dtype)


def _packed(draft: DraftModel, folder: Path) -> DraftModel:
    try:
        return replace(draft, model=packed_target(draft.model, keep_weights=True))
    except ExplorerError as error:
        raise ExplorerError(f"The draft model in {folder} cannot be used: {error}") from error


def _load_own(
    checkpoint: Checkpoint, target: TargetModel, device: torch.device | str, dtype: torch.dtype
) -> DraftModel:
    """Layers from the folder, embedding and output head from the target."""
    folder = checkpoint.folder
    shape = _read_shape(checkpoint, target.hidden_size)
    tensors = checkpoint.read()
    token_map = read_token_map(tensors, target.vocabulary_tokens, folder)
    matrices = [each.to(device, dtype) for each in (target.embed_weight, target.output_weight)]
    module = new_transformer(shape, embed_weight=matrices[0], output_weight=matrices[1], token_map=token_map)
    own = own_tensors(module)
    unknown = sorted(set(tensors) - set(own) - {"token_map"})
    if unknown:
        raise ExplorerError(f"The draft model in {folder} has the tensor {unknown[0]}, which its layout does not have.")
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(need(tensors, name, tuple(parameter.shape), folder))
    module.eval().requires_grad_(False)
    return DraftModel.of(module, target, token_map=token_map, info=describe(folder, tensors, checkpoint.config))


def _read_shape(checkpoint: Checkpoint, hidden_size: int) -> DraftShape:
    """Sizes of the own layout, from its tensors first."""
    folder, names = checkpoint.folder, ("self_attn.q_proj", "self_attn.k_proj", "mlp.gate_proj")
    for name in (f"layers.0.{name}.weight" for name in names):
        if name not in checkpoint or len(checkpoint[name]) != 2:
            raise ExplorerError(f"The draft model in {folder} lacks the tensor {name}.")
    found = checkpoint["layers.0.self_attn.q_proj.weight"][1]
    if found != hidden_size:
        raise ExplorerError(
            f"The draft model in {folder} is made for hidden size {found}, the target has {hidden_size}."
        )
    sizes = EagleFile(checkpoint).layer_sizes("layers.0", hidden_size, hidden_size)
    if sizes.pop("rope_scaling") is not None:
        raise ExplorerError(f"The draft model in {folder} has a rotary scaling, which its layout does not have.")
    layers = {int(match[1]) for name in checkpoint if (match := _LAYER.match(name))}
    if layers != set(range(len(layers))) or len(layers) > MOST_LAYERS:
        raise ExplorerError(f"The layers of the draft model in {folder} are not numbered in order from 0.")
    context = config_integer(checkpoint.config, "max_position_embeddings", OWN_CONTEXT_TOKENS, folder)
    return DraftShape(num_layers=len(layers), context_tokens=context, **sizes)


def _load_language_model(
    checkpoint: Checkpoint, target: TargetModel, device: torch.device | str, dtype: torch.dtype
) -> DraftModel:
    """The model as `load_target` reads it, which runs no code from the folder and refuses missing tensors."""
    name, kind = folder_name(checkpoint.folder), str(dtype).removeprefix("torch.")
    model = load_target(checkpoint.folder, model_id=name, label=name, device=str(device), dtype=kind, keep_weights=True)
    need_same_vocabulary(target.tokenizer, model.tokenizer, name)
    module = model.transformers_model
    token_map = _match_outputs(module, target, checkpoint.folder)
    module.requires_grad_(False)
    parameters = list(module.parameters())
    info = DrafterInfo(name, model.info.parameters, sum(each.nbytes for each in parameters), None)
    return DraftModel(TargetModel(module, model.tokenizer, model.info, decoder=model.decoder), info, token_map)


def _match_outputs(module: Any, target: TargetModel, folder: Path) -> Tensor | None:
    """Equal tokenizers may come with rows of padding: draft at most the ids that the target has."""
    head = module.get_output_embeddings()
    rows, wanted = head.weight.shape[0], target.vocabulary_tokens
    if module.get_input_embeddings().weight.shape[0] < len(target.tokenizer):
        raise ExplorerError(f"The draft model in {folder} has fewer embeddings than its tokenizer has tokens.")
    if rows > wanted:
        cut = nn.Linear(head.in_features, wanted, bias=head.bias is not None, device="meta")
        cut.weight = nn.Parameter(head.weight[:wanted].detach(), requires_grad=False)
        if head.bias is not None:
            cut.bias = nn.Parameter(head.bias[:wanted].detach(), requires_grad=False)
        module.set_output_embeddings(cut)
    return torch.arange(rows, device=module.device) if rows < wanted else None
