"""The reel: the light value that streams to the player, grown from events. docs/design/reel.md is the contract.

Lists only grow at their ends, so that what travels per step is that step. Figures are not in here: the player
asks for them (explorer/figures/serve.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from explorer.events import Ended, Event, Extended, LaneEnded, LaneHeader, Prefilled, Started, Stepped
from explorer.figures import FIGURES
from explorer.figures.labels import logits, plural
from explorer.metrics import BASELINE, drafts_kept, is_tie, step_ms
from explorer.narrate import narrate
from explorer.runs import LaneRecord, Run
from explorer.trace import GIVEN, LosslessCheck, ModelInfo, OutputToken, Step, Trace

SCHEMA = 1

RULES = {
    "greedy": "match",
    "speculative": "speculative sampling",
    "typical": "typical acceptance",
    "top-k": "top-k match",
    "prefix": "match by prefix",
    "block": "match by block",
}
"""Acceptance rules in words."""


@dataclass
class _Lane:
    """What is kept of a lane between two values."""

    record: LaneRecord
    given: list[list[Any]] = field(default_factory=list)
    first: list[Any] | None = None
    state: str = "waiting"
    steps: list[dict[str, Any]] = field(default_factory=list)
    views: list[str] = field(default_factory=list)
    asides: list[str] = field(default_factory=list)
    clock_ms: float = 0.0
    decode_ms: float = 0.0
    step_tokens: int = 0

    @property
    def ms_per_token(self) -> float | None:
        """Decode milliseconds per token that steps committed; None before the first."""
        return self.decode_ms / self.step_tokens if self.step_tokens and self.decode_ms > 0 else None


class Reel:
    """Folds events into the run and into the light value."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._lanes: dict[str, _Lane] = {}

    @classmethod
    def resumed(cls, run: Run) -> Reel:
        """A reel of a finished run as it stands, for what is added to it."""
        reel = cls(run)
        reel._lanes = {lane: _resumed(record) for lane, record in run.lanes.items()}
        return reel

    def apply(self, event: Event) -> None:
        """Fold one event in, into the run too."""
        self._run.apply(event)
        match event:
            case Started():
                self._lanes = {lane: _Lane(record) for lane, record in self._run.lanes.items()}
            case Extended():
                self._lanes[event.header.lane] = _Lane(self._run.lanes[event.header.lane])
            case Prefilled():
                _begin(self._lanes[event.lane], (*event.given, event.token))
            case Stepped():
                _add_step(self._lanes[event.lane], event.step, event.tokens)
            case LaneEnded():
                self._lanes[event.trace.lane].state = _lane_state(event.trace)
            case Ended():
                for lane in self._lanes.values():
                    if lane.state in ("waiting", "running"):
                        lane.state = "error" if event.state == "error" else "cancelled"

    @property
    def value(self) -> dict[str, Any]:
        """The value now: a new dict with new lists, so that two values can be compared."""
        run = self._run
        return {
            "schema": SCHEMA,
            "run": run.id,
            "continues": run.continues,
            "state": run.state,
            "message": run.message,
            "progress": self._progress(),
            "prompt": run.prompt,
            "model": self._model_line(),
            "settings": run.settings,
            "max_tokens": run.max_new_tokens,
            "titles": {view.name: view.title for view in FIGURES},
            "lanes": [self._lane_value(lane) for lane in self._lanes.values()],
        }

    def _lane_value(self, lane: _Lane) -> dict[str, Any]:
        header = lane.record.header
        check = self._run.lossless.get(header.lane)
        return {
            "id": header.lane,
            "method": header.method,
            "title": header.title,
            "subtitle": header.subtitle,
            "state": lane.state,
            "rule": rule_mark(header),
            "badge": badge(header, lane.state, check, self._compared(lane)),
            "parts_at": None if check is None else check.first_difference,
            "counters": self._counters(lane),
            "views": list(lane.views),
            "asides": list(lane.asides),
            "apart": header.apart,
            "given": list(lane.given),
            "first": lane.first,
            "prefill_ms": round(sum(span.duration_ms for span in lane.record.prefill), 3),
            "steps": list(lane.steps),
        }

    def _compared(self, lane: _Lane) -> int:
        """Tokens that were compared with the baseline's: what only one of the two has decoded says nothing."""
        plain = [other for other in self._lanes.values() if is_baseline(other.record.header)]
        return min(len(each.record.tokens) for each in (lane, *plain))

    def _counters(self, lane: _Lane) -> dict[str, Any]:
        passes = len(lane.steps)
        return {
            "tokens": lane.step_tokens + (lane.first is not None),
            "passes": passes,
            "per_pass": round(lane.step_tokens / passes, 8) if passes else 0.0,
            "clock_ms": round(lane.clock_ms, 3),
            "speedup": self._speedup(lane),
        }

    def _speedup(self, lane: _Lane) -> float | None:
        """Decode time per token of the baseline lane over this lane's, on what both have done so far."""
        if lane.record.header.apart:
            return None
        reference = next((other for other in self._lanes.values() if is_baseline(other.record.header)), None)
        slow, fast = reference.ms_per_token if reference else None, lane.ms_per_token
        return round(slow / fast, 8) if slow and fast else None  # shown with two digits, rounded once

    def _progress(self) -> float | None:
        """Share of the preparation, then of the tokens; a lane that has ended counts as whole."""
        run = self._run
        if run.state == "preparing":
            return run.fraction
        if run.state != "running" or not self._lanes or not run.max_new_tokens:
            return None
        lanes = list(self._lanes.values())
        added = lanes[-1].record.header.branch is not None  # then the others ended long ago
        shares = [
            1.0 if lane.state not in ("waiting", "running") else len(lane.record.tokens) / run.max_new_tokens
            for lane in (lanes[-1:] if added else lanes)
        ]
        return round(min(sum(shares) / len(shares), 1.0), 4)

    def _model_line(self) -> str:
        lane = next(iter(self._lanes.values()), None)
        return model_line(lane.record.header.model) if lane else ""


