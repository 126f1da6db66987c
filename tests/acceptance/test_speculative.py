"""Speculative sampling keeps the target's distribution exactly, for drawn and for simply proposed drafts."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from explorer.acceptance import Verdict, accept_matching, accept_speculative
from explorer.sampling import Chooser, SamplingSettings
from explorer.tree import Candidate, CandidateTree, with_branch
from tests.acceptance.test_matching import VOCABULARY, drafted, row_after, tree_logits

SETTINGS = SamplingSettings(temperature=0.8, top_k=3)
Drafted = tuple[CandidateTree, dict[int, torch.Tensor]]


class Enumerated(Chooser):
    """Makes the random choices that a script tells, and multiplies up how likely they are."""

    def __init__(self, script: Sequence[int], settings: SamplingSettings = SETTINGS) -> None:
        super().__init__(settings)
        self.script, self.made, self.chance = list(script), 0, 1.0

    def next(self, chances: Sequence[float]) -> int:
        """The script's next choice among so many with these chances."""
        if self.made == len(self.script):
            raise NeedsMore(len(chances))
        made = self.script[self.made]
        self.made += 1
        self.chance *= chances[made]
        return made

    def pick(self, probs: torch.Tensor, place: int | None = None) -> int:
        return self.next(probs.tolist())

    def coin(self, probability: float) -> tuple[bool, float]:
        accepted = self.next([1.0 - probability, probability]) == 1
        return accepted, 0.0 if accepted else 1.0


class NeedsMore(Exception):
    """The script is used up; the next choice has `args[0]` possibilities."""


def outcomes(decode: Callable[[Enumerated], tuple[int, ...]]) -> Iterator[tuple[tuple[int, ...], float]]:
    """Every result of a decoder that draws, with its probability."""
    scripts: list[tuple[int, ...]] = [()]
    while scripts:
        script = scripts.pop()
        chooser = Enumerated(script)
        try:
            result = decode(chooser)
        except NeedsMore as more:
            if chooser.chance > 0:
                scripts += [(*script, choice) for choice in range(more.args[0])]
            continue
        yield result, chooser.chance


def draft_row(history: Sequence[int], strangeness: float) -> torch.Tensor:
    """(4,) draft_probs: from much like the target's (0) to the opposite of it."""
    return torch.softmax(row_after(history) * (1 - strangeness), dim=-1)


def drawn_chain(strangeness: float) -> Callable[[Enumerated, list[int]], Drafted]:
    """Leviathan's case: two tokens drawn one after another."""

    def draft(chooser: Enumerated, history: list[int]) -> Drafted:
        candidates: list[Candidate] = []
        rows: dict[int, torch.Tensor] = {}
        seen = list(history)
        for place in range(2):
            rows[place] = draft_row(seen, strangeness)
            seen.append(chooser.pick(rows[place]))
            candidates.append(Candidate(seen[-1], place, "test", drawn=True))
        return CandidateTree(history[-1], tuple(candidates)), rows

    return draft


def drawn_siblings(strangeness: float, branch: Sequence[int] = ()) -> Callable[[Enumerated, list[int]], Drafted]:
    """EAGLE-1's case: three children without replacement, one of them with a child; and perhaps a context branch."""

    def draft(chooser: Enumerated, history: list[int]) -> Drafted:
        rows = {0: draft_row(history, strangeness)}
        left, candidates = rows[0].clone(), []
        for _ in range(3):
            token = chooser.pick(left / left.sum())
            left[token] = 0.0
            candidates.append(Candidate(token, 0, "test", drawn=True))
        rows[2] = draft_row([*history, candidates[1].token_id], strangeness)
        candidates.append(Candidate(chooser.pick(rows[2]), 2, "test", drawn=True))
        return with_branch(CandidateTree(history[-1], tuple(candidates)), branch, "context"), rows

    return draft


def proposed(tokens: Sequence[tuple[int, int]]) -> Callable[[Enumerated, list[int]], Drafted]:
    """EAGLE-2's case: a tree that nobody drew."""
    return lambda chooser, history: (
        CandidateTree(history[-1], tuple(Candidate(token, parent, "test") for token, parent in tokens)),
        {},
    )


DRAFTS = {
    "like the target": drawn_chain(0.0),
    "blunt": drawn_chain(0.7),
    "opposed": drawn_chain(2.0),
    "siblings": drawn_siblings(0.4),
    "siblings opposed": drawn_siblings(1.8),
    "siblings and a branch": drawn_siblings(1.2, branch=(1, 3)),
    "all tokens proposed": proposed([(0, 0), (1, 0), (2, 0), (3, 0), (3, 1), (2, 2)]),
    "repeated": proposed([(1, 0), (1, 0), (2, 1), (0, 2)]),
    "nothing": proposed([]),
}


