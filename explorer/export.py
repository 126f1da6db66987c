"""Drafters in the layouts that other tools read. What the target lends a drafter here is written out there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from explorer.drafters.checkpoint import KNOWN_WEIGHTS, WEIGHTS_NAME, write_checkpoint
from explorer.drafters.detect import Kind
from explorer.drafters.draft_model import DraftModel, own_tensors
from explorer.drafters.eagle3_head import Eagle3Head
from explorer.drafters.eagle_head import EagleHead
from explorer.drafters.layers import SlotShape
from explorer.drafters.loading import Drafter
from explorer.drafters.medusa_heads import MedusaHeads
from explorer.errors import ExplorerError
from explorer.target import TargetModel

LAYOUTS: Mapping[Kind, tuple[str, ...]] = MappingProxyType(
    {
        "medusa": ("v2", "v0.1", "vllm"),
        "eagle": ("eagle", "vllm"),
        "eagle3": ("eagle3",),
        "draft-model": ("transformers",),
    }
)
"""Kind to layouts, the default first."""
CARRIED = ("target_sha256", "accuracies", "trees", "training")
"""What our own config.json says beyond the layouts."""
CONTEXT_TOKENS = 2048


@dataclass
class Written:
    """One checkpoint as it goes to disk."""

    tensors: dict[str, Tensor]
    config: dict[str, Any]
    weights_name: str = WEIGHTS_NAME
    notes: list[str] = field(default_factory=list)
    """What the layout cannot say."""


def kind_of(drafter: Drafter) -> Kind:
    """Which kind a loaded drafter is."""
    if isinstance(drafter, MedusaHeads):
        return "medusa"
    if isinstance(drafter, EagleHead):
        return "eagle"
    return "eagle3" if isinstance(drafter, Eagle3Head) else "draft-model"


def export(
    drafter: Drafter, target: TargetModel, out: Path, layout: str = "", source: Mapping[str, Any] | None = None
) -> list[str]:
    """Write a loaded drafter to a folder; `source` is the config.json that it came with. Returns notes for the user.

    Tensors get the narrowest type that holds their values, so nothing is rounded. ExplorerError where the
    layout is unknown, or cannot hold the drafter.
    """
    kind = kind_of(drafter)
    layout = layout or _default(drafter, kind)
    if layout not in LAYOUTS[kind]:
        raise ExplorerError(f"There is no layout {layout!r} of that drafter; there is {', '.join(LAYOUTS[kind])}.")
    written = _written(drafter, target, layout)
    _check_out(out, written.weights_name)
    carried = {key: value for key, value in (source or {}).items() if key in CARRIED}
    config = {**written.config, "vocab_size": target.vocabulary_tokens, **carried}
    card = _card(kind, layout, drafter, target, written)
    try:
        write_checkpoint(out, written.tensors, config, card, written.weights_name)
        if isinstance(drafter, DraftModel):
            target.tokenizer.save_pretrained(out)
    except OSError as error:
        raise ExplorerError(f"The drafter cannot be written to {out}: {error.strerror or error}.") from error
    return written.notes


def _check_out(out: Path, weights_name: str) -> None:
    """A folder with other weights in it would be read as those."""
    others = [name for name in KNOWN_WEIGHTS if name != weights_name and (out / name).exists()]
    if others:
        raise ExplorerError(f"{out} holds {others[0]} already; name another folder.")


def _default(drafter: Drafter, kind: Kind) -> str:
    own = isinstance(drafter, MedusaHeads) and drafter.own_output is not None
    return "v0.1" if own else LAYOUTS[kind][0]


def _written(drafter: Drafter, target: TargetModel, layout: str) -> Written:
    if isinstance(drafter, MedusaHeads):
        makers = {"v2": _medusa_v2, "v0.1": _medusa_v01, "vllm": _medusa_vllm}
        return makers[layout](drafter, target)
    if isinstance(drafter, EagleHead):
        return _eagle_vllm(drafter) if layout == "vllm" else _eagle(drafter)
    return _eagle3(drafter, target) if isinstance(drafter, Eagle3Head) else _draft_model(drafter, target)


def _medusa_v2(heads: MedusaHeads, target: TargetModel) -> Written:
    if heads.own_output is not None:
        raise ExplorerError("These Medusa heads have output matrices of their own, which the layout v2 cannot hold.")
    config = {"model_type": "medusa", "version": "2", **_medusa_config(heads, target)}
    tensors = _narrow(_blocks(heads, "{head}.{layer}.linear"))
    notes = []
    if heads.token_map is not None:
        tensors["token_map"] = heads.token_map.to(torch.int32)
        notes = [f"Other tools overlook the tensor token_map and draft from {target.vocabulary_tokens:,} tokens."]
    return Written(tensors, config, "medusa_lm_head.safetensors", notes)


def _medusa_v01(heads: MedusaHeads, target: TargetModel) -> Written:
    matrices = target.output_weight if heads.own_output is None else heads.own_output
    if matrices.shape[-2] != target.vocabulary_tokens:
        raise ExplorerError("These Medusa heads know a draft vocabulary only, which the layout v0.1 cannot hold.")
    tensors = _narrow(_blocks(heads, "{head}.{layer}.linear"))
    layers = heads.weight.shape[0]
    outputs = _narrow({"": matrices})[""]
    for head in range(heads.num_heads):
        own = outputs if outputs.ndim == 2 else outputs[head if len(outputs) > 1 else 0]
        tensors[f"{head}.{layers}.weight"] = own.clone()
    return Written(tensors, _medusa_config(heads, target), "medusa_lm_head.pt", _forgotten(heads, target))


def _medusa_vllm(heads: MedusaHeads, target: TargetModel) -> Written:
    tensors = _narrow(_blocks(heads, "blocks.{head}.layers.{layer}"))
    outputs = heads.output_weight[None] if heads.output_weight is not None else heads.own_output
    assert outputs is not None, "bind() comes before export"
    narrow = _narrow({"": outputs})[""]
    tensors |= {f"lm_heads.{head}.weight": output.clone() for head, output in enumerate(narrow)}
    if heads.token_map is not None:
        tensors["token_map"] = heads.token_map
    config = {
        "model_type": "medusa",
        "architectures": ["MedusaModel"],
        "num_heads": heads.num_heads,
        "num_hidden_layers": heads.weight.shape[0],
        "hidden_size": heads.hidden_size,
        "truncated_vocab_size": narrow.shape[1],
        "medusa_fc_bias": True,
        "original_lm_head": len(narrow) == 1,
    }
    return Written(tensors, config)


def _medusa_config(heads: MedusaHeads, target: TargetModel) -> dict[str, Any]:
    return {
        "base_model_name_or_path": target.info.id,
        "hidden_size": heads.hidden_size,
        "medusa_num_heads": heads.num_heads,
        "medusa_num_layers": heads.weight.shape[0],
    }


def _blocks(heads: MedusaHeads, name: str) -> dict[str, Tensor]:
    tensors = {}
    for head in range(heads.num_heads):
        for layer in range(heads.weight.shape[0]):
            stem = name.format(head=head, layer=layer)
            tensors[f"{stem}.weight"] = heads.weight[layer, head].detach()
            tensors[f"{stem}.bias"] = heads.bias[layer, head, 0].detach()
    return tensors


def _eagle(head: EagleHead) -> Written:
    assert head.embed_weight is not None, "bind() comes before export"
    tensors = {**_narrow(head.state_dict()), **_narrow({"embed_tokens.weight": head.embed_weight})}
    config = {**_llama_config(head.shape), "architectures": ["LlamaForCausalLM"], "bias": head.shape.fc_bias}
    config["qkv_bias"] = head.shape.qkv_bias
    notes = []
    if head.token_map is not None:
        notes = [
            f"This layout cannot express the draft vocabulary of {len(head.token_map):,} tokens: from here the head "
            "drafts from all tokens, so its drafts may differ. The layout vllm keeps it."
        ]
    return Written(tensors, config, notes=notes)


def _eagle_vllm(head: EagleHead) -> Written:
    assert head.embed_weight is not None, "bind() comes before export"
    assert head.output_weight is not None
    own = {(name if name.startswith("fc.") else f"model.{name}"): tensor for name, tensor in head.state_dict().items()}
    borrowed = {"model.embed_tokens.weight": head.embed_weight, "lm_head.weight": head.output_weight}
    tensors = {**_narrow(own), **_narrow(borrowed)}
    if head.token_map is not None:
        tensors["token_map"] = head.token_map
    model = {**_llama_config(head.shape), "vocab_size": len(head.embed_weight)}
    config: dict[str, Any] = {"model_type": "eagle", "architectures": ["EAGLEModel"], "model": model}
    config |= {"truncated_vocab_size": len(head.output_weight), "eagle_fc_bias": head.shape.fc_bias}
    return Written(tensors, config)


def _eagle3(head: Eagle3Head, target: TargetModel) -> Written:
    """The official layout. Draft ids are sorted by target id, as `t2d` implies."""
    state = {name: tensor.detach() for name, tensor in head.state_dict().items()}
    maps: dict[str, Tensor] = {}
    if head.token_map is not None:
        ids, order = head.token_map.sort()
        state["lm_head.weight"] = state["lm_head.weight"][order]
        kept = torch.zeros(target.vocabulary_tokens, dtype=torch.bool)
        kept[ids.cpu()] = True
        maps = {"d2t": ids.cpu() - torch.arange(len(ids)), "t2d": kept}
    shape = head.shape
    config = {
        **_llama_config(shape),
        "architectures": ["LlamaForCausalLMEagle3"],
        "draft_vocab_size": shape.draft_vocab_size,
        "tie_word_embeddings": False,
    }
    flags = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output", "target_hidden_size")
    config |= {name: getattr(shape, name) for name in flags if getattr(shape, name)}
    if head.aux_layers is not None:  # vLLM counts inputs, SGLang outputs
        config["eagle_aux_hidden_state_layer_ids"] = list(head.aux_layers)
        outputs = [layer - 1 for layer in head.aux_layers]
        config["eagle_config"] = {"eagle_aux_hidden_state_layer_ids": outputs, "use_aux_hidden_state": True}
    return Written({**_narrow(state), **maps}, config)


def _draft_model(drafter: DraftModel, target: TargetModel) -> Written:
    """A whole language model in a transformers folder."""
    own, config = own_tensors(drafter.module), drafter.module.config.to_dict()
    if config.get("model_type") != "llama" or not _borrows(drafter, target):
        raise ExplorerError("This draft model is a transformers folder already; copy it.")
    tied = torch.equal(target.embed_weight, target.output_weight)
    tensors = _narrow({f"model.{name}": tensor for name, tensor in own.items()})
    borrowed = {"model.embed_tokens.weight": target.embed_weight}
    tensors |= _narrow(borrowed if tied else borrowed | {"lm_head.weight": target.output_weight})
    config |= {"architectures": ["LlamaForCausalLM"], "tie_word_embeddings": tied}
    config |= {"eos_token_id": sorted(target.end_token_ids), "bos_token_id": target.tokenizer.bos_token_id}
    return Written(tensors, config, notes=_forgotten(drafter, target))


def _borrows(drafter: DraftModel, target: TargetModel) -> bool:
    """Are embedding and output head the target's?"""
    module, rows = drafter.module, target.output_weight
    rows = rows if drafter.token_map is None else rows[drafter.token_map]
    pairs = ((module.get_input_embeddings(), target.embed_weight), (module.get_output_embeddings(), rows))
    return all(mine.weight.shape == theirs.shape and torch.equal(mine.weight, theirs) for mine, theirs in pairs)


