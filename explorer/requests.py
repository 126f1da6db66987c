"""What a viewer asks for, checked before anything runs: every refusal is one sentence."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from explorer.errors import ExplorerError, brief
from explorer.methods import find_method
from explorer.methods.base import Method
from explorer.params import Params, parse
from explorer.sampling import SamplingSettings

MAX_PROMPT_CHARACTERS = 100_000
MAX_NEW_TOKENS = 512
MAX_LANES = 8
SAMPLING_BOUNDS = {
    "temperature": "from 0 to 5",
    "top_k": "from 0 to 1000",
    "top_p": "above 0, at most 1",
    "min_p": "from 0 to 1",
    "repetition_penalty": "from 0.1 to 10",
    "seed": "from 0 to 2147483647",
}
LANE_ID = re.compile(r"[A-Za-z0-9-]{1,40}")


class LaneRequest(BaseModel):
    """A lane: a method with parameters."""

    model_config = ConfigDict(frozen=True)

    method: str
    params: dict[str, Any] = {}
    id: str | None = None


class CompareRequest(BaseModel):
    """A comparison: one prompt, some lanes, shared settings."""

    model_config = ConfigDict(frozen=True)

    prompt: str
    lanes: list[LaneRequest]
    max_new_tokens: int = 96
    raw: bool = False
    """Feed the prompt without the chat template."""
    seed: int = 0
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0


@dataclass(frozen=True)
class LanePlan:
    """A lane that may run."""

    id: str
    method: type[Method]
    params: Params


@dataclass(frozen=True)
class Plan:
    """A comparison that may run."""

    prompt: str
    raw: bool
    lanes: tuple[LanePlan, ...]
    max_new_tokens: int
    sampling: SamplingSettings

    @property
    def summary(self) -> str:
        """The settings in a few words."""
        return describe_settings(self.max_new_tokens, self.sampling.model_dump(), templated=not self.raw)


def plan(request: CompareRequest) -> Plan:
    """The request, checked. ExplorerError says what is wrong and what is allowed."""
    if not 1 <= request.max_new_tokens <= MAX_NEW_TOKENS:
        raise ExplorerError(
            f"Max new tokens is {brief(request.max_new_tokens)}, but must be a whole number from 1 to {MAX_NEW_TOKENS}."
        )
    if not 1 <= len(request.lanes) <= MAX_LANES:
        raise ExplorerError(f"{len(request.lanes)} lanes were asked for; choose 1 to {MAX_LANES}.")
    return Plan(
        prompt=_checked_prompt(request.prompt),
        raw=request.raw,
        lanes=_lane_plans(request.lanes),
        max_new_tokens=request.max_new_tokens,
        sampling=_sampling(request),
    )


def _checked_prompt(prompt: str) -> str:
    if len(prompt) > MAX_PROMPT_CHARACTERS:
        raise ExplorerError(
            f"The prompt has {len(prompt):,} characters; at most {MAX_PROMPT_CHARACTERS:,} are allowed."
        )
    # a lone surrogate (half of a UTF-16 pair, from broken input) has no UTF-8 form that a tokenizer takes
    whole = prompt.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if not whole.strip():
        raise ExplorerError("The prompt is empty; type some text first.")
    return whole


def _lane_plans(lanes: list[LaneRequest]) -> tuple[LanePlan, ...]:
    seen: Counter[str] = Counter()
    plans = []
    for lane in lanes:
        method = find_method(lane.method)
        seen[method.name] += 1
        suffix = f"-{seen[method.name]}" if seen[method.name] > 1 else ""
        params = parse(method.Params, lane.params, method.title)
        plans.append(LanePlan(lane.id or method.name + suffix, method, params))
    strange = next((each.id for each in plans if not LANE_ID.fullmatch(each.id)), None)
    if strange is not None:
        raise ExplorerError(f"A lane's id may have letters, digits and dashes, 40 at most; {strange[:60]!r} is none.")
    repeated = [name for name, count in Counter(each.id for each in plans).items() if count > 1]
    if repeated:
        raise ExplorerError(f"Two lanes have the id {brief(repeated[0])}; every lane needs its own.")
    return tuple(plans)


def _sampling(request: CompareRequest) -> SamplingSettings:
    values = {name: getattr(request, name) for name in SamplingSettings.model_fields}
    try:
        return SamplingSettings(**values)
    except ValidationError as error:
        name = str(error.errors()[0]["loc"][0])
        raise ExplorerError(f"{name} is {brief(values[name])}, but must be {SAMPLING_BOUNDS[name]}.") from None


def describe_settings(max_new_tokens: object, sampling: Mapping[str, Any], *, templated: bool) -> str:
    """Settings of a run in a few words; unknown or odd values of a recorded file are left out."""
    given = {name: value for name, value in sampling.items() if isinstance(value, int | float)}
    temperature = given.get("temperature", 0)
    parts = [f"{max_new_tokens} tokens", f"temperature {temperature:g}" if temperature else "greedy"]
    neutral = {"top_k": 0, "top_p": 1, "min_p": 0} if temperature else {}
    neutral["repetition_penalty"] = 1
    parts += [
        f"{name.replace('_', ' ')} {given[name]:g}"
        for name, plain in neutral.items()
        if given.get(name, plain) != plain
    ]
    return " · ".join([*parts, "chat template" if templated else "raw prompt", f"seed {given.get('seed', 0)}"])
