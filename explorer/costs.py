"""What passes cost on this machine, measured once when a model is loaded: what `size: auto` decides by."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from explorer.decode import Lane
from explorer.methods import METHODS
from explorer.methods.base import Method
from explorer.sampling import SamplingSettings
from explorer.sizing import Costs
from explorer.target import TargetModel
from explorer.tree import Candidate, CandidateTree

ROWS = (1, 2, 4, 8, 16, 32, 64)
CONTEXT_TOKENS = 256
"""Where the passes are measured: prompt and output of a usual run lie around it."""
ROUNDS = 5
"""Measured passes of each kind; the median counts."""
PATIENCE_S = 4.0
"""Nothing is repeated any more after so long: a large model on a small machine."""
DRAFT_STEPS, DRAFT_TOKENS = 6, 60
"""Measured steps of a drafter, and the most tokens that they may make."""


def measure_costs(target: TargetModel, drafters: Mapping[str, Any]) -> dict[str | None, Costs]:
    """Per kind of drafter, and for None, what passes of the target and of that drafter take."""
    context = min(CONTEXT_TOKENS, max(target.context_tokens - ROWS[-1] - DRAFT_TOKENS, 1))
    verify, padded = _verify_ms(target, context), target.execution != "eager"
    costs: dict[str | None, Costs] = {None: Costs(tuple(verify), tuple(verify.values()), padded=padded)}
    for method in METHODS:
        if method.needs is not None and method.needs in drafters and method.needs not in costs:
            draft_ms = _draft_pass_ms(target, method, drafters[method.needs], context, verify[1])
            costs[method.needs] = Costs(tuple(verify), tuple(verify.values()), draft_ms, padded)
    return costs


def _verify_ms(target: TargetModel, context: int) -> dict[int, float]:
    """Median per number of rows, taken in rounds: whatever else the machine does meets all of them alike.

    The first round does not count, unless it was slow already. More rows never cost less: where the medians say so
    it is noise, and the lower one holds.
    """
    prefill = target.prefill([0] * context)
    cache = target.new_cache(context + ROWS[-1])
    cache.copy_from(prefill.cache)
    spent: dict[int, list[float]] = {rows: [] for rows in ROWS if context + rows <= target.context_tokens or rows == 1}
    begin = time.perf_counter()
    for _ in range(ROUNDS + 1):
        for rows, times in spent.items():
            tree = CandidateTree(0, tuple(Candidate(0, (node - 1) // 2, "cost") for node in range(1, rows)))
            target.prepare(tree, cache)  # what is captured once is on nobody's clock
            times.append(_time_ms(target, partial(target.verify, tree, cache)))
        if time.perf_counter() - begin > PATIENCE_S:
            break
    medians = {rows: statistics.median(times[1:] or times) for rows, times in spent.items()}
    return {rows: min(medians[other] for other in medians if other >= rows) for rows in medians}


def _time_ms(target: TargetModel, task: Callable[[], object]) -> float:
    target.synchronize()
    begin = time.perf_counter()
    task()
    target.synchronize()
    return 1000.0 * (time.perf_counter() - begin)


def _draft_pass_ms(target: TargetModel, method: type[Method], drafter: Any, context: int, verify_ms: float) -> float:
    """Drafting time per pass of a short lane with the method's own defaults, head and bookkeeping included."""
    prompt = [place % target.vocabulary_tokens for place in range(context)]
    lane = Lane(
        "cost",
        target,
        method,
        method.Params(),
        sampling=SamplingSettings(),
        max_new_tokens=DRAFT_TOKENS,
        drafter=drafter,
    )
    lane.start(target.prefill(prompt, taps=lane.taps), 0.0)
    spent: list[float] = []
    drafting_ms, before = 0.0, lane.draft_passes
    for turn in lane.turns():
        passes = lane.draft_passes - before  # not the tree's depth: of what was drafted only the best part is verified
        before = lane.draft_passes
        took = next(span.duration_ms for span in turn.spans if span.phase == "draft")
        if turn.index and passes:  # the first one allocates
            spent.append(took / (passes if method.pass_per_depth else 1))
            drafting_ms += took
        if len(spent) == DRAFT_STEPS or drafting_ms > 1000.0 * PATIENCE_S:
            break
    # a drafter that drafts nothing here (its context may be too short) is taken to cost a pass of the target
    return statistics.median(spent) if spent else verify_ms
