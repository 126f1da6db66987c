"""The numbers of a lane, each defined once. Pure functions over records.

The first output token comes from the prefill and belongs to no pass. A target pass is a step. Times are
milliseconds on the lane's own clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from explorer.trace import LosslessCheck, OutputToken, Span, Step, Totals, Trace

BASELINE = "autoregressive"
"""The method whose lane the others are measured against."""

TIE_MARGIN = 1e-3
"""Below this logit margin two tokens are as good as equal, and rounding decides between them."""
TIE_MARGINS = {"float32": TIE_MARGIN, "float16": 0.1, "bfloat16": 0.75}
"""Below this logit margin rounding decides: passes of different widths round differently, in every layer.

Measured on the default model (docs/design/rounding.md): between a pass over one row and passes over 2 to 64 rows the
distance of the two best logits changed by 0.75 at most in bfloat16, and by 0.00008 in float32. float16 keeps three bits
more than bfloat16, so an eighth of its bound.
"""


def totals(steps: Sequence[Step], tokens: Sequence[OutputToken], prefill: Sequence[Span], draft_passes: int) -> Totals:
    """All numbers of a lane, finished or not."""
    step_tokens = sum(len(step.committed) for step in steps)
    decode_ms = sum(map(step_ms, steps))
    return Totals(
        output_tokens=len(tokens),
        target_passes=len(steps),
        draft_passes=draft_passes,
        tokens_per_target_pass=step_tokens / len(steps) if steps else 0.0,
        drafted_nodes=sum(len(step.nodes) - 1 for step in steps),
        accepted_drafts=sum(map(drafts_kept, steps)),
        prefill_ms=sum(span.duration_ms for span in prefill),
        decode_ms=decode_ms,
        tokens_per_second=step_tokens / decode_ms * 1000.0 if decode_ms > 0 else 0.0,
    )


def step_ms(step: Step) -> float:
    """Wall time of a step: its spans, since nothing but recording runs outside them."""
    return sum(span.duration_ms for span in step.spans)


def phase_ms(step: Step, phase: str) -> float:
    """Wall time of one phase of a step."""
    return sum(span.duration_ms for span in step.spans if span.phase == phase)


def drafts_kept(step: Step) -> int:
    """Accepted drafts that reached the output: the end of the output may cut some off."""
    return min(len(step.accepted), len(step.committed))


def acceptance_length(steps: Sequence[Step]) -> float | None:
    """1 + accepted drafts over passes, cut ones included: what serving engines call mean acceptance length."""
    return 1.0 + sum(len(step.accepted) for step in steps) / len(steps) if steps else None


def accepted_of_depth(steps: Sequence[Step]) -> float | None:
    """Accepted drafts over the summed depths of the trees; None where nothing was drafted."""
    depths = sum(max(node.depth for node in step.nodes) for step in steps)
    return sum(len(step.accepted) for step in steps) / depths if depths else None


@dataclass(frozen=True)
class Depth:
    """What a lane did at one depth."""

    depth: int
    tried: int
    """Steps that had at least one draft of this depth verified."""
    tested: int
    """Those among them whose path reached the parent of such a draft."""
    accepted: int
    """Steps that accepted one of them."""
    nodes: int
    """Drafts of this depth, all steps together."""

    @property
    def share(self) -> float:
        """Accepted over tried."""
        return self.accepted / self.tried

    @property
    def tested_share(self) -> float:
        """Accepted over tested; 0 where none was."""
        return self.accepted / self.tested if self.tested else 0.0


def by_depth(steps: Sequence[Step]) -> list[Depth]:
    """A line per depth at which something was drafted. Drafts that the end of the output cut off were accepted."""
    counts: dict[int, list[int]] = {}
    for step in steps:
        path = {0, *step.accepted}
        own: dict[int, list[int]] = {}
        for node in step.nodes[1:]:
            _, tested, accepted, nodes = own.get(node.depth, [0, 0, 0, 0])
            reached = node.parent in path
            own[node.depth] = [1, tested or int(reached), accepted or int(node.id in path), nodes + 1]
        for depth, found in own.items():
            counts[depth] = [a + b for a, b in zip(counts.get(depth, [0] * 4), found, strict=True)]
    return [Depth(depth, *counts[depth]) for depth in sorted(counts)]


def accepted_of_tested(steps: Sequence[Step]) -> float | None:
    """Of the places where drafts were tested, those where one was accepted; None where none was tested.

    A place is a depth of a step whose parent was on the path: what is below a rejected draft is not tested.
    """
    depths = by_depth(steps)
    tested = sum(each.tested for each in depths)
    return sum(each.accepted for each in depths) / tested if tested else None


def pooled_tokens_per_pass(traces: Sequence[Trace]) -> float:
    """All tokens over all passes, each run's last step left out, because it is cut. 0 where nothing is left."""
    kept = [step for trace in traces for step in trace.steps[:-1]]
    return sum(len(step.committed) for step in kept) / len(kept) if kept else 0.0


def ms_per_token(steps: Sequence[Step]) -> float | None:
    """Decode milliseconds per token that the steps committed; None before the first one."""
    step_tokens = sum(len(step.committed) for step in steps)
    decode_ms = sum(map(step_ms, steps))
    return decode_ms / step_tokens if step_tokens and decode_ms > 0 else None


def speedup(reference: Trace, other: Trace) -> float | None:
    """How many times faster a token comes than in the reference lane, prefill left out; None where unknown."""
    if other.branch is not None and other.branch.apart:
        return None  # measured on another occasion than the reference
    slow, fast = ms_per_token(reference.steps), ms_per_token(other.steps)
    return slow / fast if slow and fast else None


def baseline_of(traces: Iterable[Trace]) -> Trace | None:
    """The lane that the others are measured against; a branch of it is not. None where there is none."""
    return next((trace for trace in traces if trace.method == BASELINE and trace.branch is None), None)


def compare_outputs(reference: Trace, other: Trace) -> LosslessCheck:
    """Are the outputs equal, token for token? Of a lane that was cancelled only the common part can be judged."""
    unfinished = any(trace.stop_reason in ("cancelled", "error") for trace in (reference, other))
    pairs = zip_longest((token.id for token in reference.tokens), (token.id for token in other.tokens))
    for position, (ours, theirs) in enumerate(pairs):
        if unfinished and (ours is None or theirs is None):
            break
        if ours != theirs:
            margin = _margin_at(reference, position)
            return LosslessCheck(equal=False, first_difference=position, margin=margin)
    return LosslessCheck(equal=True)


def _margin_at(reference: Trace, position: int) -> float | None:
    """Best minus second logit where the reference chose this token itself; None where that is not recorded."""
    if position >= len(reference.tokens):
        return None
    token = reference.tokens[position]
    if token.step is None or token.source != "target":
        return None
    step = next((step for step in reference.steps if step.index == token.step), None)
    return step.next_token.margin if step is not None else None


def is_tie(check: LosslessCheck, dtype: str) -> bool:
    """Did rounding decide where the outputs first differ? dtype: the model's, as its record names it."""
    return check.margin is not None and check.margin < TIE_MARGINS.get(dtype, TIE_MARGIN)
