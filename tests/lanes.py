"""Running lanes on small targets in tests: what `generate` says, what a lane says, all settings at their extremes."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from explorer.decode import Lane, Turn
from explorer.drafters.checkpoint import DrafterInfo
from explorer.drafters.draft_model import DraftModel
from explorer.load import describe
from explorer.methods import METHODS, find_method
from explorer.methods.base import Method, Outcome, Proposal, Setup, SizedParams, TreeParams
from explorer.params import Params
from explorer.recorder import LaneClock
from explorer.sampling import SamplingSettings
from explorer.sizing import Costs
from explorer.target import TAP_LAST, TargetModel
from explorer.toy import toy_drafter, toy_model, toy_tokenizer
from explorer.tree import Candidate, CandidateTree

TIE_MARGIN = 1e-3
PROMPTS = (
    "the rain in the",
    "def f(x):\n    return",
    "1 2 3 1 2 3 1 2 3",
    "naïve 🙂 café",
    "x",
)

COSTS = Costs(rows=(1, 2, 4, 8, 16, 32, 64), verify_ms=(10, 11, 12, 13, 16, 26, 50), draft_pass_ms=1.0)
"""What passes cost, made up: cheap enough that drafting pays at times."""
DEAR_COSTS = Costs(rows=(1, 64), verify_ms=(1.0, 64.0), draft_pass_ms=4.0)
"""Made up so that drafting pays next to never."""

METHOD_SETTINGS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("autoregressive", {}),
    ("medusa", {}),
    ("medusa", {"nodes": 1}),
    ("medusa", {"nodes": 2}),
    ("medusa", {"nodes": 63}),
    ("medusa", {"tree": "mc_sim_7b_63"}),
    ("medusa", {"tree": "vicuna_13b_stage2"}),
    ("eagle", {}),
    ("eagle", {"nodes": 1}),
    ("eagle", {"nodes": 63}),
    ("eagle", {"depth": 1}),
    ("eagle", {"depth": 10, "nodes": 40}),
    ("eagle", {"top_k": 1}),
    ("eagle", {"top_k": 16, "nodes": 63, "depth": 2}),
    ("eagle", {"nodes": 1, "depth": 1, "top_k": 1}),
    ("eagle", {"tree": "static"}),
    ("eagle", {"tree": "static", "context_branch": 5}),
    ("eagle", {"tree": "chain"}),
    ("eagle", {"tree": "chain", "depth": 10, "context_branch": 3}),
    ("eagle3", {}),
    ("eagle3", {"nodes": 1, "depth": 1, "top_k": 1}),
    ("eagle3", {"nodes": 63, "depth": 10, "top_k": 16}),
    ("eagle3", {"tree": "static"}),
    ("eagle3", {"tree": "chain", "depth": 6}),
    ("lookahead", {}),
    ("lookahead", {"pool_from_prompt": True}),
    ("lookahead", {"window": 1}),
    ("lookahead", {"window": 20, "ngram": 3}),
    ("lookahead", {"window": 100}),
    ("lookahead", {"ngram": 3}),
    ("lookahead", {"ngram": 8, "window": 3, "pool_from_prompt": True}),
    ("lookahead", {"ngram": 12, "window": 1, "pool_from_prompt": True}),
    ("lookahead", {"guesses": 0, "pool_from_prompt": True}),
    ("lookahead", {"guesses": 1, "pool_from_prompt": True}),
    ("lookahead", {"guesses": 100, "pool_from_prompt": True}),
    ("lookahead", {"window": 1, "ngram": 3, "guesses": 1, "pool_from_prompt": True}),
    ("lookahead", {"window": 60, "ngram": 8, "guesses": 60}),
    ("draft-model", {}),
    ("draft-model", {"tokens": 1}),
    ("draft-model", {"tokens": 16}),
    ("draft-model", {"schedule": "adaptive"}),
    ("draft-model", {"tokens": 16, "schedule": "adaptive", "rule": "greedy"}),
    ("prompt-lookup", {}),
    ("prompt-lookup", {"max_ngram": 1, "tokens": 1}),
    ("prompt-lookup", {"max_ngram": 10, "tokens": 32}),
    ("prompt-lookup", {"max_ngram": 1, "tokens": 32, "match": "latest"}),
    ("jacobi", {}),
    ("jacobi", {"block": 2}),
    ("jacobi", {"block": 64}),
    ("jacobi", {"verification": "block"}),
    ("jacobi", {"block": 2, "verification": "block"}),
    ("jacobi", {"block": 64, "verification": "block"}),
)
"""Every method with its defaults, and with every parameter of its own at both of its bounds."""

SHARED_SETTINGS: tuple[tuple[str, dict[str, Any]], ...] = tuple(
    (method.name, values)
    for method in METHODS
    if issubclass(method.Params, TreeParams)
    for values in (
        {"context_branch": 32},
        {"rule": "speculative", "context_branch": 3},
        {"rule": "typical", "epsilon": 0.0, "delta": 1.0},
        {"rule": "typical", "epsilon": 1.0, "delta": 0.0},
        {"rule": "top-k", "accept_top_k": 1},
    )
)
"""What all drafting methods share. Under temperature 0 all of these are lossless; so `accept_top_k` is 1."""
AUTO_SETTINGS: tuple[tuple[str, dict[str, Any]], ...] = (
    *(
        (method.name, {"size": "auto", **values})
        for method in METHODS
        if issubclass(method.Params, SizedParams)
        for values in ({}, {"context_branch": 8}, {"rule": "speculative"})
    ),
    ("medusa", {"size": "auto", "tree": "mc_sim_7b_63"}),
    ("eagle", {"size": "auto", "nodes": 63, "depth": 10, "top_k": 16}),
    ("eagle", {"size": "auto", "tree": "static", "context_branch": 3}),
    ("eagle3", {"size": "auto", "tree": "chain"}),
    ("draft-model", {"size": "auto", "tokens": 16, "schedule": "adaptive"}),
)
"""Sizes that follow the costs above."""

SETTINGS = METHOD_SETTINGS + SHARED_SETTINGS + AUTO_SETTINGS


def setting_name(setting: tuple[str, dict[str, Any]]) -> str:
    """As pytest shows it."""
    return setting[0] + "".join(f"-{key}={value}" for key, value in setting[1].items())


@dataclass(frozen=True)
class Bench:
    """A small target with the plain model inside it, and drafters."""

    model: Any
    target: TargetModel
    drafters: dict[str, Any]

    def ids(self, text: str) -> list[int]:
        """The prompt's token ids, raw."""
        return list(self.target.tokenizer(text)["input_ids"])

    def drafter(self, method: type[Method]) -> Any:
        """What the method needs."""
        return None if method.needs is None else self.drafters[method.needs]

    def expected(self, ids: Sequence[int], budget: int) -> list[int]:
        """What `generate` adds, greedily."""
        prompt = torch.tensor([list(ids)])
        output = self.model.generate(
            prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=budget, pad_token_id=0
        )
        return [int(token) for token in output[0, len(ids) :]]

    def logits(self, ids: Sequence[int]) -> torch.Tensor:
        """(T, V) logits of a plain causal pass."""
        with torch.inference_mode():
            return self.model(torch.tensor([list(ids)])).logits[0]

    def lane(
        self,
        method: str | type[Method],
        params: dict[str, Any] | None = None,
        *,
        ids: Sequence[int],
        budget: int = 32,
        sampling: SamplingSettings | None = None,
        clock: LaneClock | None = None,
        drafter: Any = None,
        costs: Costs = COSTS,
    ) -> Lane:
        """A lane that has its first token."""
        kind = find_method(method) if isinstance(method, str) else method
        lane = Lane(
            kind.name,
            self.target,
            kind,
            kind.Params(**(params or {})),
            sampling=sampling or SamplingSettings(),
            max_new_tokens=budget,
            drafter=drafter if drafter is not None else self.drafter(kind),
            clock=clock,
            costs=costs,
        )
        lane.start(self.target.prefill(ids, taps=lane.taps | {TAP_LAST}), 0.0)
        return lane


