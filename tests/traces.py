"""Made-up records for tests: schema-valid, small, deterministic, all four methods. No model is behind them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from explorer.events import Event, LaneHeader
from explorer.metrics import compare_outputs, totals
from explorer.payloads import (
    EaglePayload,
    FeatureError,
    FrontierNode,
    Guess,
    LookaheadPayload,
    MedusaPayload,
    NGram,
    WindowToken,
)
from explorer.runs import Run, events_of
from explorer.trace import (
    Comparison,
    ModelInfo,
    NextToken,
    Node,
    OutputToken,
    Prefill,
    Prompt,
    Record,
    Span,
    Step,
    TopToken,
    Trace,
)

OUTPUT = ["```", "python", "\n", "def", " f", "ibonacci", "(", "n", "):", "\n   ", " if", " n", " <=", " ", "1", ":",
          "\n       ", " return", " n", "\n   ", " else", ":", "\n       ", " return"]  # fmt: skip
"""What every lane writes."""

TITLES = {
    "autoregressive": "Autoregressive",
    "medusa": "Medusa",
    "eagle": "EAGLE",
    "lookahead": "Lookahead",
}

MODEL = ModelInfo(id="maker/Tiny-1M", dtype="float32", device="cpu", parameters=1_000_000)

HOSTILE = ["<b>bold</b>", "<script>alert(1)</script>", "${x}", "%{x}", "%{customdata[0]}", "שלום", "e\u0301", "\u0301",
           "\u202eevil", "\x00\x1b", "<E2 9F>", "\ufffd", "👩\u200d", "&lt;", "", "\u2028", "a" * 500]  # fmt: skip
"""Texts that must come out harmless."""


def token_id(text: str) -> int:
    """A stable made-up id."""
    return sum((place + 1) * ord(char) for place, char in enumerate(text)) % 40_000


def top(*pairs: tuple[str, float]) -> tuple[TopToken, ...]:
    """Best tokens with probabilities."""
    return tuple(TopToken(token_id=token_id(text), text=text, prob=prob) for text, prob in pairs)


def spans(start_ms: float, draft_ms: float, verify_ms: float) -> tuple[Span, ...]:
    """The four phases of a step, one after the other."""
    durations = {"draft": draft_ms, "verify": verify_ms, "accept": 0.2, "commit": 0.3}
    made = []
    for phase, duration in durations.items():
        made.append(Span(phase=phase, start_ms=start_ms, duration_ms=duration))
        start_ms += duration
    return tuple(made)


Draft = tuple[int, str, float | None]
"""Parent, text, drafter's probability."""


def make_step(
    root: str,
    drafts: Sequence[Draft],
    accepted: Sequence[int],
    own: str,
    *,
    index: int = 0,
    source: str = "eagle",
    committed: int | None = None,
    start_ms: float = 10.0,
    draft_ms: float = 3.0,
    payload: Record | dict[str, Any] | None = None,
    target_probs: Sequence[float] | None = None,
) -> Step:
    """A step. `committed` cuts what was added to the output, as at the budget."""
    path = [0, *accepted]
    after = {node: drafts[nxt - 1][1] for node, nxt in pairwise(path)} | {path[-1]: own}
    nodes = [_node(0, None, 0, root, None, after, path)]
    scores = {0: 1.0}
    for place, (parent, text, prob) in enumerate(drafts, start=1):
        scores[place] = scores[parent] * (prob or 0.0)
        rank = sum(1 for other, _, _ in drafts[: place - 1] if other == parent)
        target = (target_probs or [])[place - 1 : place] or [0.9 if place in path else 0.06]
        nodes.append(
            _node(place, parent, nodes[parent].depth + 1, text, prob, after, path).model_copy(
                update={"rank": rank, "source": source, "target_prob": target[0],
                        "score": None if prob is None else scores[place]}
            )
        )  # fmt: skip
    added = [token_id(drafts[node - 1][1]) for node in accepted] + [token_id(own)]
    return Step(
        index=index,
        nodes=tuple(nodes),
        accepted=tuple(accepted),
        committed=tuple(added if committed is None else added[:committed]),
        next_token=NextToken(token_id=token_id(own), text=own, origin="argmax", probability=0.88, margin=2.5),
        spans=spans(start_ms, draft_ms, 22.0),
        cache_length=40 + index,
        payload=payload.model_dump() if isinstance(payload, Record) else payload,
    )


def _node(
    place: int, parent: int | None, depth: int, text: str, prob: float | None, after: dict[int, str], path: list[int]
) -> Node:
    if parent is None:
        status = "root"
    elif place in path:
        status = "accepted"
    else:
        status = "rejected" if parent in path else "unreached"
    best = after.get(place, " x")
    return Node(
        id=place, parent=parent, depth=depth, token_id=token_id(text), text=text, source="root", draft_prob=prob,
        target_top=top((best, 0.9), (" or", 0.04), ("#", 0.02)), status=status,
    )  # fmt: skip


