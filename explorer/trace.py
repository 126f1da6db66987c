"""The trace: frozen records of what a lane really did. Data only: no tensors, no model, no clock.

The names are the schema that the page, the command line and downloaded files rely on (docs/trace.md).
Probabilities are plain probabilities, never logarithms; non-finite numbers are refused, so that a
trace is always valid JSON. Times are milliseconds on the lane's own clock.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

SCHEMA_VERSION: Literal[1] = 1

NodeStatus = Literal["root", "accepted", "rejected", "unreached"]
StopReason = Literal["eos", "length", "cancelled", "error"]
TokenSource = Literal["prefill", "draft", "target"]
Origin = Literal["argmax", "sample", "residual"]


def round_probability(value: float) -> float:
    """Six significant digits: enough for every picture, and a third of the bytes."""
    return float(f"{value:.6g}")


Probability = Annotated[float, AfterValidator(round_probability), Field(ge=0.0, le=1.000001)]
Milliseconds = Annotated[float, AfterValidator(lambda value: round(value, 4)), Field(ge=0.0)]


class Record(BaseModel):
    """Base of all records: immutable, finite numbers only, unknown fields kept."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False, protected_namespaces=())


class TopToken(Record):
    """One of the target's few best tokens after a node."""

    token_id: int
    text: str
    prob: Probability


class Decision(Record):
    """What the acceptance rule saw when it judged a node."""

    rule: str
    wanted: int | None = None
    """Token id that the target chose here: the draft that carries it is accepted."""
    threshold: float | None = None
    ratio: float | None = None
    draw: float | None = None


class Node(Record):
    """A candidate of one step. Node 0 is the root: the token decided last, not cached yet."""

    id: int = Field(ge=0)
    parent: int | None
    depth: int = Field(ge=0)
    token_id: int = Field(ge=0)
    text: str
    rank: int | None = None
    """Place among its siblings' proposals, 0 is the drafter's favourite."""
    source: str
    """Which drafter proposed it: root, medusa, eagle, pool, ..."""
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


class NextToken(Record):
    """The target's own token at the end of the accepted path (the bonus token)."""

    token_id: int = Field(ge=0)
    text: str
    origin: Origin
    probability: Probability
    margin: float = Field(ge=0.0)
    """Best minus second-best logit where the token was chosen."""


class Span(Record):
    """A measured phase on the lane's own clock."""

    phase: str
    start_ms: Milliseconds
    duration_ms: Milliseconds


class Step(Record):
    """One turn of the loop: propose, verify, accept, commit. One target pass."""

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


class ModelInfo(Record):
    """Which target ran, and where."""

    id: str
    revision: str | None = None
    sha256: str | None = None
    dtype: str
    device: str
    parameters: int


class DrafterInfo(Record):
    """Which trained drafter proposed."""

    id: str
    parameters: int
    bytes: int
    target_sha256: str | None = None


class Branch(Record):
    """Where a forced lane came from."""

    lane: str
    step: int
    node: int
    token_id: int


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
        if len(committed.get(None, ())) > 1 or any(step is not None and step >= len(self.steps) for step in committed):
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