def make_toy(
    seed: int = 0,
    end_ids: Sequence[int] = (),
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    **changes: Any,
) -> Bench:
    """The toy with its untrained drafters. `end_ids` become ends of sequence beside the tokenizer's own."""
    model = toy_model(seed, **changes)
    model.to(device, dtype)
    tokenizer = toy_tokenizer()
    if end_ids:
        model.generation_config.eos_token_id = [*end_ids, tokenizer.eos_token_id]
    target = TargetModel(model, tokenizer, describe(model, model_id="toy", label="toy"))
    drafters = {kind: toy_drafter(kind, target, seed) for kind in ("medusa", "eagle", "eagle3")}
    return Bench(model, target, drafters | {"draft-model": first_layers(target)})


def first_layers(target: TargetModel, layers: int = 3, token_map: torch.Tensor | None = None, **changes: Any) -> Any:
    """A draft model that is right at times: the target without its last layers, perhaps over fewer tokens.

    changes: of its configuration, as a shorter context.
    """
    model = copy.deepcopy(target.transformers_model)
    model.model.layers = model.model.layers[:layers]
    model.config.num_hidden_layers = layers
    model.config.update(changes)
    if token_map is not None:
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight[token_map], requires_grad=False)
    told = describe(model, model_id="draft", label="draft")
    return DraftModel(TargetModel(model, target.tokenizer, told), DrafterInfo("draft", 0, 0, None), token_map)


