"""The acceptance rules as pseudocode, by the name that stands in a trace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from explorer.events import CodeLine

ACCEPT = "accept"


def sampled(params: Mapping[str, Any]) -> bool:
    """Does a trace with these parameters draw its tokens?"""
    sampling = params.get("sampling")
    temperature = sampling.get("temperature") if isinstance(sampling, Mapping) else params.get("temperature")
    return isinstance(temperature, int | float) and temperature > 0


def rule_code(params: Mapping[str, Any]) -> tuple[CodeLine, ...]:
    """The lines of the rule that a trace's parameters name; the match where they name none that is known here."""
    rule, drawn = params.get("acceptance_rule"), sampled(params)
    if rule == "speculative" and drawn:
        return _speculative()
    if rule == "typical" and drawn:
        return (
            CodeLine(ACCEPT, "threshold ← min(epsilon, delta · exp(−entropy of p))", "drafts"),
            CodeLine(ACCEPT, "a draft x passes if p(x) > threshold", "judged"),
            *_longest("next ← the likeliest token of p behind them"),
        )
    if rule == "top-k":
        return (
            CodeLine(ACCEPT, "a draft passes if it is among the k best tokens of p", "judged"),
            *_longest("next ← the target's own choice behind them"),
        )
    if rule in ("prefix", "block"):
        return _chain(whole=rule == "block")
    return _match("a token drawn from p" if drawn else "the likeliest token of p")


def _match(choice: str) -> tuple[CodeLine, ...]:
    return (
        CodeLine(ACCEPT, f"from the root down: want ← {choice}"),
        CodeLine(ACCEPT, "  a draft below is want: accept it, go on from there", "accepted"),
        CodeLine(ACCEPT, "  none is: reject the drafts below, stop", "stopped"),
        CodeLine(ACCEPT, "next ← want"),
    )


def _speculative() -> tuple[CodeLine, ...]:
    return (
        CodeLine(ACCEPT, "from the root down, for a draft x below: u ← random in [0, 1)", "judged"),
        CodeLine(ACCEPT, "  u < p(x) / q(x): accept x, go on from there", "accepted"),
        CodeLine(ACCEPT, "  else p ← max(0, p − q), renormalised; its next sibling", "failed"),
        CodeLine(ACCEPT, "next ← a token drawn from p, or from what is left of it"),
    )


def _longest(own: str) -> tuple[CodeLine, ...]:
    return (
        CodeLine(ACCEPT, "accept the longest path of passing drafts, then the likeliest", "accepted"),
        CodeLine(ACCEPT, own),
    )


def _chain(*, whole: bool) -> tuple[CodeLine, ...]:
    want = CodeLine(ACCEPT, "want ← the target's token behind every position")
    if whole:
        return (
            want,
            CodeLine(ACCEPT, "all guesses agree with want: accept them", "accepted"),
            CodeLine(ACCEPT, "one does not: keep nothing yet", "not committed"),
        )
    return (
        want,
        CodeLine(ACCEPT, "accept the leading guesses that agree with want", "accepted"),
        CodeLine(ACCEPT, "next ← the first want that has no such guess"),
    )
