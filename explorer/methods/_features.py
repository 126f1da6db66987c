"""Drafting with features, which EAGLE and EAGLE-3 share; they differ in what a feature is and in the drafter."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from pydantic.config import JsonDict
from torch import Tensor

from explorer.events import CodeLine
from explorer.methods._code import said
from explorer.methods._growth import ROOT, Growth, Picker, Pool, RandomPicker, grow_dynamic, grow_fixed, keep_best
from explorer.methods.base import Method, Outcome, Proposal, Setup, SizedParams
from explorer.methods.trees import chain, eagle_tree
from explorer.payloads import EaglePayload, FeatureError, FrontierNode
from explorer.sizing import Costs, Sizer
from explorer.trace import Record
from explorer.tree import Candidate, CandidateTree

SLACK_ROWS = 64
STATIC_NODES = 25
_DYNAMIC: JsonDict = {"when": {"tree": "dynamic"}}


class EagleParams(SizedParams):
    """Shape of the tree; the defaults are what paid best on a CPU of two cores.

    The original counts the root in total_token, and one level less in depth: its defaults 60, 7 and 10 are
    59 nodes, depth 8 and top_k 10 here.
    """

    tree: Literal["dynamic", "static", "chain"] = Field(
        "dynamic",
        title="tree",
        description="dynamic: the likeliest nodes, chosen anew each step (EAGLE-2); static: the 25 nodes of EAGLE-1, "
        "whatever the fields below say; chain: one draft per level.",
    )
    nodes: int = Field(
        11,
        ge=1,
        le=63,
        title="nodes",
        description="Drafted nodes of the dynamic tree, kept by the re-ranking.",
        json_schema_extra=_DYNAMIC,
    )
    depth: int = Field(5, ge=1, le=10, title="depth", description="Levels below the root: dynamic tree and chain.")
    top_k: int = Field(
        4,
        ge=1,
        le=16,
        title="top k per level",
        description="Nodes of the dynamic tree drafted further at each level.",
        json_schema_extra=_DYNAMIC,
    )


class FeatureMethod(Method):
    """Feature-level drafting: the tree grows from predicted features, the drafter's cache from true ones.

    Slot t of the drafter pairs the embedding of token t + 1 with the feature of position t and predicts the
    feature of position t + 1. Only slots built from true features stay in its cache; those of an accepted
    path are run when the next draft begins.

    Under the speculative rule with a temperature, static tree and chain draw their children at random from the
    processed draft distribution, as EAGLE-1 does; the dynamic tree proposes its best nodes, as EAGLE-2 does.
    Otherwise drafts are the drafter's best-ranked tokens.
    """

    Params = EagleParams
    feature_words: ClassVar[str] = "features"
    """What it reads of the target, in a few words."""

    def __init__(self, params: EagleParams, setup: Setup) -> None:
        self._params, self._setup, self._drafter = params, setup, setup.drafter
        self._cache = setup.drafter.new_cache(setup.capacity + params.depth * params.top_k + SLACK_ROWS)
        self._draws = params.rule == "speculative" and params.tree != "dynamic" and not setup.drafts.greedy
        self._paths = eagle_tree() if params.tree == "static" else chain(params.depth)
        mapping = setup.drafter.token_map
        self._vocabulary = None if mapping is None else frozenset(mapping.tolist())
        self._pending: tuple[list[int], Tensor] | None = None
        self._feature = torch.empty(0)
        self._pool = Pool()
        self._kept: list[int] = []
        self._errors: tuple[FeatureError, ...] = ()
        self._covered: bool | None = None

    @classmethod
    def subtitle(cls, params: Any) -> str:
        """In a few words."""
        if params.size == "auto":
            return f"{params.tree} tree, up to {cls.max_rows(params) - 1} nodes"
        if params.tree == "chain":
            return f"chain of {params.depth}"
        if params.tree == "static":
            return f"static tree, {STATIC_NODES} nodes"
        return f"dynamic tree, {params.nodes} nodes, depth {params.depth}"

    @classmethod
    def pseudocode(cls, params: Mapping[str, Any]) -> tuple[CodeLine, ...]:
        """Extrapolate features, keep the likeliest drafts."""
        tree, depth = params.get("tree"), said(params, "depth")
        grow = {
            "chain": f"{depth} times: draft one token, feed it and its predicted feature",
            "static": "level by level: draft the children of the static tree",
        }.get(str(tree), f"{depth} levels: draft below the {said(params, 'top_k')} paths of highest score")
        keep = f"drafts ← the {said(params, 'nodes')} nodes of highest score (path probability)"
        return (
            CodeLine("drafter-prefill", f"read the prompt's tokens and {cls.feature_words} with the drafter"),
            CodeLine("draft", "feed the drafter what was accepted, with true features", "payload.frontier"),
            CodeLine("draft", grow, "payload.frontier"),
            *((CodeLine("draft", keep, "payload.frontier"),) if tree not in ("chain", "static") else ()),
            CodeLine("commit", "keep the true features of root and accepted drafts"),
        )

    @classmethod
    def max_rows(cls, params: Any) -> int:
        """Root and tree."""
        return 1 + {"dynamic": int(params.nodes), "static": STATIC_NODES, "chain": int(params.depth)}[params.tree]

    @classmethod
    def sizer(cls, params: Any, drafter: Any, costs: Costs) -> Sizer:
        """Every level costs a pass of the drafter."""
        depth = max(map(len, eagle_tree())) if params.tree == "static" else params.depth
        return Sizer(costs, cls.max_rows(params) - 1, depth)

    @abstractmethod
    def features(self, taps: Mapping[str, Tensor]) -> Tensor:
        """(T, h): true features, from the target's hidden states at T positions."""

    @property
    def tapped_layers(self) -> tuple[int, ...]:
        """Layers of the target whose inputs are read; none where the feature is the last hidden state."""
        return ()

    def start(self, context: list[int], taps: dict[str, Tensor]) -> None:
        """Run all prompt slots: token t + 1 with the true feature of position t."""
        self._absorb(context[1:], self.features(taps))

    def propose(self, context: list[int]) -> Proposal:
        """Catch up with what the last steps accepted, grow the tree, re-rank where it is dynamic."""
        sizer, depth = self._setup.sizer, self._params.depth
        if sizer is not None:
            depth = sizer.choice.depth
            if not depth:  # nothing pays: true features wait until something does
                self._pool, self._kept = Pool(), []
                return Proposal(CandidateTree(context[-1]))
        if self._pending is not None:
            self._absorb(*self._pending)
            self._pending = None
        growth, params = Growth(self._drafter, self._cache, self._feature), self._params
        if params.tree == "dynamic":
            grow_dynamic(growth, depth=depth, top_k=params.top_k)
        else:
            vocabulary = self._setup.vocabulary_tokens
            picker = RandomPicker(self._setup.drafts, context, vocabulary) if self._draws else Picker()
            paths = self._paths if sizer is None else [path for path in self._paths if len(path) <= depth]
            grow_fixed(growth, paths, picker)
        self._pool = growth.finish()
        self.draft_passes += growth.passes
        nodes = params.nodes if params.tree == "dynamic" else len(self._pool.tokens)
        if sizer is not None:
            nodes = min(nodes, sizer.keep(self._pool.levels(), whole=self._draws))
        self._kept = keep_best(self._pool.scores, nodes)
        draft_probs = {0 if place == ROOT else place + 1: probs for place, probs in self._pool.draws.items()}
        return Proposal(self._tree(context[-1]), draft_probs=draft_probs)

    def observe(self, outcome: Outcome) -> None:
        """Note the true features of the accepted path; the next `propose` runs them."""
        if len(outcome.tree) == 1:
            self._kept = []  # the end of the context: nothing was verified
        rows = [0, *outcome.accepted]
        true = self.features({name: tap[rows] for name, tap in outcome.output.taps.items()})
        token_ids = outcome.context[-len(rows) :]
        if self._pending is not None:  # the step drafted nothing
            waiting, features = self._pending
            token_ids, true = [*waiting, *token_ids], torch.cat([features, true])
        self._pending = (token_ids, true)
        self._errors = self._feature_errors(rows, true[-len(rows) :])
        self._covered = None if self._vocabulary is None else outcome.context[-1] in self._vocabulary

    def payload(self) -> Record | None:
        """Frontier by depth, and what the re-ranking kept; None where nothing was drafted."""
        if not self._pool.tokens:
            return None
        pool, node_of = self._pool, {place: node for node, place in enumerate(self._kept, start=1)}
        listed = [place for place in range(len(pool.tokens)) if place in node_of or place in pool.rows]
        position = {place: index for index, place in enumerate(listed)}
        levels: list[list[FrontierNode]] = [[] for _ in range(max(pool.depths))]
        for place in listed:
            levels[pool.depths[place] - 1].append(
                FrontierNode(
                    node=node_of.get(place),
                    parent=position.get(pool.parents[place]),
                    token_id=pool.tokens[place],
                    text=self._setup.texts.show(pool.tokens[place]),
                    draft_prob=_probability(pool.log_probs[place]),
                    score=_probability(pool.scores[place]),
                    expanded=place in pool.rows,
                )
            )
        return EaglePayload(
            tree=self._params.tree,
            frontier=tuple(map(tuple, levels)),
            pool_nodes=len(pool.tokens),
            kept=len(self._kept),
            feature_errors=self._errors,
            tapped_layers=self.tapped_layers,
            draft_vocabulary=None if self._vocabulary is None else len(self._vocabulary),
            covered=self._covered,
        )

    def _absorb(self, token_ids: list[int], features: Tensor) -> None:
        """Append slots made of true features (T, h); remember the last prediction."""
        start, device = self._cache.length, features.device
        predicted = self._drafter(
            torch.tensor(token_ids, device=device),
            features,
            torch.arange(start, start + len(token_ids), device=device),
            self._cache,
        )
        self.draft_passes += 1
        self._feature = predicted[-1:]  # (1, h)

    def _tree(self, root: int) -> CandidateTree:
        pool, nodes = self._pool, {ROOT: 0}
        candidates = []
        for place in self._kept:
            candidates.append(
                Candidate(
                    pool.tokens[place],
                    nodes[pool.parents[place]],
                    self.name,
                    pool.ranks[place],
                    _probability(pool.log_probs[place]),
                    _probability(pool.scores[place]),
                    drawn=pool.parents[place] in pool.draws,
                )
            )
            nodes[place] = len(candidates)
        return CandidateTree(root, tuple(candidates))

    def _feature_errors(self, nodes: list[int], true: Tensor) -> tuple[FeatureError, ...]:
        """Predicted against true features (T, h), for the root and accepted nodes whose feature was predicted."""
        # nodes behind the drafter's own came from a context branch
        places = [ROOT, *(self._kept[node - 1] if node <= len(self._kept) else None for node in nodes[1:])]
        pairs = [(i, self._pool.rows[place]) for i, place in enumerate(places) if place in self._pool.rows]
        if not pairs:
            return ()
        wanted = true[[i for i, _ in pairs]].float()
        guess = torch.cat(self._pool.features)[[row for _, row in pairs]].float()
        distance = (guess - wanted).norm(dim=-1) / wanted.norm(dim=-1).clamp_min(1e-9)
        cosine = torch.cosine_similarity(guess, wanted, dim=-1)
        ids = [nodes[i] for i, _ in pairs]
        return tuple(
            FeatureError(node=node, distance=d, cosine=c)
            for node, d, c in zip(ids, distance.tolist(), cosine.tolist(), strict=True)
        )


def _probability(log_prob: float) -> float:
    return min(1.0, math.exp(log_prob))
