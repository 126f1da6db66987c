"""A recording made long: the steps of a real one over and over. To try the player with, never to read as a result."""

from __future__ import annotations

from collections.abc import Sequence

from explorer.metrics import totals
from explorer.trace import Comparison, Span, Trace


def repeated(comparison: Comparison, steps: int, lanes: Sequence[str]) -> Comparison:
    """The named lanes of the comparison, each of that many steps."""
    return Comparison(lanes=tuple(_longer(trace, steps) for trace in comparison.lanes if trace.lane in lanes))


def _longer(trace: Trace, steps: int) -> Trace:
    """Indices, clock and cache go on where the round before ended, so that what adds up still does."""
    first = [token for token in trace.tokens if token.step is None]
    by_step = [[token for token in trace.tokens if token.step == step.index] for step in trace.steps]
    start = trace.steps[0].spans[0].start_ms if trace.steps[0].spans else 0.0
    length = max((span.start_ms + span.duration_ms for step in trace.steps for span in step.spans), default=0.0) - start
    made, tokens = [], list(first)
    for place in range(steps):
        turn, source = divmod(place, len(trace.steps))
        step = trace.steps[source]
        spans = tuple(_later(span, turn * length) for span in step.spans)
        cache = step.cache_length + turn * sum(map(len, by_step))
        made.append(step.model_copy(update={"index": place, "spans": spans, "cache_length": cache}))
        tokens += [token.model_copy(update={"step": place}) for token in by_step[source]]
    changed = trace.model_copy(update={"steps": tuple(made), "tokens": tuple(tokens), "branch": None})
    passes = trace.totals.draft_passes * steps // len(trace.steps)
    summed = totals(changed.steps, changed.tokens, trace.prefill.spans, passes)
    return changed.model_copy(update={"totals": summed})


def _later(span: Span, by_ms: float) -> Span:
    return span.model_copy(update={"start_ms": span.start_ms + by_ms})
