"""What if: one more lane for a finished comparison, with a token that a viewer chose, or with other parameters.

What is asked for is checked here; `Studio.extend` decodes it. Anybody can post a question, and a recording may hold
anything, so nothing in either is trusted: every refusal is one sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from explorer.errors import ExplorerError
from explorer.figures.labels import quoted, visible
from explorer.methods import find_method
from explorer.methods.base import Method
from explorer.metrics import baseline_of, compare_outputs
from explorer.params import Params, describe, parse
from explorer.places import Place, place_of
from explorer.requests import MAX_LANES, MAX_NEW_TOKENS, LanePlan, Plan
from explorer.runs import Run
from explorer.sampling import SamplingSettings
from explorer.target import TargetModel
from explorer.texts import UNFINISHED
from explorer.trace import Branch, Comparison, ModelInfo, Prompt, Trace

MAX_TEXT = 200
MAX_FORCED = 16
"""Tokens that a typed text may have."""
LIMIT = 24
"""Characters of a token's text."""


class ForcedToken(BaseModel):
    """A token of the viewer's choice at the place of a node: the node's own, another one by its id, or typed text."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: int = Field(ge=0)
    node: int | Literal["next"]
    token_id: int | None = None
    text: str | None = Field(None, max_length=MAX_TEXT)


class ExtendRequest(BaseModel):
    """One more lane, made from `lane`: either goes on from a forced token, or is run again with `params`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    lane: str = Field(max_length=64)
    force: ForcedToken | None = None
    params: dict[str, int | float | str | bool | None] | None = Field(None, max_length=64)


@dataclass(frozen=True)
class Source:
    """The lane that another one is made from."""

    trace: Trace
    title: str
    method: type[Method]
    params: Params
    sampling: SamplingSettings
    max_new_tokens: int


@dataclass(frozen=True)
class Addition:
    """A lane that may run, and the settings that it shares with the others."""

    plan: Plan
    prompt: Prompt
    subtitle: str
    branch: Branch
    given: tuple[int, ...] = ()
    """The beginning of its output."""

    @property
    def lane(self) -> LanePlan:
        """The lane."""
        return self.plan.lanes[0]

    @property
    def forced(self) -> int:
        """So many tokens of the beginning, the last ones, a viewer chose."""
        return len(self.branch.token_ids or ())

    @property
    def budget(self) -> int:
        """Tokens that it may decode."""
        return min(self.plan.max_new_tokens - len(self.given), MAX_NEW_TOKENS)

    @property
    def context(self) -> tuple[int, ...]:
        """What its prefill reads."""
        return (*self.prompt.token_ids, *self.given)


def read_extension(posted: object) -> ExtendRequest:
    """The request that was posted. ExplorerError where it is none."""
    try:
        request = ExtendRequest.model_validate(posted)
    except ValidationError as error:
        if any(each["loc"][-1:] == ("text",) and each["type"] == "string_too_long" for each in error.errors()):
            raise ExplorerError(f"The text to go on with may have {MAX_TEXT} characters at most.") from None
        raise ExplorerError("This wish cannot be read: reload the page and try again.") from None
    force = request.force
    if force is not None and force.token_id is not None and force.text is not None:
        raise ExplorerError("Choose a token or type a text to go on with: one of the two.")
    if (force is None) == (request.params is None):
        raise ExplorerError("Choose a token to go on with, or other parameters: one of the two.")
    return request


def refuse_unfinished(run: Run) -> Comparison:
    """The run's comparison. ExplorerError where no lane can be added to it."""
    if not run.over or run.comparison is None:
        raise ExplorerError("A lane can be added when the run has ended and something was decoded.")
    if len(run.lanes) >= MAX_LANES:
        raise ExplorerError(f"This run has {len(run.lanes)} lanes, and {MAX_LANES} are the most; run it with fewer.")
    return run.comparison


def source_of(run: Run, lane: str) -> Source:
    """The lane with what it ran with. ExplorerError where it is not there or cannot be run again."""
    record = run.lanes.get(lane)
    if record is None:
        raise ExplorerError("The run has no such lane.")
    if record.trace is None or not record.trace.tokens:
        raise ExplorerError(f"{record.header.title} decoded nothing, so there is nothing to go on from.")
    trace, given = record.trace, record.trace.params
    method = find_method(trace.method)
    own = {name: given[name] for name in method.Params.model_fields if name in given}
    shared = given.get("sampling", given)
    if not isinstance(shared, dict):
        shared = {"temperature": None}
    try:
        names = SamplingSettings.model_fields
        sampling = SamplingSettings(**{name: shared[name] for name in names if name in shared})
    except ValidationError:
        raise ExplorerError("This recording does not tell how its tokens were chosen, so it cannot go on.") from None
    budget = given.get("max_new_tokens")
    usable = budget if isinstance(budget, int) and 0 < budget < 10**6 else run.max_new_tokens
    return Source(trace, record.header.title, method, parse(method.Params, own, method.title), sampling, usable)