def example_step(payload: Record | dict[str, Any] | None = None, index: int = 8) -> Step:
    """The step of the design's drawing: three drafts accepted, then the target's own line break."""
    drafts: list[Draft] = [
        (0, " ", 0.97), (0, " =", 0.01), (1, "0", 0.81), (1, "1", 0.15), (1, "2", 0.02), (3, ":", 0.93),
        (3, " or", 0.03),
        (4, ":", 0.90), (4, " or", 0.04), (6, " #", 0.05), (8, "\n   ", 0.86), (7, " n", 0.70),
    ]  # fmt: skip
    return make_step(" <=", drafts, [1, 3, 6], "\n", index=index, payload=payload)


def big_step(nodes: int, depth: int = 6, width: int = 3) -> Step:
    """A bushy tree of `nodes` drafts: the first child is accepted down to depth 3."""
    words = [" the", " return", "\n       ", "):", " n", " fibonacci", "(", " <=", " =", "0"]
    drafts: list[Draft] = []
    levels = [0]
    parent = 0
    while len(drafts) < nodes:
        for child in range(width):
            if len(drafts) < nodes and levels[parent] < depth:
                prob = max(0.9 - 0.3 * child - 0.05 * levels[parent], 0.01)
                drafts.append((parent, words[(parent * 3 + child) % len(words)], prob))
                levels.append(levels[parent] + 1)
        parent += 1
    accepted, node = [], 0
    while len(accepted) < 3:
        node = next(place for place, draft in enumerate(drafts, start=1) if draft[0] == node)
        accepted.append(node)
    return make_step(" if", drafts, accepted, "\n", index=4)


def eagle_payload(step: Step) -> EaglePayload:
    """A frontier that fits the step's tree, and two tokens more that were expanded but not kept."""
    deepest = max(node.depth for node in step.nodes)
    levels = [[node for node in step.nodes[1:] if node.depth == depth] for depth in range(1, deepest + 1)]
    order = {node.id: place for place, node in enumerate(node for level in levels for node in level)}
    parents = {node.parent for node in step.nodes}
    frontier = [
        [
            FrontierNode(
                node=node.id, parent=order.get(node.parent or 0) if node.parent else None, token_id=node.token_id,
                text=node.text, draft_prob=node.draft_prob or 0.0, score=node.score or 0.0, expanded=node.id in parents,
            )
            for node in level
        ]
        for level in levels
    ]  # fmt: skip
    for text, score in ((" lost", 0.0004), (" gone", 0.0002)):
        lost = FrontierNode(
            node=None, parent=0, token_id=token_id(text), text=text, draft_prob=0.01, score=score, expanded=True
        )
        if frontier:
            frontier[-1].append(lost)
    return EaglePayload(
        frontier=tuple(map(tuple, frontier)), kept=len(step.nodes) - 1, pool_nodes=len(step.nodes) + 40,
        feature_errors=(FeatureError(node=0, distance=0.2, cosine=0.97),),
    )  # fmt: skip


def medusa_payload(heads: int = 4) -> MedusaPayload:
    """Heads whose first choices are the example step's path."""
    ranked = [
        ((" ", 0.97), (" =", 0.01), ("0", 0.008)),
        (("0", 0.81), ("1", 0.15), ("2", 0.02)),
        ((":", 0.93), (" or", 0.03), ("\n", 0.01)),
        ((" #", 0.40), ("\n", 0.22), (" n", 0.10)),
        (("\n", 0.31), (" return", 0.20), (" n", 0.08)),
    ]
    return MedusaPayload(tree="auto", heads=tuple(top(*ranked[head % 5]) for head in range(heads)))


def _window_row(*texts: str) -> tuple[WindowToken, ...]:
    return tuple(WindowToken(token_id=token_id(text), text=text) for text in texts)


def ngram(key: str, *rest: str) -> NGram:
    """A pool entry."""
    return NGram(key=token_id(key), rest=tuple(map(token_id, rest)), text=key + "".join(rest), key_text=key)


def lookahead_step(index: int = 5, hits: int = 2, warm_up: bool = False, start_ms: float = 10.0) -> Step:
    """W = 4, N = 4. In the steady state two guesses are verified, of which one has `hits` right tokens."""
    before = [
        _window_row(" n", " <=", " 1"),
        _window_row(" n", " ==", " 0", ":"),
        _window_row(" <=", " 1", ":", "\n   "),
    ]
    new = _window_row(" 1", ":", "\n       ", " return")
    common = {"key": token_id(" if"), "key_text": " if", "evicted": (), "pool_ngrams": 31, "pool_keys": 12}
    if warm_up:
        grown = LookaheadPayload(
            warm_up=True, window_before=(before[0],), window_after=(before[0][1:], new[1:]),
            guesses=(), hit_length=0, added=(), refreshed=(), **common,
        )  # fmt: skip
        return make_step(" if", [], [], " n", index=index, payload=grown, start_ms=start_ms)
    after = (before[1][1:], before[2], new)
    guesses = [
        Guess(rest=tuple(map(token_id, texts)), text="".join(texts), nodes=nodes, hits=right)
        for texts, nodes, right in (
            ((" n", " <=", " 1"), (1, 2, 3), hits),
            ((" n", " %", " 2"), (1, 4, 5), min(hits, 1)),
        )
    ]
    full = LookaheadPayload(
        warm_up=False, window_before=tuple(before), window_after=after, guesses=tuple(guesses), hit_length=hits,
        added=(ngram(" if", " n", " <=", " 1"), ngram(" n", " ==", " 1", ":")),
        refreshed=(ngram(" <=", " 0", ":", "\n       "),),
        **(common | {"evicted": (ngram(" if", " x", " is", " not"),)}),
    )  # fmt: skip
    drafts: list[Draft] = [(0, " n", None), (1, " <=", None), (2, " 1", None), (1, " %", None), (4, " 2", None)]
    own = (" n", " <=", " 1", ":")[hits]
    return make_step(
        " if", drafts, [1, 2, 3][:hits], own, index=index, source="pool", payload=full, start_ms=start_ms, draft_ms=0.4
    )


