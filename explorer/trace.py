"""The trace: frozen records of what a lane really did. Data only: no tensors, no model, no clock.

The names are the schema that the page, the command line and downloaded files rely on (docs/trace.md).
Probabilities are plain probabilities, never logarithms; non-finite numbers are refused, so that a
trace is always valid JSON. Times are milliseconds on the lane's own clock.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

SCHEMA_VERSION: Literal[1] = 1

NodeStatus = Literal["root", "accepted", "rejected", "unreached"]
StopReason = Literal["eos", "length", "cancelled", "error"]
TokenSource = Literal["given", "forced", "prefill", "draft", "target"]
GIVEN: tuple[TokenSource, ...] = ("given", "forced")
"""Sources of tokens that the lane did not decode: the beginning of a branch."""
Origin = Literal["argmax", "sample", "residual"]


def round_probability(value: float) -> float:
    """Six significant digits: enough for every picture, and a third of the bytes."""
    return float(f"{value:.6g}")


# bounds first: behind a function they are checked by functions too, twice as slowly
Probability = Annotated[float, Field(ge=0.0, le=1.000001), AfterValidator(round_probability)]
Milliseconds = Annotated[float, Field(ge=0.0), AfterValidator(lambda value: round(value, 4))]


class Record(BaseModel):
    """Base of all records: immutable, finite numbers only, unknown fields kept."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False, protected_namespaces=())