def choices(run: Run, posted: object) -> dict[str, Any]:
    """What a viewer may choose at a node: {lane, step, node} -> {position, token, taken, instead}."""
    if not isinstance(posted, dict):
        raise ExplorerError("The question must be an object with named fields.")
    lane, step, node = (posted.get(name) for name in ("lane", "step", "node"))
    record = run.lanes.get(lane) if isinstance(lane, str) else None
    if record is None or record.trace is None or not isinstance(step, int) or not isinstance(node, int | str):
        raise ExplorerError("The run has no such lane, or it has not ended.")
    refuse_unfinished(run)
    place, output = place_of(record.trace, step, node), [token.id for token in record.trace.tokens]
    return {
        "position": len(place.before) + 1,
        "token": {"id": place.token_id, "text": visible(place.text, LIMIT)},
        "taken": output[: len(place.before) + 1] == [*place.before, place.token_id],
        "instead": [{"id": top.token_id, "text": visible(top.text, LIMIT), "prob": top.prob} for top in place.instead],
    }


def parameters(run: Run, posted: object) -> dict[str, Any]:
    """The parameters of a lane: {lane} -> {title, fields, values}. ExplorerError where it has none to change."""
    lane = posted.get("lane") if isinstance(posted, dict) else None
    source = source_of(run, lane if isinstance(lane, str) else "")
    refuse_unfinished(run)
    fields = describe(source.method.Params)
    if not fields:
        raise ExplorerError(f"{source.method.title} has no parameters to change.")
    return {"title": source.title, "fields": fields, "values": source.params.model_dump()}


def refuse_early(run: Run, request: ExtendRequest) -> Comparison:
    """The run's comparison. ExplorerError says what is wrong, as far as that can be told without the model."""
    comparison = refuse_unfinished(run)
    source = source_of(run, request.lane)
    if request.force is not None:
        place_of(source.trace, request.force.step, request.force.node)
    else:
        parse(source.method.Params, source.params.model_dump() | dict(request.params or {}), source.method.title)
    return comparison


def plan_addition(run: Run, request: ExtendRequest, target: TargetModel, *, apart: bool) -> Addition:
    """The lane that was asked for. ExplorerError says what stands in its way."""
    refuse_unfinished(run)
    source = source_of(run, request.lane)
    _refuse_other_model(source.trace.model, target.info)
    number = next(number for number in range(2, MAX_LANES + 3) if f"{source.method.name}-{number}" not in run.lanes)
    lane_id = source.method.name if source.method.name not in run.lanes else f"{source.method.name}-{number}"
    if request.force is not None:
        added = _forced(run, source, request.lane, request.force, target, lane_id)
    else:
        added = _rerun(run, source, request, lane_id)
    _refuse_unfit(added, target)
    return Addition(
        added.plan, added.prompt, added.subtitle, added.branch.model_copy(update={"apart": apart}), added.given
    )


def _plan(run: Run, source: Source, lane: LanePlan) -> Plan:
    raw = not source.trace.prompt.template_applied
    return Plan(run.prompt, raw, (lane,), source.max_new_tokens, source.sampling)


def _forced(run: Run, source: Source, lane: str, force: ForcedToken, target: TargetModel, lane_id: str) -> Addition:
    place = place_of(source.trace, force.step, force.node)
    chosen = _chosen(force, place, target)
    given, output = (*place.before, *chosen), [token.id for token in source.trace.tokens]
    _refuse_unknown(given, target)
    same = next((at for at, pair in enumerate(zip(given, output, strict=False)) if pair[0] != pair[1]), len(output))
    position = min(same, len(place.before))
    branch = Branch(kind="forced", lane=lane, step=force.step, position=position, token_ids=given[position:])
    whole = target.texts.decode(given[position:])
    pieces = "".join(target.texts.show(token) for token in given[position:])
    text = quoted(pieces if UNFINISHED in whole else whole, 28)
    plan = _plan(run, source, LanePlan(lane_id, source.method, source.params))
    words = [f"branch of {source.title} at token {position + 1}: {text}", source.method.subtitle(source.params)]
    return Addition(plan, source.trace.prompt, " · ".join(filter(None, words)), branch, given)


