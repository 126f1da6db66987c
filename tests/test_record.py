"""A turn as data: every number in the step can be computed again from the turn's tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from explorer.acceptance import accept_matching
from explorer.decode import Turn
from explorer.metrics import compare_outputs
from explorer.record import TOP_TOKENS, StepWriter, best_columns, node_statuses
from explorer.recorder import LaneClock
from explorer.sampling import Chooser, SamplingSettings
from explorer.target import PassOutput
from explorer.trace import Node
from explorer.tree import Candidate, CandidateTree
from tests.lanes import ALL_NAMES, Bench, Oracle, make_toy
from tests.traces import make_step, make_trace


@st.composite
def turns(draw: st.DrawFn) -> Turn:
    """A turn on a tree of random tokens, riders behind it, cut or not."""
    parents = [draw(st.integers(0, place)) for place in range(draw(st.integers(0, 10)))]
    tokens = [draw(st.integers(0, 9)) for _ in parents]
    pairs = zip(tokens, parents, strict=True)
    tree = CandidateTree(draw(st.integers(0, 9)), tuple(Candidate(t, p, "test", 0, 0.5, 0.25) for t, p in pairs))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    logits = torch.randn(len(tree) + draw(st.integers(0, 3)), 10, generator=generator) * 3
    verdict = accept_matching(tree, logits, Chooser(SamplingSettings()), [0])
    committed = [tree.token_ids[node] for node in verdict.accepted] + [verdict.choice.token_id]
    kept = draw(st.integers(1, len(committed)))
    return Turn(0, tree, PassOutput(logits, {}), verdict, tuple(committed[:kept]), 9, LaneClock().take())


@given(turn=turns())
def test_every_number_follows_from_the_turn(toy: Bench, turn: Turn) -> None:
    step = StepWriter(toy.target.texts).step(turn, None)
    logits, tree = turn.output.logits, turn.tree
    probs = logits.softmax(dim=-1)
    assert [node.token_id for node in step.nodes] == tree.token_ids
    assert [node.parent for node in step.nodes] == [tree.parent(node) for node in range(len(tree))]
    for node in step.nodes:
        best = probs[node.id].topk(TOP_TOKENS)
        assert [top.token_id for top in node.target_top] == best.indices.tolist()
        assert [top.prob for top in node.target_top] == pytest.approx(best.values.tolist(), rel=1e-4)
        assert [top.text for top in node.target_top] == [toy.target.texts.show(t) for t in best.indices.tolist()]
        if node.parent is not None:
            assert node.target_prob == pytest.approx(float(probs[node.parent, node.token_id]), rel=1e-4)
            assert (node.source, node.rank, node.draft_prob, node.score) == ("test", 0, 0.5, 0.25)
    assert (step.nodes[0].source, step.nodes[0].target_prob) == ("root", None)
    assert step.accepted == turn.verdict.accepted
    assert step.committed == turn.committed
    assert step.payload is None


@given(turn=turns())
def test_statuses_part_the_nodes_in_four(turn: Turn) -> None:
    statuses = node_statuses(turn)
    path = {0, *turn.verdict.accepted}
    assert statuses[0] == "root"
    assert {node for node, status in enumerate(statuses) if status in ("root", "accepted")} == path
    below = {node for node in range(1, len(turn.tree)) if turn.tree.parent(node) in path} - path
    assert {node for node, status in enumerate(statuses) if status == "rejected"} == below
    assert statuses.count("unreached") == len(turn.tree) - len(path) - len(below)


@given(turn=turns())
def test_tokens_of_a_cut_turn_keep_their_sources(toy: Bench, turn: Turn) -> None:
    tokens = StepWriter(toy.target.texts).tokens(turn, last=True)
    drafts = len(turn.verdict.accepted)
    assert tuple(token.id for token in tokens) == turn.committed
    assert [token.source for token in tokens] == (["draft"] * drafts + ["target"])[: len(turn.committed)]
    assert "".join(token.text for token in tokens) == toy.target.texts.decode(turn.committed)


def test_a_vocabulary_of_three_has_three_top_tokens(toy: Bench) -> None:
    tree = CandidateTree(1)
    logits = torch.tensor([[0.0, 1.0, 2.0]])
    verdict = accept_matching(tree, logits, Chooser(SamplingSettings()), [0])
    step = StepWriter(toy.target.texts).step(Turn(0, tree, PassOutput(logits, {}), verdict, (2,), 4, ()), None)
    assert [top.token_id for top in step.nodes[0].target_top] == [2, 1, 0]


class Ticks:
    """A clock that moves by one second each time it is read."""

    def __init__(self) -> None:
        self.reads = 0

    def __call__(self) -> float:
        self.reads += 1
        return float(self.reads)


@pytest.mark.parametrize("name", ALL_NAMES)
def test_recording_never_touches_the_lanes_clock(name: str, toy: Bench) -> None:
    """Steps written or not, the clock is read equally often: twice a phase."""
    reads: list[int] = []
    for recorded in (True, False):
        ticks = Ticks()
        lane = toy.lane(name, ids=toy.ids("the rain"), budget=8, clock=LaneClock(now=ticks))
        lane.clock.take()
        writer = StepWriter(toy.target.texts)
        before, count = ticks.reads, 0
        for turn in lane.turns():
            count += 1
            if recorded:
                writer.step(turn, lane.method.payload())
                writer.tokens(turn, last=False)
            assert [span.duration_ms for span in turn.spans] == [1000.0] * 4
        assert ticks.reads - before == 8 * count
        reads.append(ticks.reads)
    assert reads[0] == reads[1]


def test_the_clock_waits_for_the_device_at_both_borders_of_a_phase() -> None:
    events: list[str] = []

    def now() -> float:
        events.append("now")
        return float(len(events))

    clock = LaneClock(now=now, synchronize=lambda: events.append("wait"))
    with clock.span("draft"):
        events.append("work")
    assert events == ["wait", "now", "work", "wait", "now"]
    clock.add("verify", 2.0)
    first, second = clock.take()
    assert (first.phase, second.phase) == ("draft", "verify")
    assert second.start_ms == first.duration_ms
    assert clock.take() == ()
    assert clock.elapsed_ms == first.duration_ms + 2.0


def test_drafts_that_were_right_but_cut_off_are_accepted_in_the_record(toy: Bench) -> None:
    ids = toy.ids("the rain in the")
    script = tuple(toy.expected(ids, 12))
    lane = toy.lane(Oracle, {"script": script, "length": 5}, ids=ids, budget=3)
    (turn,) = list(lane.turns())
    step = StepWriter(toy.target.texts).step(turn, None)
    assert len(step.accepted) == 5
    assert step.committed == script[1:3]
    assert [node.status for node in step.nodes].count("accepted") == 5
    assert step.cache_length == len(ids) + 2


def output(tokens: list[int], margins: list[float]) -> Any:
    """A trace of plain decoding, as far as comparing outputs reads it."""
    trace = make_trace("autoregressive", "autoregressive", [])
    base = trace.tokens[0]
    made = [base.model_copy(update={"id": tokens[0]})]
    made += [
        base.model_copy(update={"id": token, "step": index, "source": "target"})
        for index, token in enumerate(tokens[1:])
    ]
    root = Node(id=0, parent=None, depth=0, token_id=1, text="", source="root", status="root")
    step = make_step("a", [], [], "b")
    steps = [
        step.model_copy(
            update={
                "index": index,
                "nodes": (root,),
                "next_token": step.next_token.model_copy(update={"margin": margin, "token_id": token}),
            }
        )
        for index, (token, margin) in enumerate(zip(tokens[1:], margins, strict=True))
    ]
    return trace.model_copy(update={"tokens": tuple(made), "steps": tuple(steps)})


def test_a_first_difference_is_recorded_with_the_margin_at_its_place() -> None:
    reference = output([1, 2, 3, 4], [0.5, 2e-4, 0.7])
    other = output([1, 2, 9, 9], [0.5, 2e-4, 0.7])
    check = compare_outputs(reference, other)
    assert (check.equal, check.first_difference, check.margin) == (False, 2, 2e-4)
    assert compare_outputs(reference, reference).equal


@given(seed=st.integers(0, 1000), width=st.sampled_from([5, 384, 512, 1000, 4096]), count=st.integers(1, 4))
def test_the_best_columns_are_those_of_a_plain_search(seed: int, width: int, count: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(3, width, generator=generator)
    rows[1, : width // 2] = -torch.inf
    values, columns = best_columns(rows, count)
    assert torch.equal(values, torch.topk(rows, count, dim=-1).values)
    assert torch.equal(rows.gather(1, columns), values)
    assert all(len(set(found)) == count for found in columns.tolist())


@pytest.mark.parametrize("name", ALL_NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_greedy_token_is_recorded_with_the_probability_and_margin_of_its_row(name: str, dtype: torch.dtype) -> None:
    bench = make_toy(2, dtype=dtype)
    lane, writer = bench.lane(name, ids=[40, 50, 60, 40, 50, 60], budget=16), StepWriter(bench.target.texts)
    for turn in lane.turns():
        own = writer.step(turn, None).next_token
        row = turn.output.logits[turn.verdict.accepted[-1] if turn.verdict.accepted else 0].float()
        best = torch.topk(row, 2).values
        assert own.token_id == int(row.argmax())
        assert own.probability == pytest.approx(float(row.softmax(-1).max()), rel=1e-4)
        assert own.margin == float(best[0] - best[1])