@pytest.mark.parametrize("name", DRAFTS)
def test_two_tokens_have_exactly_the_targets_law(name: str) -> None:
    """All draws of drafter and rule enumerated: the joint law is the product of the target's own."""
    start, wanted = [2, 1, 3], 2

    def decode(chooser: Enumerated) -> tuple[int, ...]:
        history = list(start)
        while len(history) < len(start) + wanted:
            tree, rows = DRAFTS[name](chooser, history)
            verdict = accept_speculative(tree, tree_logits(tree, history), chooser, history, rows)
            history += [tree.token_ids[node] for node in verdict.accepted] + [verdict.choice.token_id]
        return tuple(history[len(start) : len(start) + wanted])

    law: dict[tuple[int, ...], float] = defaultdict(float)
    for tokens, chance in outcomes(decode):
        law[tokens] += chance
    assert sum(law.values()) == pytest.approx(1.0, abs=1e-5)
    plain = Chooser(SETTINGS)
    for tokens in itertools.product(range(VOCABULARY), repeat=wanted):
        histories = [[*start, *tokens[:end]] for end in range(wanted)]
        chances = [float(plain.distribution(row_after(h), h)[t]) for h, t in zip(histories, tokens, strict=True)]
        assert law[tokens] == pytest.approx(math.prod(chances), abs=1e-5)


@pytest.mark.parametrize("strangeness", [0.0, 0.7, 2.0])
def test_a_drawn_token_is_accepted_as_often_as_the_distributions_overlap(strangeness: float) -> None:
    """Acceptance rate of one drawn token: the sum of min(draft_probs, target_probs) (Leviathan, section 3.1)."""
    history, plain = [1, 2], Chooser(SETTINGS)

    def decode(chooser: Enumerated) -> tuple[int, ...]:
        row = draft_row(history, strangeness)
        tree = CandidateTree(2, (Candidate(chooser.pick(row), 0, "test", drawn=True),))
        verdict = accept_speculative(tree, tree_logits(tree, history), chooser, history, {0: row})
        return (len(verdict.accepted),)

    rate = sum(chance for accepted, chance in outcomes(decode) if accepted == (1,))
    overlap = torch.minimum(draft_row(history, strangeness), plain.distribution(row_after(history), history)).sum()
    assert rate == pytest.approx(float(overlap), abs=1e-6)


@given(drafted(), st.integers(0, 30))
def test_the_record_holds_what_decided(case: tuple[CandidateTree, torch.Tensor], seed: int) -> None:
    tree, logits = case
    verdict = accept_speculative(tree, logits, Chooser(SamplingSettings(temperature=1.0, seed=seed)), [0], {})
    visited = {0, *verdict.accepted}
    assert {node for node, decision in verdict.decisions.items() if decision.accepted} == set(verdict.accepted)
    for node, decision in verdict.decisions.items():
        assert tree.parent(node) in visited
        assert decision.ratio is not None
        assert decision.draw is not None
        assert decision.accepted == (decision.draw < decision.ratio)
        assert decision.ratio == min(1.0, (decision.target_prob or 0.0) / (decision.draft_prob or 1.0))
        assert (decision.residual_mass is None) == decision.accepted
    check_origin(tree, verdict)


def check_origin(tree: CandidateTree, verdict: Verdict) -> None:
    """The last token comes from a residual exactly where a child was tried and rejected."""
    last = verdict.accepted[-1] if verdict.accepted else 0
    assert verdict.choice.origin == ("residual" if tree.children()[last] else "sample")


@given(drafted())
def test_greedy_it_is_the_greedy_match(case: tuple[CandidateTree, torch.Tensor]) -> None:
    tree, logits = case
    chooser = Chooser(SamplingSettings())
    rows = {0: torch.full((VOCABULARY,), 0.25)}
    assert accept_speculative(tree, logits, chooser, [0], rows) == accept_matching(tree, logits, chooser, [0])


def test_an_equal_draft_is_always_accepted_and_its_residual_never_empty() -> None:
    """draft_probs equal to target_probs: acceptance is certain, whatever rounding does to the difference."""
    history = [3, 1]
    plain = Chooser(SETTINGS)
    row = plain.distribution(row_after(history), history)
    for token in row.nonzero().flatten().tolist():
        tree = CandidateTree(1, (Candidate(token, 0, "test", drawn=True),))
        for seed in range(20):
            chooser = Chooser(SETTINGS.model_copy(update={"seed": seed}))
            verdict = accept_speculative(tree, tree_logits(tree, history), chooser, history, {0: row})
            assert verdict.accepted == (1,)
            assert verdict.decisions[1].ratio == pytest.approx(1.0)
