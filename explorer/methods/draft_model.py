"""Draft model: a small language model writes a chain ahead, one target pass verifies it (Leviathan et al. 2023)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from explorer.acceptance import RuleParams
from explorer.acceptance.rules import RuleName
from explorer.drafters.draft_model import DraftModel
from explorer.events import CodeLine
from explorer.methods._code import said
from explorer.methods.base import Method, Outcome, Proposal, Setup, SizedParams
from explorer.payloads import DraftedToken, DraftModelPayload, WindowToken
from explorer.sizing import Costs, Sizer
from explorer.trace import Decision, Record
from explorer.tree import Candidate, CandidateTree

MAX_TOKENS = 16


class DraftModelParams(SizedParams):
    """Length of the chain: gamma of the paper."""

    tokens: int = Field(5, ge=1, le=MAX_TOKENS, title="tokens gamma", description="Tokens drafted per step.")
    schedule: Literal["constant", "adaptive"] = Field(
        "constant",
        title="schedule",
        description="constant: always so many tokens. adaptive: two more after a chain that was accepted in full, else "
        f"one less; from 1 to {MAX_TOKENS}.",
    )
    rule: RuleName = Field(
        "speculative",
        title="acceptance rule",
        description=RuleParams.model_fields["rule"].description,
        json_schema_extra=RuleParams.model_fields["rule"].json_schema_extra,
    )


@dataclass
class _Chain:
    """What was drafted in a step."""

    gamma: int
    fed: list[int] = field(default_factory=list)
    """Committed tokens that the first pass read."""
    tokens: list[int] = field(default_factory=list)
    kept: int = 0
    """How many of them are verified."""
    draft_probs: list[float] = field(default_factory=list)
    distributions: dict[int, Tensor] = field(default_factory=dict)
    """Per node the (V,) that its child was drawn from."""


class DraftModelMethod(Method):
    """Speculative sampling with a draft model (Leviathan et al., arXiv 2211.17192; Chen et al., arXiv 2302.01318).

    The draft has its own cache. After a step it keeps the rows of the prefix that it shares with the committed
    tokens; the first pass of the next chain reads the rest: one token, or two after a full accept, since the
    last drafted token was never read; more where a context branch was accepted. A draft is drawn from the
    distribution that its acceptance test divides by: the draft's logits, brought into the target's vocabulary
    and processed with the lane's sampling settings and the whole history. Greedy, the draft is greedy too. As
    in transformers the chain ends at the draft's end-of-sequence token and leaves the budget's last token to
    the target; transformers' confidence threshold is not used. Beyond the draft's own context, and behind a
    token that it does not know, nothing is drafted and steps are plain ones.
    """

    name = "draft-model"
    title = "Draft model"
    paper = "Leviathan et al. 2023, arXiv 2211.17192; Chen et al. 2023, arXiv 2302.01318"
    summary = "A small language model drafts a chain of tokens; one target pass verifies all of them."
    needs = "draft-model"
    Params = DraftModelParams

    def __init__(self, params: DraftModelParams, setup: Setup) -> None:
        self._params, self._texts, self._drafts = params, setup.texts, setup.drafts
        self._draft: DraftModel = setup.drafter
        self._vocabulary = setup.vocabulary_tokens
        self._end = setup.capacity - self.max_rows(params) - params.context_branch
        self._cache = self._draft.model.new_cache(min(setup.capacity + MAX_TOKENS, self._draft.model.context_tokens))
        self._gamma, self._sizer = params.tokens, setup.sizer
        self._chain = _Chain(self._gamma)
        self._outcome: Outcome | None = None

    @classmethod
    def subtitle(cls, params: Any) -> str:
        """In a few words."""
        if params.size == "auto":
            return f"up to {params.tokens} tokens"
        return (
            f"{params.tokens} tokens at first, adaptive" if params.schedule == "adaptive" else f"{params.tokens} tokens"
        )

    @classmethod
    def sizer(cls, params: Any, drafter: Any, costs: Costs) -> Sizer:
        """Every token costs a pass of the draft. The schedule is the sizer's then."""
        return Sizer(costs, params.tokens, params.tokens)

    @classmethod
    def pseudocode(cls, params: Mapping[str, Any]) -> tuple[CodeLine, ...]:
        """A chain, token by token."""
        adaptive = params.get("schedule") == "adaptive" and params.get("size") != "auto"
        times = "gamma" if adaptive or params.get("size") == "auto" else said(params, "tokens")
        lesson = (CodeLine("commit", "gamma ← two more after a full accept, else one less", "drafts"),)
        return (
            CodeLine("drafter-prefill", "read the prompt with the draft model"),
            CodeLine("draft", "feed the draft model what was committed since", "drafts"),
            CodeLine("draft", f"{times} times: q ← its distribution, x ← its choice, feed x", "drafts"),
            CodeLine("commit", "draft's cache ← without the rows of drafts that were not accepted", "dropped"),
            *(lesson if adaptive else ()),
        )

    @classmethod
    def max_rows(cls, params: Any) -> int:
        """Root and chain."""
        return 1 + (MAX_TOKENS if params.schedule == "adaptive" else int(params.tokens))

    def start(self, context: list[int], taps: dict[str, Tensor]) -> None:
        """The prompt through the draft, unless it has no room for a token more."""
        prompt = context[:-1]
        if len(prompt) < self._draft.model.context_tokens and self._reads(prompt):
            self._cache.copy_from(self._draft.model.prefill(prompt).cache)
            self.draft_passes += 1

    def propose(self, context: list[int]) -> Proposal:
        """Catch up with what was committed, then draft token by token."""
        if self._sizer is not None:
            self._gamma = self._sizer.choice.depth
        self._chain = self._drafted(context)
        drawn, scores, candidates = not self._drafts.greedy, 1.0, []
        for place, (token, prob) in enumerate(zip(self._chain.tokens, self._chain.draft_probs, strict=True)):
            scores *= prob
            candidates.append(Candidate(token, place, "draft-model", 0, prob, scores, drawn=drawn))
        self._chain.kept = len(candidates)
        if self._sizer is not None and candidates:
            kept = self._sizer.keep([[each.score or 0.0] for each in candidates], whole=drawn)
            self._chain.kept, candidates = kept, candidates[:kept]
        return Proposal(CandidateTree(context[-1], tuple(candidates)), draft_probs=self._chain.distributions)

    def observe(self, outcome: Outcome) -> None:
        """Drop the draft's rows of tokens that were not committed; adapt the length."""
        self._outcome = outcome
        drafted = self._chain.tokens
        known = self._cache.length - max(0, len(drafted) - 1)  # the last draft was never read
        behind = outcome.context[known:-1]  # the new root is always read again: its row gives the next draft
        self._cache.truncate(known + common_prefix(drafted, behind))
        if self._params.schedule == "adaptive" and self._sizer is None and drafted and len(outcome.tree) > 1:
            own = tuple(range(1, len(drafted) + 1))
            full = outcome.agreed[: len(own)] == own
            self._gamma = min(self._gamma + 2, MAX_TOKENS) if full else max(1, self._gamma - 1)

    def payload(self) -> Record | None:
        """Probabilities, ratio and draw of each drafted token."""
        outcome, chain = self._outcome, self._chain
        if outcome is None:
            return None
        count = chain.kept if len(outcome.tree) > 1 else 0  # no room for drafts at the end of the context
        return DraftModelPayload(
            gamma=chain.gamma,
            fed=tuple(WindowToken(token_id=token, text=self._texts.show(token)) for token in chain.fed),
            drafted=tuple(self._judged(outcome, node) for node in range(1, count + 1)),
        )

    def _judged(self, outcome: Outcome, node: int) -> DraftedToken:
        token = self._chain.tokens[node - 1]
        decision = outcome.decisions.get(node, Decision(rule="unreached"))
        target_prob = decision.target_prob
        if target_prob is None:
            target_prob = float(torch.softmax(outcome.output.logits[node - 1].float(), dim=-1)[token])
        return DraftedToken(
            node=node,
            token_id=token,
            text=self._texts.show(token),
            draft_prob=min(self._chain.draft_probs[node - 1], 1.0),
            target_prob=min(target_prob, 1.0),
            ratio=decision.ratio,
            draw=decision.draw,
            residual_mass=decision.residual_mass,
            accepted=node in outcome.agreed,
        )

    def _drafted(self, context: list[int]) -> _Chain:
        """Run the draft until the chain is long enough, or at its end token, or where something else ends."""
        model, chain = self._draft.model, _Chain(self._gamma)
        length = min(self._gamma, self._end - len(context) - 1, model.context_tokens - len(context) + 1)
        feed = context[self._cache.length :]
        if length < 1 or not self._reads(feed):
            return chain
        chain.fed = feed
        history = list(context)
        while True:
            token = self._choose(self._read(feed), history, chain)
            chain.tokens.append(token)
            if len(chain.tokens) == length or token in model.end_token_ids:
                return chain
            history.append(token)
            feed = [token]

    def _choose(self, row: Tensor, history: list[int], chain: _Chain) -> int:
        """The draft's next token from its row (V,) of logits: a draw, or the argmax where the lane is greedy."""
        if self._drafts.greedy:
            scores = self._drafts.scores(row, history)
            token = int(scores.argmax())
            chain.draft_probs.append(float(torch.log_softmax(scores, dim=-1)[token].exp()))
            return token
        probs = self._drafts.distribution(row, history)
        token = self._drafts.pick(probs)
        chain.distributions[len(chain.tokens)] = probs
        chain.draft_probs.append(float(probs[token]))
        return token

    def _reads(self, token_ids: Sequence[int]) -> bool:
        """Has the draft an embedding for each? A vocabulary padded to another size may lack the target's last ids."""
        return max(token_ids) < len(self._draft.model.embed_weight)

    def _read(self, token_ids: Sequence[int]) -> Tensor:
        """One draft pass over some tokens; the logits (V,) after the last, over the target's vocabulary."""
        rest = tuple(Candidate(token, place, "draft-model") for place, token in enumerate(token_ids[1:]))
        output = self._draft.model.verify(CandidateTree(token_ids[0], rest), self._cache)
        self._cache.commit(range(len(token_ids)))
        self.draft_passes += 1
        return over_target_ids(output.logits[-1], self._draft.token_map, self._vocabulary)


def over_target_ids(row: Tensor, token_map: Tensor | None, vocabulary_tokens: int) -> Tensor:
    """A row (D,) of draft logits as (V,): minus infinity where the draft has no such token.

    Models of one family may pad their vocabularies to different sizes: then both have the common beginning.
    """
    if token_map is None and len(row) == vocabulary_tokens:
        return row
    whole = row.new_full((vocabulary_tokens,), -torch.inf)
    if token_map is not None:
        whole[token_map] = row
    else:
        common = min(len(row), vocabulary_tokens)
        whole[:common] = row[:common]
    return whole


def common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """Leading tokens that agree."""
    places = range(min(len(first), len(second)))
    return next((place for place in places if first[place] != second[place]), len(places))