def _resumed(record: LaneRecord) -> _Lane:
    """A lane that has ended, as its events left it."""
    lane = _Lane(record, state="cancelled")
    loose = [token for token in record.tokens if token.step is None]
    if record.trace is None or all(token.source in GIVEN for token in loose):
        return lane
    _begin(lane, loose)
    for step in record.steps:
        _add_step(lane, step, tuple(token for token in record.tokens if token.step == step.index))
    lane.state = _lane_state(record.trace)
    return lane


def _begin(lane: _Lane, tokens: Iterable[OutputToken]) -> None:
    """What a branch was given, and the token that the prefill gave."""
    *given, first = tokens
    lane.given = [[token.text, token.source, token.id] for token in given]
    lane.state, lane.first = "running", [first.text, first.id]
    lane.clock_ms = max((span.start_ms + span.duration_ms for span in lane.record.prefill), default=0.0)


def _lane_state(trace: Trace) -> str:
    return {"cancelled": "cancelled", "error": "error"}.get(trace.stop_reason, "done")


def _add_step(lane: _Lane, step: Step, tokens: tuple[OutputToken, ...]) -> None:
    """Append a light step, and the views that it is the first to have."""
    lane.clock_ms = max((span.start_ms + span.duration_ms for span in step.spans), default=lane.clock_ms)
    lane.decode_ms += step_ms(step)
    lane.step_tokens += len(step.committed)
    lane.steps.append(light_step(lane.record.header, step, tokens, lane.clock_ms))
    for view in FIGURES:
        names = lane.asides if view.place == "aside" else lane.views
        if view.name not in names and view.applies(step):
            names.append(view.name)


def light_step(header: LaneHeader, step: Step, tokens: tuple[OutputToken, ...], clock_ms: float) -> dict[str, Any]:
    """What the player shows of a step before any figure has been fetched."""
    drafts = drafts_kept(step)
    nodes: list[int | None] = [*step.accepted[:drafts], *([None] * (len(tokens) - drafts))]
    return {
        "t": [[token.text, token.source, token.id, node] for token, node in zip(tokens, nodes, strict=False)],
        "ms": round(clock_ms, 3),
        "d": len(step.nodes) - 1,
        "a": drafts,
        "say": narrate(header, step),
    }


