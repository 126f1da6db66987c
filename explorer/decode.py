"""The loop that every method goes through: propose, verify, accept, commit. A generator of turns."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from explorer.acceptance import Verdict
from explorer.cache import KeyValueCache
from explorer.errors import ExplorerError
from explorer.methods.base import CONTEXT_BRANCH_NGRAM, Method, Outcome, Proposal, Setup, TreeParams
from explorer.ngrams import CopyChances, Found, find_continuation
from explorer.params import Params
from explorer.recorder import LaneClock, clock_of
from explorer.sampling import Choice, Chooser, SamplingSettings
from explorer.sizing import Costs, Sizer
from explorer.target import PassOutput, Prefill, TargetModel
from explorer.trace import Draft, SizeChoice, Span, StopReason
from explorer.tree import CandidateTree, with_branch


@dataclass(frozen=True)
class Turn:
    """A finished turn of the loop, tensors and all. Lives until it is written; a `Step` is what stays of it."""

    index: int
    tree: CandidateTree
    output: PassOutput
    verdict: Verdict
    committed: tuple[int, ...]
    cache_length: int
    spans: tuple[Span, ...]
    size: SizeChoice | None = None
    """Lanes whose size is `auto` only."""


class Lane:
    """One method on one prompt: its own cache, clock, random generators and method state.

    costs: what passes take on this machine; needed where the parameters say `size: auto`. With the same costs and
    the same seed a lane does the same, whatever its own passes take.
    """

    def __init__(
        self,
        lane_id: str,
        target: TargetModel,
        method: type[Method],
        params: Params,
        *,
        sampling: SamplingSettings,
        max_new_tokens: int,
        drafter: object = None,
        clock: LaneClock | None = None,
        costs: Costs | None = None,
    ) -> None:
        self.id, self.method_type, self.params = lane_id, method, params
        self.sampling, self.max_new_tokens = sampling, max_new_tokens
        self.rule = method.rule(params)
        self.taps = method.taps_for(drafter, target.num_layers)
        self.clock = clock or clock_of(target.device, target.synchronize)
        self.stop_reason: StopReason | None = None
        self.output: list[int] = []
        self._target, self._drafter = target, drafter
        self._branch = params.context_branch if isinstance(params, TreeParams) else 0
        self._sizer = _sizer(method, params, drafter, costs)
        self._copies = CopyChances()
        self._chooser = Chooser(sampling)
        self._method: Method | None = None
        self._cache: KeyValueCache | None = None
        self._context: list[int] = []

    @property
    def draft_passes(self) -> int:
        """Passes of the drafter so far."""
        return self._method.draft_passes if self._method else 0

    @property
    def method(self) -> Method:
        """The method's state. Only after `start`."""
        assert self._method is not None, "the lane has not started"
        return self._method

    @property
    def cache(self) -> KeyValueCache:
        """The lane's cache. Only after `start`."""
        assert self._cache is not None, "the lane has not started"
        return self._cache

    @torch.inference_mode()
    def start(self, prefill: Prefill, shared_ms: float) -> Choice:
        """Take over the shared prefill (its time goes on this lane's clock too); gives the first output token."""
        self.clock.add("prefill", shared_ms)
        room = self._target.context_tokens - len(prefill.token_ids)
        self.max_new_tokens = min(self.max_new_tokens, room)
        with self.clock.span("prefill"):
            rows = self.method_type.max_rows(self.params) + self._branch
            capacity = len(prefill.token_ids) + self.max_new_tokens + rows
            self._cache = self._target.new_cache(capacity)
            self._cache.copy_from(prefill.cache)
            first = self._chooser.choose(prefill.logits, prefill.token_ids)
        self._context = [*prefill.token_ids, first.token_id]
        self._finish([first.token_id])
        seed = random.Random(self.sampling.seed)
        setup = Setup(
            self._target.texts,
            seed,
            capacity,
            self._drafter,
            Chooser(self.sampling, stream=1),
            self._target.vocabulary_tokens,
            self._target.num_layers,
            self._sizer,
        )
        if self.method_type.needs is None:
            self._method = self._begin(setup, prefill)
        else:
            with self.clock.span("drafter-prefill"):
                self._method = self._begin(setup, prefill)
        return first

    def turns(self) -> Iterator[Turn]:
        """Decode until the budget or an end-of-sequence token. Between two turns nothing runs."""
        index = 0
        while self.stop_reason is None:
            yield self._turn(index)
            index += 1

    @torch.inference_mode()
    def _turn(self, index: int) -> Turn:
        method, cache, span = self.method, self.cache, self.clock.span
        with span("draft"):
            found = self._found()
            proposal = self._fitted(method.propose(self._context), found)
        tree = proposal.tree
        size = None if self._sizer is None else _size_record(self._sizer)
        self._target.prepare(tree, cache, proposal.riders, self.taps)
        with span("verify"):
            output = self._target.verify(tree, cache, proposal.riders, self.taps)
        with span("accept"):
            verdict = self.rule(tree, output.logits, self._chooser, self._context, proposal.draft_probs)
        with span("commit"):
            committed = self._cut(tree, verdict)
            kept = verdict.accepted[: len(committed) - 1]
            cache.commit([0, *kept] if verdict.commits else [])
            self._context.extend(committed)
            method.observe(
                Outcome(tree, output, kept, verdict.accepted, self._context, verdict.wanted, verdict.decisions)
            )
            self._learn(tree, verdict.accepted, found, committed)
        self._finish(committed)
        return Turn(index, tree, output, verdict, tuple(committed), cache.length, self.clock.take(), size)

    def _found(self) -> Found | None:
        """What the context branch may hold; tells the sizer of it, which then decides how much is drafted."""
        found = None
        if self._branch:
            found = find_continuation(
                self._context, max_ngram=CONTEXT_BRANCH_NGRAM, tokens=self._branch, match="latest"
            )
        if self._sizer is not None:
            self._sizer.begin(self._copies.of(found))
        return found

    def _learn(self, tree: CandidateTree, accepted: Sequence[int], found: Found | None, committed: list[int]) -> None:
        """The sizer's lesson from a step. The method's own nodes come first in the tree."""
        if self._sizer is None:
            return
        own = min(self._sizer.choice.nodes, len(tree.candidates))  # none where the context had no room for them
        scores = [each.score or 0.0 for each in tree.candidates[:own]]
        self._sizer.learn(scores, sum(node <= own for node in accepted), len(committed))
        self._copies.learn(found, committed)

    def _fitted(self, proposal: Proposal, found: Found | None) -> Proposal:
        """With the context branch; without any drafts where these would reach beyond the target's context."""
        if found is not None:
            copied = found.tokens if self._sizer is None else found.tokens[: self._sizer.choice.branch_tokens]
            proposal = replace(proposal, tree=with_branch(proposal.tree, copied, "prompt-lookup"))
        if len(self._context) - 1 + proposal.deepest < self._target.context_tokens:
            return proposal
        return Proposal(CandidateTree(self._context[-1]))

    def _begin(self, setup: Setup, prefill: Prefill) -> Method:
        method = self.method_type(self.params, setup)  # type: ignore[call-arg]
        method.start(self._context, prefill.taps)
        return method

    def _cut(self, tree: CandidateTree, verdict: Verdict) -> list[int]:
        """What the step adds: accepted drafts and the target's token, up to the budget and the first end token."""
        if not verdict.commits:
            return []
        tokens = [tree.token_ids[node] for node in verdict.accepted] + [verdict.choice.token_id]
        tokens = tokens[: self.max_new_tokens - len(self.output)]
        ends = self._target.end_token_ids
        first_end = next((place for place, token in enumerate(tokens) if token in ends), len(tokens))
        return tokens[: first_end + 1]

    def _finish(self, tokens: list[int]) -> None:
        self.output.extend(tokens)
        if tokens and tokens[-1] in self._target.end_token_ids:
            self.stop_reason = "eos"
        elif len(self.output) >= self.max_new_tokens:
            self.stop_reason = "length"


def _sizer(method: type[Method], params: Params, drafter: object, costs: Costs | None) -> Sizer | None:
    if getattr(params, "size", "fixed") != "auto":
        return None
    if costs is None:
        raise ExplorerError(f"{method.title}: size auto needs the measured costs of passes, which are not there.")
    return method.sizer(params, drafter, costs)


def _size_record(sizer: Sizer) -> SizeChoice:
    """The choice just made, as data."""
    choice, other = sizer.choice, sizer.choice.declined
    return SizeChoice(
        nodes=choice.nodes,
        depth=choice.depth,
        branch_tokens=choice.branch_tokens,
        expected_tokens=choice.expected_tokens,
        expected_ms=choice.expected_ms,
        plain_ms=sizer.costs.verify(1),
        calibration=sizer.calibration,
        probing=choice.probing,
        declined=None
        if other is None
        else Draft(rows=1 + other.nodes, expected_tokens=other.expected_tokens, expected_ms=other.expected_ms),
    )


def drain(lane: Lane, each: Callable[[Turn], None] = lambda turn: None) -> list[int]:
    """Decode to the end; the output token ids."""
    for turn in lane.turns():
        each(turn)
    return lane.output
