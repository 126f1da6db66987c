"""What a viewer can set, and how it becomes a request. Everything posted is checked: the page is public."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from explorer.errors import ExplorerError
from explorer.params import Params, describe, parse
from explorer.requests import MAX_LANES, MAX_NEW_TOKENS, CompareRequest, LaneRequest

ASSETS = Path(__file__).resolve().parents[2] / "assets"


class RunSettings(Params):
    """What holds for all lanes of a run."""

    max_new_tokens: int = Field(
        96,
        ge=1,
        le=MAX_NEW_TOKENS,
        title="Max new tokens",
        description="Each lane stops there, or earlier at an end token.",
    )
    temperature: float = Field(
        0.0, ge=0.0, le=2.0, title="Temperature", description="0 takes the most probable token: greedy."
    )
    top_k: int = Field(
        0, ge=0, le=1000, title="Top k", description="Sampling keeps only the k most probable tokens; 0: all."
    )
    top_p: float = Field(
        1.0, ge=0.01, le=1.0, title="Top p", description="Sampling keeps the tokens that make up this share."
    )
    min_p: float = Field(
        0.0,
        ge=0.0,
        le=1.0,
        title="Min p",
        description="Sampling keeps tokens with at least this share of the best one's probability; 0: all.",
    )
    repetition_penalty: float = Field(
        1.0,
        ge=0.1,
        le=10.0,
        title="Repetition penalty",
        description="Above 1, tokens that were there already become less likely, also when greedy; 1: off.",
    )
    seed: int = Field(0, ge=0, le=2**31 - 1, title="Seed", description="The same seed gives the same run.")
    raw: bool = Field(False, title="Raw prompt", description="Feed the prompt without the model's chat template.")


class LaneChoice(BaseModel):
    """One row of the lane editor."""

    model_config = ConfigDict(extra="forbid")
    method: str = Field(max_length=64)
    params: dict[str, int | float | str | bool | None] = Field(default={}, max_length=32)


class Setup(BaseModel):
    """The value of the setup component."""

    model_config = ConfigDict(extra="forbid")
    lanes: list[LaneChoice]
    settings: dict[str, Any] = {}


@dataclass(frozen=True)
class Preset:
    """A category of prompts to try."""

    category: str
    prompts: tuple[str, ...]


def presets() -> list[Preset]:
    """The prompts that ship."""
    rows = json.loads((ASSETS / "prompts" / "presets.json").read_text(encoding="utf-8"))
    return [Preset(row["category"], tuple(row["prompts"])) for row in rows]


FIRST_LANES = ("autoregressive", "medusa", "eagle", "lookahead")
"""Four ideas side by side: more at once than this is hard to read. The editor adds the others."""


def first_setup(methods: list[dict[str, Any]]) -> dict[str, Any]:
    """Four lanes at their defaults: FIRST_LANES, and others in place of those that cannot run here."""
    usable = [method for method in methods if method.get("available", True)]
    place = {name: at for at, name in enumerate(FIRST_LANES)}
    wanted = sorted(usable, key=lambda method: place.get(method["name"], len(place)))[: len(place)]
    lanes = [{"method": method["name"], "params": defaults(method["parameters"])} for method in wanted]
    return {"lanes": lanes, "settings": defaults(describe(RunSettings))}


def defaults(fields: list[dict[str, Any]]) -> dict[str, Any]:
    """Default values by name."""
    return {field["name"]: field["default"] for field in fields}


def read_request(prompt: Any, setup: Any) -> CompareRequest:
    """The request that a viewer's input asks for. ExplorerError says in a sentence what is wrong."""
    if not isinstance(prompt, str) or not prompt.strip():
        raise ExplorerError("The prompt is empty: type a sentence, or pick one of the examples under the box.")
    try:
        chosen = Setup.model_validate(setup)
    except ValidationError:
        raise ExplorerError("The choice of lanes cannot be read: reload the page and choose again.") from None
    if not 1 <= len(chosen.lanes) <= MAX_LANES:
        raise ExplorerError(f"A run has 1 to {MAX_LANES} lanes, not {len(chosen.lanes)}.")
    settings = parse(RunSettings, chosen.settings, "A run").model_dump()
    lanes = [LaneRequest(method=lane.method, params=lane.params) for lane in chosen.lanes]
    return CompareRequest(prompt=prompt, lanes=lanes, **settings)
