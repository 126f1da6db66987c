"""The exact law of a target's next tokens, and a chi-square test of seeded runs against it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import torch

from explorer.sampling import Chooser, SamplingSettings
from tests.lanes import Bench

Tokens = tuple[int, ...]


def exact_law(bench: Bench, ids: list[int], settings: SamplingSettings, length: int) -> dict[Tokens, float]:
    """The probability of each possible run of `length` next tokens, from plain causal passes."""
    chooser = Chooser(settings)
    law: dict[Tokens, float] = {(): 1.0}
    for _ in range(length):
        longer = {}
        for tokens, chance in law.items():
            history = [*ids, *tokens]
            probs = chooser.distribution(bench.logits(history)[-1], history)
            longer |= {(*tokens, token): chance * float(probs[token]) for token in probs.nonzero().flatten().tolist()}
        law = longer
    return law


def chi_square_p(law: dict[Tokens, float], run: Callable[[int], Tokens], runs: int) -> float:
    """The p-value of runs 0, 1, ... against the law; outcomes that are expected under 5 times count as one."""
    counts = Counter(run(seed) for seed in range(runs))
    assert set(counts) <= set(law), "an outcome that the target cannot have"
    often = {tokens: runs * chance for tokens, chance in law.items() if runs * chance >= 5}
    cells = [(counts[tokens], number) for tokens, number in often.items()]
    cells.append((runs - sum(seen for seen, _ in cells), runs - sum(often.values())))
    cells = [(seen, number) for seen, number in cells if number > 1]
    statistic = sum((seen - number) ** 2 / number for seen, number in cells)
    return float(torch.special.gammaincc(torch.tensor((len(cells) - 1) / 2), torch.tensor(statistic / 2)))