def decode(lane: Lane, each: Callable[[Turn], object] = lambda turn: None) -> list[int]:
    """To the end; the output."""
    for turn in lane.turns():
        each(turn)
    return lane.output


def assert_same_output(bench: Bench, ids: Sequence[int], ours: Sequence[int], expected: Sequence[int]) -> None:
    """Equal token for token, or first different where the two best logits are as good as equal."""
    pairs = itertools.zip_longest(ours, expected)
    place = next((place for place, (mine, theirs) in enumerate(pairs) if mine != theirs), None)
    if place is None:
        return
    best = torch.topk(bench.logits([*ids, *expected[:place]])[-1], 2).values
    margin = float(best[0] - best[1])
    assert margin < TIE_MARGIN, f"token {place} is {ours[place : place + 1]}, not {expected[place : place + 1]}"


class OracleParams(Params):
    """How the oracle drafts; not described, since it is never listed."""

    script: tuple[int, ...] = ()
    length: int = 4
    wrong_at: int | None = None


class Oracle(Method):
    """Drafts what it is told: the true continuation, with wrong siblings. For tests of the loop around it."""

    name = "oracle"
    title = "Oracle"
    paper = "none"
    summary = "Knows the output."
    Params = OracleParams

    def __init__(self, params: OracleParams, setup: Setup) -> None:
        self._params, self._prompt_tokens = params, 0
        self.outcomes: list[Outcome] = []

    @classmethod
    def max_rows(cls, params: Any) -> int:
        """Each true token has a wrong sibling before it and one after it."""
        return 1 + 3 * params.length

    def start(self, context: list[int], taps: dict[str, torch.Tensor]) -> None:
        self._prompt_tokens = len(context) - 1

    def propose(self, context: list[int]) -> Proposal:
        """The script's next tokens, each between two siblings that are wrong."""
        done = len(context) - self._prompt_tokens
        candidates: list[Candidate] = []
        parent = 0
        for place, token in enumerate(self._params.script[done : done + self._params.length]):
            right = token if place != self._params.wrong_at else (token + 7) % 200
            candidates += [
                Candidate((right + 1) % 200, parent, "oracle", 1),
                Candidate(right, parent, "oracle", 0),
                Candidate((right + 2) % 200, parent, "oracle", 2),
            ]
            parent = len(candidates) - 1
        return Proposal(CandidateTree(context[-1], tuple(candidates)))

    def observe(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)


ALL_NAMES = tuple(method.name for method in METHODS)
