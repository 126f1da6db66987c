"""What happens during a comparison, in order. Live runs, recorded files and tests speak the same events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from explorer.trace import Branch, Comparison, DrafterInfo, LosslessCheck, ModelInfo, OutputToken, Span, Step, Trace


@dataclass(frozen=True)
class CodeLine:
    """A line of a method's pseudocode."""

    phase: str
    """The phase of the trace that it belongs to."""
    text: str
    """Leading spaces indent it."""
    runs: str = ""
    """The steps in which it runs: a word of explorer/figures/code.py, or all that have the phase."""


@dataclass(frozen=True)
class LaneHeader:
    """What is known of a lane before it runs."""

    lane: str
    """Id, unique in the comparison."""
    method: str
    title: str
    """The method's title, for people."""
    subtitle: str
    """The parameters that matter, in a few words."""
    lossless: bool
    params: dict[str, Any]
    model: ModelInfo
    drafter: DrafterInfo | None
    code: tuple[CodeLine, ...] = ()
    """The method's pseudocode with these parameters; none of a method that is not known here."""
    branch: Branch | None = None
    """What it was made from, where it was added to a finished comparison."""

    @property
    def apart(self) -> bool:
        """Were its milliseconds measured on another occasion than those of the lanes beside it?"""
        return self.branch is not None and self.branch.apart


@dataclass(frozen=True)
class Queued:
    """Another run decodes on the device; `place` is 1 for the next one to start."""

    place: int


@dataclass(frozen=True)
class Preparing:
    """Model download, loading, warm-up, prefill: a sentence, and the share done where known (0 to 1)."""

    message: str
    fraction: float | None = None


@dataclass(frozen=True)
class Started:
    """All lanes are known; prefill is next."""

    headers: tuple[LaneHeader, ...]
    prompt: str
    """As typed."""
    max_new_tokens: int
    settings: str
    """Greedy or sampled, seed, template: in a few words."""


@dataclass(frozen=True)
class Extended:
    """A finished comparison gets one more lane; its prefill is next."""

    header: LaneHeader


@dataclass(frozen=True)
class Prefilled:
    """A lane has its first output token."""

    lane: str
    token: OutputToken
    spans: tuple[Span, ...]
    given: tuple[OutputToken, ...] = ()
    """The beginning of the output that a branch was given."""


@dataclass(frozen=True)
class Stepped:
    """A lane finished a step."""

    lane: str
    step: Step
    tokens: tuple[OutputToken, ...]
    """The output tokens of step.committed, with text and source."""
    more: bool = False
    """Was it written together with steps that follow at once?"""


@dataclass(frozen=True)
class LaneEnded:
    """A lane stopped; its whole trace, and the check against autoregressive where that lane has ended too."""

    trace: Trace


@dataclass(frozen=True)
class Checked:
    """The outputs were compared with the autoregressive lane's."""

    lossless: dict[str, LosslessCheck]


@dataclass(frozen=True)
class Ended:
    """The comparison is over: done, cancelled or error. `comparison` holds what was recorded, if anything."""

    state: str
    message: str
    comparison: Comparison | None


Event = Queued | Preparing | Started | Extended | Prefilled | Stepped | LaneEnded | Checked | Ended