def make_trace(lane: str, method: str, steps: Sequence[Step], *, stop: str = "length", first: str = "```") -> Trace:
    """A trace whose output is what its steps committed; the steps are numbered anew."""
    steps = [step.model_copy(update={"index": place}) for place, step in enumerate(steps)]
    tokens = [OutputToken(id=token_id(first), text=first, step=None, source="prefill")]
    for step in steps:
        texts = [step.nodes[node].text for node in step.accepted] + [step.next_token.text]
        for place, committed in enumerate(step.committed):
            source = "draft" if place < len(step.accepted) else "target"
            tokens.append(OutputToken(id=committed, text=texts[place], step=step.index, source=source))
    prefill = (Span(phase="prefill", start_ms=0.0, duration_ms=10.0),)
    return Trace(
        lane=lane, method=method, model=MODEL, params={"max_new_tokens": 24}, stop_reason=stop,
        prompt=Prompt(text="Write", template_applied=False, token_ids=(1, 2, 3)), tokens=tuple(tokens),
        steps=tuple(steps), prefill=Prefill(spans=prefill), totals=totals(steps, tokens, prefill, len(steps)),
    )  # fmt: skip


def grouped(sizes: Sequence[int], source: str, draft_ms: float) -> list[Step]:
    """Steps that write OUTPUT, `sizes[i]` tokens each, all of them drafted but the last of a step."""
    steps, at, clock = [], 1, 10.0
    for index, size in enumerate(sizes):
        texts = OUTPUT[at : at + size]
        drafts: list[Draft] = [(place, text, 0.8 - 0.1 * place) for place, text in enumerate(texts[:-1])]
        drafts += [(place, " not", 0.1) for place in range(len(drafts) + 1)] if draft_ms > 0.5 else []
        made = make_step(OUTPUT[at - 1], drafts, list(range(1, size)), texts[-1], index=index, source=source,
                         start_ms=clock, draft_ms=draft_ms)  # fmt: skip
        payload: Record | None = medusa_payload() if source == "medusa" else None
        if source == "eagle":
            payload = eagle_payload(made)
        steps.append(made.model_copy(update={"payload": payload.model_dump() if payload else None}))
        clock += draft_ms + 22.5
        at += size
    return steps


def make_comparison() -> Comparison:
    """Four lanes that write the same 24 tokens, and the check that says so."""
    lanes = [
        make_trace("autoregressive", "autoregressive", grouped([1] * 23, "root", 0.0)),
        make_trace("medusa", "medusa", grouped([2, 1, 3, 2, 1, 4, 2, 3, 2, 3], "medusa", 0.8)),
        make_trace("eagle", "eagle", grouped([3, 2, 4, 3, 1, 5, 3, 2], "eagle", 4.0)),
        make_trace("lookahead", "lookahead", _lookahead_steps()),
    ]
    lossless = {trace.lane: compare_outputs(lanes[0], trace) for trace in lanes[1:]}
    return Comparison(lanes=tuple(lanes), lossless=lossless)


def _lookahead_steps() -> list[Step]:
    steps = grouped([1, 1, 2, 1, 3, 2, 1, 1, 3, 2, 1, 2, 3], "pool", 0.3)
    payloads = [lookahead_step(warm_up=place < 2).payload for place in range(len(steps))]
    return [step.model_copy(update={"payload": payload}) for step, payload in zip(steps, payloads, strict=True)]


def make_events() -> list[Event]:
    """The comparison as a live run would have sent it."""
    return list(events_of(make_comparison(), TITLES, "greedy"))


def make_run(run_id: str = "example", recorded: bool = True) -> Run:
    """The comparison, folded into a run."""
    run = Run(id=run_id, recorded=recorded)
    for event in make_events():
        run.apply(event)
    return run


def header(method: str = "eagle", params: dict[str, Any] | None = None) -> LaneHeader:
    """What is known of a lane before it runs."""
    return LaneHeader(method, method, TITLES.get(method, method), "", True, params or {}, MODEL, None)