class Sparse(Record):
    """A record that many nodes have: fields of `OMITTED` that are null are left out of the JSON."""

    OMITTED: ClassVar[frozenset[str]] = frozenset()

    @model_serializer(mode="wrap")
    def _without_nulls(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values: dict[str, Any] = handler(self)
        return {name: value for name, value in values.items() if value is not None or name not in self.OMITTED}


class TopToken(Record):
    """One of the target's few best tokens after a node."""

    token_id: int
    text: str
    prob: Probability


class Decision(Sparse):
    """What the acceptance rule saw when it judged a node."""

    OMITTED = frozenset(
        {"accepted", "target_prob", "draft_prob", "residual_mass", "entropy", "top_k"}
    )  # threshold, ratio and draw are always there

    rule: str
    accepted: bool | None = None
    """What the rule said of this node alone; null where being on the path says it."""
    wanted: int | None = None
    """Token id that the target chose here: the draft that carries it is accepted."""
    target_prob: float | None = None
    """The target's probability as the rule saw it: processed, and after earlier siblings' rejections."""
    draft_prob: float | None = None
    """The drafter's probability as the rule saw it; 1 for a draft that was not drawn but simply proposed."""
    ratio: float | None = None
    """Chance of acceptance: min(1, target_prob / draft_prob)."""
    draw: float | None = None
    """The uniform number that was drawn: accepted where it is under the ratio."""
    residual_mass: float | None = None
    """After a rejection: what was left of the target's distribution before it was renormalised."""
    threshold: float | None = None
    """Typical acceptance: the target_prob that was needed."""
    entropy: float | None = None
    """Of the target's distribution after the parent, in nats."""
    top_k: int | None = None
    """Top-k match: how many of the target's best tokens were allowed."""


class Node(Sparse):
    """A candidate of one step. Node 0 is the root: the token decided last, not cached yet."""

    OMITTED = frozenset({"also"})

    id: int = Field(ge=0)
    parent: int | None
    depth: int = Field(ge=0)
    token_id: int = Field(ge=0)
    text: str
    rank: int | None = None
    """Place among its siblings' proposals, 0 is the drafter's favourite."""
    source: str
    """Which drafter proposed it: root, medusa, eagle, pool, ..."""
    also: str | None = None
    """Another drafter that proposed the same node in the same pass."""
    draft_prob: Probability | None = None
    """The drafter's probability of this token given its parent."""
    score: Probability | None = None
    """Product of draft_prob along the path: what dynamic trees rank by."""
    target_prob: Probability | None = None
    """The target's probability of this token after its parent; null for the root."""
    target_top: tuple[TopToken, ...] = ()
    """The target's best tokens after this node."""
    status: NodeStatus
    decision: Decision | None = None


class NextToken(Sparse):
    """The target's own token at the end of the accepted path (the bonus token)."""

    OMITTED = frozenset({"residual"})

    token_id: int = Field(ge=0)
    text: str
    origin: Origin
    probability: Probability
    margin: float = Field(ge=0.0)
    """Best minus second-best logit where the token was chosen."""
    residual: tuple[TopToken, ...] | None = None
    """Where it was drawn after rejections: the likeliest tokens of what these left of the target's distribution."""


class Span(Record):
    """A measured phase on the lane's own clock."""

    phase: str
    start_ms: Milliseconds
    duration_ms: Milliseconds


class Draft(Record):
    """A draft that was weighed, and what was expected of it."""

    rows: int = Field(ge=1)
    """Rows of the target pass, root included."""
    expected_tokens: float
    expected_ms: float = Field(ge=0.0)


class SizeChoice(Sparse):
    """How much a lane with `size: auto` drafted in a step, and why; see explorer/sizing.py."""

    OMITTED = frozenset({"declined"})

    nodes: int = Field(ge=0)
    """The method's own drafts that it had verified."""
    depth: int = Field(ge=0)
    """Levels that it drafted; 0: none."""
    branch_tokens: int = Field(ge=0)
    """Tokens of the context branch."""
    expected_tokens: float
    expected_ms: float = Field(ge=0.0)
    plain_ms: float = Field(ge=0.0)
    """A step that drafts nothing."""
    calibration: float = Field(ge=0.0)
    """Accepted drafts per unit of verified score, before this step."""
    probing: bool = False
    """Drafting did not pay lately, or was not tried yet, and was tried in this step."""
    declined: Draft | None = None
    """Where none of the method's drafts was verified: the best that it had last, which does not pay."""


class Step(Sparse):
    """One turn of the loop: propose, verify, accept, commit. One target pass."""

    OMITTED = frozenset({"size"})

    index: int = Field(ge=0)
    nodes: tuple[Node, ...] = Field(min_length=1)
    accepted: tuple[int, ...]
    """Node ids of the accepted path below the root, top down."""
    committed: tuple[int, ...]
    """Token ids added to the output: accepted drafts, then the target's own token, cut at the end."""
    next_token: NextToken
    spans: tuple[Span, ...]
    cache_length: int = Field(ge=0)
    payload: dict[str, Any] | None = None
    """{kind, ...}: what the method alone knows; see explorer/payloads.py. Unknown kinds are kept."""
    size: SizeChoice | None = None
    """Lanes whose size is `auto` only."""

    @model_validator(mode="after")
    def _consistent(self) -> Step:
        for place, node in enumerate(self.nodes):
            if node.id != place:
                raise ValueError(f"step {self.index}: node ids must be 0, 1, 2, ... in order")
            if (node.parent is None) != (place == 0) or (node.parent is not None and node.parent >= place):
                raise ValueError(f"step {self.index}: node {place} must name an earlier node as its parent")
        if any(not 0 < node < len(self.nodes) for node in self.accepted):
            raise ValueError(f"step {self.index}: an accepted node does not exist")
        return self


class OutputToken(Record):
    """A token of the output; the texts joined give the decoded output exactly."""

    id: int = Field(ge=0)
    text: str
    step: int | None
    source: TokenSource


class Prompt(Record):
    """The prompt as the model saw it."""

    text: str
    template_applied: bool
    token_ids: tuple[int, ...]


class ModelShape(Record):
    """Sizes of the target that the cost of a pass depends on; see explorer/footprint.py."""

    pass_parameters: int = Field(gt=0)
    """Parameters that a pass reads: an input embedding that is not the output head too is left out."""
    layers: int = Field(ge=0)
    attention_size: int = Field(ge=0)
    """Width of the queries of all heads together."""
    cache_values: int = Field(ge=0)
    """Numbers that a position has in the cache, keys and values of all layers."""


class ModelInfo(Sparse):
    """Which target ran, and where."""

    OMITTED = frozenset({"shape", "memory_gb_s"})

    id: str
    revision: str | None = None
    sha256: str | None = None
    dtype: str
    device: str
    parameters: int
    shape: ModelShape | None = None
    memory_gb_s: float | None = Field(None, gt=0.0)
    """Rate at which this machine read memory when the model was loaded, 10^9 bytes a second."""


class DrafterInfo(Sparse):
    """Which trained drafter proposed."""

    OMITTED = frozenset({"pass_parameters", "layers"})

    id: str
    parameters: int
    bytes: int
    target_sha256: str | None = None
    pass_parameters: int | None = Field(None, ge=0)
    """Parameters that one draft pass reads, borrowed rows of the target's output head included."""
    layers: int | None = Field(None, ge=0)
    """Layers that it runs through, one after another."""


class Branch(Sparse):
    """What a lane was made from that was added to a finished comparison."""

    OMITTED = frozenset({"step", "position", "token_ids", "changed"})

    kind: Literal["forced", "rerun"]
    """forced: goes on from a beginning of `lane`'s output and tokens that a viewer chose. rerun: `lane` once more."""
    lane: str
    """Id of the lane that it was made from."""
    step: int | None = Field(None, ge=0)
    """forced: the step of `lane` in which the tokens were chosen."""
    position: int | None = Field(None, ge=0)
    """forced: place in the output of the first token that was chosen, from 0."""
    token_ids: tuple[int, ...] | None = None
    """forced: the tokens that were chosen."""
    changed: dict[str, Any] | None = None
    """rerun: parameters whose values differ, with the values that they have in `lane`."""
    apart: bool = False
    """Its milliseconds were not measured on the occasion, and perhaps not on the machine, of the lanes beside it."""


class Prefill(Record):
    """Phases before the first step: prefill, and drafter-prefill where there is one."""

    spans: tuple[Span, ...]


class Totals(Record):
    """The numbers of a lane; defined in explorer/metrics.py."""

    output_tokens: int = Field(ge=0)
    target_passes: int = Field(ge=0)
    draft_passes: int = Field(ge=0)
    tokens_per_target_pass: float = Field(ge=0.0)
    drafted_nodes: int = Field(ge=0)
    accepted_drafts: int = Field(ge=0)
    prefill_ms: float = Field(ge=0.0)
    decode_ms: float = Field(ge=0.0)
    tokens_per_second: float = Field(ge=0.0)


class Trace(Record):
    """Everything one lane did, from prompt to stop."""

    schema_version: Literal[1] = SCHEMA_VERSION
    lane: str
    method: str
    model: ModelInfo
    drafter: DrafterInfo | None = None
    params: dict[str, Any]
    """The method's parameters as run, then seed, temperature, top_k, top_p and the acceptance rule."""
    branch: Branch | None = None
    prompt: Prompt
    tokens: tuple[OutputToken, ...]
    steps: tuple[Step, ...]
    prefill: Prefill
    stop_reason: StopReason
    error: str | None = None
    totals: Totals

    @model_validator(mode="after")
    def _adds_up(self) -> Trace:
        committed: dict[int | None, list[int]] = {}
        for token in self.tokens:
            committed.setdefault(token.step, []).append(token.id)
        for place, step in enumerate(self.steps):
            if step.index != place:
                raise ValueError(f"lane {self.lane}: steps must be numbered 0, 1, 2, ... in order")
            if list(step.committed) != committed.get(place, []):
                raise ValueError(f"lane {self.lane}: step {place} committed other tokens than the output has")
        given = sum(token.source in GIVEN for token in self.tokens)
        if any(token.step is not None or token.source not in GIVEN for token in self.tokens[:given]):
            raise ValueError(f"lane {self.lane}: tokens that were given must come before all others")
        decoded = [token for token in self.tokens[given:] if token.step is None]
        if len(decoded) > 1 or any(step is not None and step >= len(self.steps) for step in committed):
            raise ValueError(f"lane {self.lane}: an output token belongs to no step")
        return self


class LosslessCheck(Record):
    """Does this lane's output equal the autoregressive lane's, token for token?"""

    equal: bool
    first_difference: int | None = None
    """Position in the output of the first difference."""
    margin: float | None = None
    """Logit margin of the autoregressive lane there: near zero means a rounding tie."""


class Comparison(Record):
    """Lanes that ran on one prompt."""

    schema_version: Literal[1] = SCHEMA_VERSION
    lanes: tuple[Trace, ...] = Field(min_length=1)
    lossless: dict[str, LosslessCheck] = {}

    @model_validator(mode="after")
    def _distinct(self) -> Comparison:
        if len({trace.lane for trace in self.lanes}) < len(self.lanes):
            raise ValueError("two lanes have the same id")
        if not set(self.lossless) <= {trace.lane for trace in self.lanes}:
            raise ValueError("lossless names a lane that does not exist")
        return self
