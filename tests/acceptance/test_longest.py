"""Typical acceptance and top-k match: the longest passing path, the numbers that decided, and that they are lossy."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from explorer.acceptance import NamedRule, RuleParams, Verdict, accept_matching, accept_top_k, accept_typical, rule_of
from explorer.sampling import Chooser, SamplingSettings
from explorer.tree import Candidate, CandidateTree
from tests.acceptance.test_matching import VOCABULARY, drafted, row_after, tree_logits

WARM = SamplingSettings(temperature=0.7)
Case = tuple[CandidateTree, torch.Tensor]


def passes(tree: CandidateTree, logits: torch.Tensor, rule: NamedRule, node: int) -> bool:
    """Would this node pass, by the rule's own formula?"""
    token, parent = tree.token_ids[node], tree.parent(node)
    assert parent is not None
    if rule.name == "top-k":
        return token in torch.topk(logits[parent], rule.top_k).indices.tolist()
    probs = torch.softmax(logits[parent] / WARM.temperature, dim=-1)
    entropy = -float((probs * torch.log(probs + 1e-5)).sum())
    return float(probs[token]) > min(rule.epsilon, rule.delta * math.exp(-entropy))


def verdict_of(case: Case, rule: NamedRule) -> Verdict:
    tree, logits = case
    return rule(tree, logits, Chooser(WARM), [0], {})


RULES = [
    NamedRule("typical"),
    NamedRule("typical", epsilon=0.5, delta=0.9),
    NamedRule("typical", epsilon=0.0, delta=0.0),
    NamedRule("top-k", top_k=1),
    NamedRule("top-k", top_k=2),
    NamedRule("top-k", top_k=50),
]


@pytest.mark.parametrize("rule", RULES, ids=str)
@given(case=drafted())
def test_the_longest_passing_path_wins_and_the_likeliest_of_these(rule: NamedRule, case: Case) -> None:
    """Against all paths of the tree, judged node by node."""
    tree, logits = case
    rule = NamedRule(rule.name, rule.epsilon, rule.delta, min(rule.top_k, VOCABULARY))
    verdict = verdict_of(case, rule)
    passing = {0} | {node for node in range(1, len(tree)) if passes(tree, logits, rule, node)}
    reached = [node for node in range(len(tree)) if set(tree.path(node)) <= passing]
    longest = max(tree.depths[node] for node in reached)
    last = verdict.accepted[-1] if verdict.accepted else 0
    assert last in reached
    assert verdict.accepted == tuple(tree.path(last))
    assert tree.depths[last] == longest

    def weight(node: int) -> float:
        scale = WARM.temperature
        steps = tree.path(node)
        return sum(
            float(torch.log_softmax(logits[tree.parent(step) or 0] / scale, -1)[tree.token_ids[step]]) for step in steps
        )

    assert weight(last) == pytest.approx(
        max(weight(node) for node in reached if tree.depths[node] == longest), abs=1e-4
    )
    judged = {node for node in range(1, len(tree)) if tree.parent(node) in reached}
    assert set(verdict.decisions) == judged
    for node, decision in verdict.decisions.items():
        assert decision.accepted == (node in passing)


@given(drafted())
def test_the_token_after_a_typical_path_is_the_likeliest(case: Case) -> None:
    tree, logits = case
    verdict = accept_typical(tree, logits, Chooser(WARM), [0], epsilon=0.09, delta=0.3)
    last = verdict.accepted[-1] if verdict.accepted else 0
    assert (verdict.choice.token_id, verdict.choice.origin) == (int(logits[last].argmax()), "argmax")


@given(drafted(), st.booleans())
def test_greedy_typical_and_one_best_are_the_greedy_match(case: Case, typical: bool) -> None:
    tree, logits = case
    siblings = [[tree.token_ids[child] for child in children] for children in tree.children()]
    if any(len(tokens) != len(set(tokens)) for tokens in siblings):
        return  # a token drafted twice under one parent: the walk takes the first, the search the deeper one
    chooser = Chooser(SamplingSettings())
    plain = accept_matching(tree, logits, chooser, [0])
    other = (
        accept_typical(tree, logits, chooser, [0], epsilon=0.09, delta=0.3)
        if typical
        else accept_top_k(tree, logits, chooser, [0], k=1)
    )
    assert (other.accepted, other.choice) == (plain.accepted, plain.choice)


@pytest.mark.parametrize("rule", [NamedRule("typical"), NamedRule("top-k", top_k=2)], ids=str)
def test_they_are_not_lossless_and_say_so(rule: NamedRule) -> None:
    """Over many seeds the first new token's frequencies leave the target's distribution far behind."""
    history = [2, 1, 3]
    second = int(torch.topk(row_after(history), 2).indices[1])
    tree = CandidateTree(3, (Candidate(second, 0, "test"),))
    counts: Counter[int] = Counter()
    for seed in range(200):
        chooser = Chooser(WARM.model_copy(update={"seed": seed}))
        verdict = rule(tree, tree_logits(tree, history), chooser, history, {})
        counts[tree.token_ids[verdict.accepted[0]] if verdict.accepted else verdict.choice.token_id] += 1
    target_probs = Chooser(WARM).distribution(row_after(history), history)
    distance = sum(abs(counts[token] / 200 - float(target_probs[token])) for token in range(VOCABULARY)) / 2
    assert distance > 0.2
    assert not rule.lossless(WARM.temperature)


def test_which_rules_are_lossless() -> None:
    assert all(rule_of(RuleParams(rule=name)).lossless(t) for name in ("greedy", "speculative") for t in (0.0, 1.0))
    assert rule_of(RuleParams(rule="typical")).lossless(0.0)
    assert not rule_of(RuleParams(rule="typical")).lossless(0.5)
    assert rule_of(RuleParams(rule="top-k", accept_top_k=1)).lossless(0.0)
    assert not rule_of(RuleParams(rule="top-k", accept_top_k=2)).lossless(0.0)