def is_baseline(header: LaneHeader) -> bool:
    """Is it the lane that the others are measured against? A branch of it is not."""
    return header.method == BASELINE and header.branch is None


def rule_mark(header: LaneHeader) -> dict[str, Any] | None:
    """Is the lane's acceptance rule lossless? In a word, and what that means; None for the baseline."""
    if header.method == BASELINE:
        return None
    sampled = bool(header.params.get("temperature"))
    name = RULES.get(str(header.params.get("acceptance_rule", "")), "")
    if name == "match":
        name = "sample match" if sampled else "greedy match"
    if not header.lossless:
        meaning = (
            "the rule also accepts drafts that the target would not have chosen, so the output may differ by design"
        )
    elif sampled:
        meaning = "every token has exactly the distribution that plain sampling gives it; single outputs may differ"
    else:
        meaning = (
            "a draft is kept only where it is the target's own choice, so the output must be that of plain decoding"
        )
    title = f"{name}: {meaning}." if name else f"{meaning[0].upper()}{meaning[1:]}."
    return {
        "lossless": header.lossless,
        "text": "lossless" if header.lossless else "not lossless",
        "title": title[0].upper() + title[1:],
    }


def badge(header: LaneHeader, state: str, check: LosslessCheck | None, tokens: int) -> dict[str, str]:
    """Does the lane's output equal the baseline's? In a word for the player and in words for people."""
    if is_baseline(header) and check is None:
        return {"kind": "baseline", "text": "baseline"}
    if check is None:
        if is_forced(header):
            return {"kind": "branch", "text": _branched(state)}
        if not header.lossless:
            return {"kind": "lossy", "text": "may differ by design"}
        return {"kind": "pending", "text": _uncompared(header, state)}
    if check.equal:
        so_far = " so far" if state in ("cancelled", "error") else ""
        return {"kind": "equal", "text": f"same {plural(tokens, 'token')}{so_far}"}
    where = f"from token {(check.first_difference or 0) + 1} on"
    margin = "" if check.margin is None else f", logit margin {logits(check.margin)}"
    if not header.lossless:
        return {"kind": "lossy", "text": f"differs {where}, as this rule may{margin}"}
    if is_tie(check, header.model.dtype):
        return {"kind": "tie", "text": f"a near-tie, decided by rounding: differs {where}{margin}"}
    return {"kind": "differs", "text": f"differs {where}{margin}"}


def is_forced(header: LaneHeader) -> bool:
    """Does the lane go on from tokens that a viewer chose?"""
    return header.branch is not None and header.branch.kind == "forced"


def _branched(state: str) -> str:
    """Of a lane that goes its own way by a viewer's wish, and so is compared with nothing."""
    if state in ("waiting", "running"):
        return "a branch: a text of its own"
    return "a text of its own; not compared"


def _uncompared(header: LaneHeader, state: str) -> str:
    """Why there is no verdict (yet)."""
    if state in ("waiting", "running"):
        return "compared when it has ended"
    if header.params.get("temperature"):
        return "sampled: equal in distribution"
    return "not compared"


def model_line(model: ModelInfo) -> str:
    """Which model ran where, in one line. `label` and `threads` are shown where the record has them."""
    name = str(getattr(model, "label", None) or model.id.rsplit("/", 1)[-1])[:80]
    device = {"cpu": "CPU", "cuda": "GPU"}.get(model.device.split(":")[0], model.device)
    threads = getattr(model, "threads", None)
    where = f"{device}, {plural(threads, 'thread')}" if isinstance(threads, int) and threads > 0 else device
    return f"{name} · {model.dtype} · {where}"


def reel_of(run: Run, events: Iterable[Event]) -> Reel:
    """A reel with all events folded in: for recordings."""
    reel = Reel(run)
    for event in events:
        reel.apply(event)
    return reel
