"""Which kind of drafter a checkpoint holds: told by its tensors' names and shapes, never by its config."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from explorer.errors import ExplorerError

Kind = Literal["medusa", "eagle", "eagle3", "draft-model"]
KINDS: tuple[Kind, ...] = ("medusa", "eagle", "eagle3", "draft-model")
TITLES: Mapping[Kind, str] = MappingProxyType(
    {
        "medusa": "a set of Medusa heads",
        "eagle": "an EAGLE head",
        "eagle3": "an EAGLE-3 head",
        "draft-model": "a language model",
    }
)

MEDUSA_PREFIX = re.compile(r"^medusa_heads?\.")
_MEDUSA = re.compile(r"^(medusa_heads?\.)?(\d+\.\d+\.linear\.weight|blocks\.\d+\.layers\.\d+\.weight)$")
_WRAPPING = re.compile(r"^(module\.|model\.)+")
_EMBEDDING = re.compile(r"(^|\.)(embed_tokens|wte|embed_in|word_embeddings)\.weight$")
_OTHERS = {
    "ModelOpt's training form of EAGLE": re.compile(r"^eagle_module\."),
    "Hydra heads": re.compile(r"^hydra_(head|mlp)"),
    "an MLP speculator": re.compile(r"^(speculator\.)?(emb|proj|ln)\.\d+\.weight$"),
    "a LoRA adapter": re.compile(r"\.lora_[AB]\."),
    "a parallel-drafting EAGLE head": re.compile(r"(^|\.)mask_hidden$"),
    "a multi-token-prediction layer": re.compile(r"(^|\.)(eh_proj|enorm|hnorm|mtp_block)\."),
}


def detect(shapes: Mapping[str, tuple[int, ...]], where: Path | str = "the checkpoint") -> Kind:
    """The kind of drafter whose tensors have these names and shapes. ExplorerError for anything else.

    Only the shapes of two tensors are looked at. A whole model with Medusa heads in it counts as Medusa.
    """
    if any(_MEDUSA.match(name) for name in shapes):
        return "medusa"
    for title, pattern in _OTHERS.items():
        if any(pattern.search(name) for name in shapes):
            raise ExplorerError(f"The drafter in {where} is {title}, which is not supported.")
    plain = {eagle_name(name): name for name in shapes}
    if "fc.weight" in plain or any(name.startswith("midlayer.") for name in plain):
        return _eagle_kind(shapes, plain)
    layers = any(re.search(r"(^|\.)(layers|h|blocks)\.0\.", name) for name in shapes)
    own_layout = "layers.0.input_layernorm.weight" in shapes and "norm.weight" in shapes
    if layers and (own_layout or any(_EMBEDDING.search(name) for name in shapes)):
        return "draft-model"
    raise ExplorerError(
        f"The weights in {where} are no drafter that is known (Medusa heads, an EAGLE or EAGLE-3 layer, a language "
        f"model); {_some(shapes)}."
    )


def _eagle_kind(shapes: Mapping[str, tuple[int, ...]], plain: Mapping[str, str]) -> Kind:
    """EAGLE-3's attention reads embedding and feature side by side, twice the width of what `fc` gives."""
    query = next((plain[f"{at}.self_attn.q_proj.weight"] for at in ("midlayer", "layers.0") if _has(plain, at)), None)
    if "fc.weight" not in plain or query is None:
        return "eagle3" if any(name.startswith("midlayer.") for name in plain) else "eagle"
    fused, read = shapes[plain["fc.weight"]], shapes[query]
    return "eagle3" if len(fused) == len(read) == 2 and read[1] == 2 * fused[0] else "eagle"


def _has(plain: Mapping[str, str], layer: str) -> bool:
    return f"{layer}.self_attn.q_proj.weight" in plain


def eagle_name(name: str) -> str:
    """An EAGLE tensor's name without what other tools wrap around it (`model.`, speculators' names)."""
    name = _WRAPPING.sub("", name)
    return re.sub(r"^transformer\.(?=self_attn|mlp|\w*layernorm)", "layers.0.", re.sub(r"^fusion_fc\.", "fc.", name))


def _some(names: Iterable[str]) -> str:
    listed = sorted(names)
    return f"they begin with {listed[0]}" if listed else "there is no tensor in them"
