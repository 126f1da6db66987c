"""Which path of the candidate tree is accepted: pure functions of tree, logits and a lane's own draws."""

from explorer.acceptance.longest import accept_top_k, accept_typical
from explorer.acceptance.matching import accept_block, accept_matching
from explorer.acceptance.rules import BlockRule, NamedRule, RuleParams, rule_of
from explorer.acceptance.speculative import accept_speculative
from explorer.acceptance.verdict import Rule, Verdict

__all__ = [
    "BlockRule",
    "NamedRule",
    "Rule",
    "RuleParams",
    "Verdict",
    "accept_block",
    "accept_matching",
    "accept_speculative",
    "accept_top_k",
    "accept_typical",
    "rule_of",
]
