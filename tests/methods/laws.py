"""The law of the first output tokens: exact by enumeration, and how well counted samples agree with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from explorer.decode import Lane
from explorer.methods import find_method
from explorer.sampling import Chooser, SamplingSettings
from explorer.target import TAP_LAST
from tests.lanes import COSTS, Bench, decode

Law = dict[tuple[int, ...], float]


def exact_law(bench: Bench, ids: Sequence[int], sampling: SamplingSettings, length: int) -> Law:
    """Probability of every possible beginning of the output, from plain causal passes."""
    law: Law = {(): 1.0}
    for _ in range(length):
        longer: Law = {}
        for begun, chance in law.items():
            history = [*ids, *begun]
            probs = Chooser(sampling).distribution(bench.logits(history)[-1], history)
            for token in probs.nonzero().flatten().tolist():
                longer[*begun, token] = chance * float(probs[token])
        law = longer
    return law


def sampled(
    bench: Bench,
    name: str,
    params: dict[str, Any],
    ids: Sequence[int],
    sampling: SamplingSettings,
    *,
    length: int,
    runs: int,
    drafter: Any = None,
) -> Counter[tuple[int, ...]]:
    """Outputs of as many runs, seeds 0, 1, 2, ..., all from one prefill."""
    method = find_method(name)
    drafter = drafter or bench.drafter(method)
    prefill = bench.target.prefill(ids, taps=method.taps | {TAP_LAST})
    counts: Counter[tuple[int, ...]] = Counter()
    for seed in range(runs):
        settings = sampling.model_copy(update={"seed": seed})
        lane = Lane(
            name,
            bench.target,
            method,
            method.Params(**params),
            sampling=settings,
            max_new_tokens=length,
            drafter=drafter,
            costs=COSTS,
        )
        lane.start(prefill, 0.0)
        counts[tuple(decode(lane))] += 1
    return counts


def chance_of_worse(counts: Mapping[tuple[int, ...], int], law: Law) -> float:
    """The chi-square test's probability of a fit as bad as this, or worse. Rare outcomes are put together."""
    assert set(counts) <= set(law), "an outcome that has no probability"
    runs, statistic, cells = sum(counts.values()), 0.0, 0
    rare_expected, rare_seen = 0.0, 0
    for outcome, chance in law.items():
        expected, seen = runs * chance, counts.get(outcome, 0)
        if expected < 5:
            rare_expected, rare_seen = rare_expected + expected, rare_seen + seen
            continue
        statistic, cells = statistic + (seen - expected) ** 2 / expected, cells + 1
    if rare_expected > 0:
        statistic, cells = statistic + (rare_seen - rare_expected) ** 2 / rare_expected, cells + 1
    half = torch.tensor([(cells - 1) / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))
