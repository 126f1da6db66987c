"""Prompt lookup: the context's own past drafts, by n-gram match (Saxena 2023)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field
from torch import Tensor

from explorer.events import CodeLine
from explorer.methods._code import said
from explorer.methods.base import Method, Outcome, Proposal, Setup, SizedParams
from explorer.ngrams import CopyChances, Found, find_continuation
from explorer.payloads import PromptLookupPayload, WindowToken
from explorer.sizing import Costs, Sizer
from explorer.trace import Record
from explorer.tree import Candidate, CandidateTree

AROUND = 12
"""Tokens of text recorded around a match."""


class PromptLookupParams(SizedParams):
    """How far to look, and how much to copy. transformers' own default for the n-gram is 2."""

    max_ngram: int = Field(3, ge=1, le=10, title="longest n-gram", description="Longest n-gram to look for; then less.")
    tokens: int = Field(10, ge=1, le=32, title="tokens", description="Tokens copied from behind the match.")
    match: Literal["leftmost", "latest"] = Field(
        "leftmost",
        title="match",
        description="leftmost: the first place where the n-gram stands, as in the original; latest: the last one.",
    )


class PromptLookup(Method):
    """A chain copied from behind the place where the newest n-gram stood before; no drafter at all.

    Source: apoorvumang/prompt-lookup-decoding. With the same settings the chain is that of transformers'
    PromptLookupCandidateGenerator, also in that nothing is copied when one token of the budget is left. Two
    differences: transformers cuts the chain before an end-of-sequence token, here the loop cuts the output
    behind it, so that an accepted end saves a pass; and transformers drops tokens that a logits processor
    forbids, of which there is none here. The original demands a full continuation behind the match;
    transformers and this take what there is.
    """

    name = "prompt-lookup"
    title = "Prompt lookup"
    paper = "Saxena 2023, github.com/apoorvumang/prompt-lookup-decoding"
    summary = "No drafter: where the newest tokens stood before in the context, what followed them is proposed again."
    Params = PromptLookupParams

    def __init__(self, params: PromptLookupParams, setup: Setup) -> None:
        self._params, self._texts, self._sizer = params, setup.texts, setup.sizer
        self._copies = CopyChances()
        self._end = setup.capacity - self.max_rows(params) - params.context_branch
        self._found: Found | None = None
        self._whole: Found | None = None
        """All that was found; `_found` is what of it was proposed."""
        self._matched: list[int] = []
        self._context: list[int] = []
        self._length = 0

    @classmethod
    def subtitle(cls, params: Any) -> str:
        """In a few words."""
        tokens = f"{'up to ' if params.size == 'auto' else ''}{params.tokens} tokens"
        return f"{tokens}, n-grams up to {params.max_ngram}, {params.match}"

    @classmethod
    def sizer(cls, params: Any, drafter: Any, costs: Costs) -> Sizer:
        """Copying is free, so the rows of the pass are all that is weighed."""
        return Sizer(costs, params.tokens, params.tokens, exact=True)

    @classmethod
    def pseudocode(cls, params: Mapping[str, Any]) -> tuple[CodeLine, ...]:
        """Look back, copy."""
        first = "the first" if params.get("match") != "latest" else "the latest"
        return (
            CodeLine(
                "draft", f"for n = {said(params, 'max_ngram')} down to 1: look for the newest n tokens earlier on"
            ),
            CodeLine("draft", f"  found: copy up to {said(params, 'tokens')} tokens behind {first} place", "drafts"),
            CodeLine("draft", "  nowhere: no drafts", "not drafts"),
        )

    @classmethod
    def max_rows(cls, params: Any) -> int:
        """Root and chain."""
        return 1 + int(params.tokens)

    def start(self, context: list[int], taps: dict[str, Tensor]) -> None:
        """Nothing to learn: each step looks at the whole context."""

    def propose(self, context: list[int]) -> Proposal:
        """What followed the newest n-gram, as a chain."""
        self._found, self._length = None, len(context)
        if len(context) + 1 != self._end:  # the last token comes from the target anyway
            params = self._params
            self._found = find_continuation(
                context, max_ngram=params.max_ngram, tokens=params.tokens, match=params.match
            )
        chances = self._sized()
        found = self._found
        tokens = found.tokens if found else ()
        self._matched = context[len(context) - found.ngram :] if found else []
        chain = tuple(
            Candidate(token, place, "prompt-lookup", 0, score=chances[place] if chances else None)
            for place, token in enumerate(tokens)
        )
        return Proposal(CandidateTree(context[-1], chain))

    def _sized(self) -> list[float]:
        """Cut what was found to what pays; the tokens' chances. A fixed size changes nothing, and weighs none."""
        self._whole = self._found
        if self._sizer is None:
            return []
        chances = self._copies.of(self._found)
        kept = self._sizer.keep([[chance] for chance in chances])
        if self._found is not None:
            self._found = replace(self._found, tokens=self._found.tokens[:kept])
        return chances

    def observe(self, outcome: Outcome) -> None:
        """Nothing to remember; at the end of the context the pass had no room for the chain."""
        self._context = outcome.context
        self._copies.learn(self._whole, outcome.context[self._length :])
        if len(outcome.tree) == 1 and self._found is not None and self._found.tokens:
            self._found = None

    def payload(self) -> Record:
        """The match and what was copied."""
        found = self._found
        if found is None:
            lead = self._around(self._length - 1 - AROUND, self._length - 1)
            return PromptLookupPayload(ngram=0, matched=None, matched_text="", copied=None, tokens=(), lead=lead)
        behind, newest = found.start + found.ngram, self._length - found.ngram
        end = behind + len(found.tokens)
        return PromptLookupPayload(
            ngram=found.ngram,
            matched=(found.start, behind),
            matched_text=self._texts.decode(self._matched),
            copied=(behind, end),
            tokens=tuple(WindowToken(token_id=token, text=self._texts.show(token)) for token in found.tokens),
            before=self._around(found.start - AROUND, found.start),
            after=self._around(end, min(end + AROUND, self._length)),
            lead=self._around(newest - AROUND, newest),
        )

    def _around(self, start: int, end: int) -> str:
        """Text of a span of the context as it was before the step."""
        return self._texts.decode(self._context[max(0, start) : max(0, end)])