def _chosen(force: ForcedToken, place: Place, target: TargetModel) -> tuple[int, ...]:
    """The tokens to go on with."""
    if force.text is not None:
        whole = force.text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        tokens = target.tokenizer(whole, add_special_tokens=False, verbose=False)["input_ids"] if whole else []
        if not tokens:
            raise ExplorerError("The text to go on with is empty; type some.")
        if len(tokens) > MAX_FORCED:
            raise ExplorerError(f"The text has {len(tokens)} tokens; a branch goes on with {MAX_FORCED} at most.")
        return tuple(tokens)
    return (place.token_id if force.token_id is None else force.token_id,)


def _rerun(run: Run, source: Source, request: ExtendRequest, lane_id: str) -> Addition:
    before = source.params.model_dump()
    params = parse(source.method.Params, before | dict(request.params or {}), source.method.title)
    after = params.model_dump()
    titles = {field["name"]: field["title"] for field in describe(source.method.Params)}
    changed = {name: value for name, value in before.items() if after[name] != value}
    told = ", ".join(f"{titles[name]} {after[name]}, not {value}" for name, value in changed.items())
    words = [f"{source.title} again, {told or 'nothing changed'}", source.method.subtitle(params)]
    plan = _plan(run, source, LanePlan(lane_id, source.method, params))
    prompt, given = source.trace.prompt, _given(source.trace)
    return Addition(plan, prompt, " · ".join(filter(None, words)), _rerun_of(source, request.lane, changed), given)


def _given(trace: Trace) -> tuple[int, ...]:
    """The beginning that a branch was given: run again, it goes on from the same one."""
    return tuple(token.id for token in trace.tokens if token.source in ("given", "forced"))


def _rerun_of(source: Source, lane: str, changed: dict[str, Any]) -> Branch:
    """A branch that is run again stays a branch of the same place."""
    if source.trace.branch is not None and source.trace.branch.kind == "forced":
        return source.trace.branch.model_copy(update={"changed": changed})
    return Branch(kind="rerun", lane=lane, changed=changed)


def _refuse_other_model(recorded: ModelInfo, here: ModelInfo) -> None:
    def identity(info: ModelInfo) -> tuple[object, ...]:
        return info.id, info.revision, info.sha256, info.dtype

    def words(info: ModelInfo) -> str:
        return f"{str(getattr(info, 'label', None) or info.id)[:80]} in {info.dtype[:20]}"

    if identity(recorded) != identity(here):
        raise ExplorerError(f"The lane ran on {words(recorded)}, but {words(here)} answers here, so it cannot go on.")


def _refuse_unfit(added: Addition, target: TargetModel) -> None:
    """A recording may hold any numbers as tokens."""
    ends = next((place for place, token in enumerate(added.given) if token in target.end_token_ids), None)
    _refuse_unknown(added.context, target)
    if not added.prompt.token_ids:
        raise ExplorerError("The recording does not hold the prompt's tokens, so it cannot go on.")
    if ends is not None:
        raise ExplorerError(f"Token {ends + 1} ends the output, so nothing comes after it; choose another one.")
    if added.budget < 1:
        raise ExplorerError(
            f"The output would have {len(added.given)} tokens already, and the run's limit is "
            f"{added.plan.max_new_tokens}; go on from an earlier token, or with a shorter text."
        )
    if len(added.context) >= target.context_tokens:
        raise ExplorerError(f"The model's context of {target.context_tokens:,} tokens is full there.")


def _refuse_unknown(tokens: Sequence[int], target: TargetModel) -> None:
    if not all(0 <= token < target.vocabulary_tokens for token in tokens):
        raise ExplorerError(f"The model knows {target.vocabulary_tokens:,} tokens, and one of these is none of them.")


def joined(comparison: Comparison | None, trace: Trace) -> Comparison:
    """The comparison with one more lane.

    A forced token leads elsewhere by the viewer's wish, so such a lane is compared with nothing, unless it is equal.
    """
    if comparison is None:
        return Comparison(lanes=(trace,))
    lossless = dict(comparison.lossless)
    reference = baseline_of(comparison.lanes)
    sampling = trace.params.get("sampling", {})
    if reference is not None and not sampling.get("temperature") and reference.stop_reason in ("eos", "length"):
        check = compare_outputs(reference, trace)
        forced = trace.branch is not None and trace.branch.kind == "forced"
        if check.equal or not forced:
            lossless[trace.lane] = check
    return comparison.model_copy(update={"lanes": (*comparison.lanes, trace), "lossless": lossless})
