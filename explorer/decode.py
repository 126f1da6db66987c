"""The loop that every method goes through: propose, verify, accept, commit. A generator of turns."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from explorer.acceptance import Verdict, accept_matching
from explorer.cache import KeyValueCache
from explorer.methods.base import Method, Outcome, Setup
from explorer.params import Params
from explorer.recorder import LaneClock
from explorer.sampling import Choice, Chooser, SamplingSettings
from explorer.target import PassOutput, Prefill, TargetModel
from explorer.trace import Span, StopReason
from explorer.tree import CandidateTree


@dataclass(frozen=True)
class Turn:
    """A finished turn of the loop, tensors and all. Lives until the next turn; a `Step` is what stays of it."""

    index: int
    tree: CandidateTree
    output: PassOutput
    verdict: Verdict
    committed: tuple[int, ...]
    cache_length: int
    spans: tuple[Span, ...]


class Lane:
    """One method on one prompt: its own cache, clock, random generators and method state."""

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
    ) -> None:
        self.id, self.method_type, self.params = lane_id, method, params
        self.sampling, self.max_new_tokens = sampling, max_new_tokens
        self.clock = clock or LaneClock(synchronize=target.synchronize)
        self.stop_reason: StopReason | None = None
        self.output: list[int] = []
        self._target, self._drafter = target, drafter
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
        with self.clock.span("prefill"):
            rows = self.method_type.max_rows(self.params)
            capacity = len(prefill.token_ids) + self.max_new_tokens + rows
            self._cache = self._target.new_cache(capacity)
            self._cache.copy_from(prefill.cache)
            first = self._chooser.choose(prefill.logits, prefill.token_ids)
        self._context = [*prefill.token_ids, first.token_id]
        self._finish([first.token_id])
        seed = random.Random(self.sampling.seed)
        setup = Setup(self._target.texts, seed, capacity, self._drafter)
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
            proposal = method.propose(self._context)
        with span("verify"):
            output = self._target.verify(proposal.tree, cache, proposal.riders)
        with span("accept"):
            verdict = accept_matching(proposal.tree, output.logits, self._chooser, self._context)
        with span("commit"):
            committed = self._cut(proposal.tree, verdict)
            kept = verdict.accepted[: len(committed) - 1]
            cache.commit([0, *kept])
            self._context.extend(committed)
            method.observe(Outcome(proposal.tree, output, kept, verdict.accepted, self._context))
        self._finish(committed)
        return Turn(index, proposal.tree, output, verdict, tuple(committed), cache.length, self.clock.take())

    def _begin(self, setup: Setup, prefill: Prefill) -> Method:
        method = self.method_type(self.params, setup)  # type: ignore[call-arg]
        method.start(self._context, prefill.taps)
        return method

    def _cut(self, tree: CandidateTree, verdict: Verdict) -> list[int]:
        """What the step adds: accepted drafts and the target's token, up to the budget and the first end token."""
        tokens = [tree.token_ids[node] for node in verdict.accepted] + [verdict.choice.token_id]
        tokens = tokens[: self.max_new_tokens - len(self.output)]
        ends = self._target.end_token_ids
        first_end = next((place for place, token in enumerate(tokens) if token in ends), len(tokens))
        return tokens[: first_end + 1]

    def _finish(self, tokens: list[int]) -> None:
        self.output.extend(tokens)
        if tokens[-1] in self._target.end_token_ids:
            self.stop_reason = "eos"
        elif len(self.output) >= self.max_new_tokens:
            self.stop_reason = "length"


def drain(lane: Lane, each: Callable[[Turn], None] = lambda turn: None) -> list[int]:
    """Decode to the end; the output token ids."""
    for turn in lane.turns():
        each(turn)
    return lane.output