def _forgotten(drafter: MedusaHeads | DraftModel, target: TargetModel) -> list[str]:
    if drafter.token_map is None:
        return []
    return [
        f"This layout cannot express the draft vocabulary of {len(drafter.token_map):,} tokens: from here all "
        f"{target.vocabulary_tokens:,} are drafted from, so drafts may differ; the output does not."
    ]


def _llama_config(shape: SlotShape) -> dict[str, Any]:
    scaling = {} if shape.rope_scaling is None else {"rope_scaling": dict(shape.rope_scaling)}
    return {
        "model_type": "llama",
        "num_hidden_layers": 1,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "rms_norm_eps": shape.rms_norm_eps,
        "rope_theta": shape.rope_theta,
        "hidden_act": "silu",
        "max_position_embeddings": CONTEXT_TOKENS,
        **scaling,
    }


def _narrow(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """All tensors in the narrowest type that holds every value exactly, so that a file has one type."""
    for dtype in (torch.bfloat16, torch.float16):
        narrow = {name: tensor.detach().to(dtype) for name, tensor in tensors.items()}
        if all(torch.equal(narrow[name].to(tensor.dtype), tensor) for name, tensor in tensors.items()):
            return narrow
    return {name: tensor.detach() for name, tensor in tensors.items()}


def _card(kind: Kind, layout: str, drafter: Drafter, target: TargetModel, written: Written) -> str:
    parameters = sum(tensor.numel() for tensor in written.tensors.values() if tensor.is_floating_point())
    return "\n".join(
        [
            f"# {drafter.info.id}, layout {layout}",
            "",
            f"A drafter of kind {kind} for {target.info.id}, {parameters / 1e6:.2f} million parameters in this folder,",
            "those that it takes from the target included.",
            *(f"\n{note}" for note in written.notes),
            "",
        ]
    )
