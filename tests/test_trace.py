"""Records refuse what cannot be; the counts of a real run add up; a run's data goes through JSON unchanged."""

from __future__ import annotations

import json
import math
import threading
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from pydantic import ValidationError

from explorer.events import Ended
from explorer.metrics import step_ms
from explorer.requests import CompareRequest, LaneRequest
from explorer.session import Studio
from explorer.trace import Comparison, Node, Span, Step, Trace, round_probability
from explorer.trace_io import to_json
from tests.traces import example_step, make_comparison

REQUESTS: list[dict[str, Any]] = [
    {"prompt": "the rain in the", "raw": True},
    {"prompt": "naïve 🙂 שלום \x00 <b>", "max_new_tokens": 30},
    {"prompt": "one two one two", "temperature": 1.2, "top_k": 50, "seed": 9, "max_new_tokens": 24},
    {"prompt": "x", "max_new_tokens": 1},
    {"prompt": "x", "max_new_tokens": 2, "raw": True},
]
LANES = [
    LaneRequest(method="autoregressive"),
    LaneRequest(method="medusa"),
    LaneRequest(method="eagle", params={"nodes": 12, "depth": 3, "top_k": 4}),
    LaneRequest(method="lookahead", params={"pool_from_prompt": True}),
]


def compared(studio: Studio, values: dict[str, Any]) -> Comparison:
    """The comparison of a request on the toy."""
    asked = CompareRequest(lanes=LANES, **({"max_new_tokens": 40} | values))
    ended = next(event for event in studio.compare(asked, threading.Event()) if isinstance(event, Ended))
    assert ended.state == "done"
    assert ended.comparison is not None
    return ended.comparison


@pytest.fixture(scope="module")
def comparisons(studio: Studio) -> list[Comparison]:
    return [compared(studio, values) for values in REQUESTS]


@pytest.fixture(scope="module")
def traces(comparisons: list[Comparison]) -> list[Trace]:
    return [trace for comparison in comparisons for trace in comparison.lanes]


def test_the_counts_add_up(traces: list[Trace]) -> None:
    for trace in traces:
        totals, steps = trace.totals, trace.steps
        assert sum(len(step.committed) for step in steps) + 1 == len(trace.tokens) == totals.output_tokens
        assert totals.target_passes == len(steps)
        assert totals.drafted_nodes == sum(len(step.nodes) - 1 for step in steps)
        assert totals.accepted_drafts == sum(token.source == "draft" for token in trace.tokens)
        if steps:
            assert totals.tokens_per_target_pass == pytest.approx((len(trace.tokens) - 1) / len(steps))
        assert totals.decode_ms == pytest.approx(sum(map(step_ms, steps)))
        assert len(trace.tokens) <= trace.params["max_new_tokens"]
    by_method = Counter(trace.method for trace in traces if trace.totals.accepted_drafts)
    assert {"medusa", "eagle", "lookahead"} <= set(by_method)


def test_tokens_are_what_the_steps_committed(traces: list[Trace]) -> None:
    for trace in traces:
        assert [token.step for token in trace.tokens[:1]] == [None]
        assert trace.tokens[0].source == "prefill"
        committed = [(step.index, token) for step in trace.steps for token in step.committed]
        assert [(token.step, token.id) for token in trace.tokens[1:]] == committed
        for step in trace.steps:
            drafts = [step.nodes[node].token_id for node in step.accepted]
            whole = [*drafts, step.next_token.token_id]
            assert list(step.committed) == whole[: len(step.committed)]
            assert len(step.committed) == len(whole) or step is trace.steps[-1]
            sources = [token.source for token in trace.tokens if token.step == step.index]
            assert sources == (["draft"] * len(drafts) + ["target"])[: len(sources)]
        for before, after in pairwise(trace.steps):
            assert after.nodes[0].token_id == before.committed[-1]
            assert after.index == before.index + 1


def test_statuses_follow_from_the_accepted_path(traces: list[Trace]) -> None:
    for step in (step for trace in traces for step in trace.steps):
        path = [0, *step.accepted]
        assert [step.nodes[below].parent for below in path[1:]] == path[:-1]
        for node in step.nodes:
            if node.id == 0:
                wanted = "root"
            elif node.id in path:
                wanted = "accepted"
            else:
                wanted = "rejected" if node.parent in path else "unreached"
            assert node.status == wanted
            assert node.depth == (0 if node.parent is None else step.nodes[node.parent].depth + 1)
            assert (node.decision is None) == (node.status in ("root", "unreached"))
            if node.decision is not None:
                assert (node.decision.wanted == node.token_id) == (node.status == "accepted")


def test_probabilities_are_the_targets(traces: list[Trace]) -> None:
    for step in (step for trace in traces for step in trace.steps):
        for node in step.nodes:
            probs = [top.prob for top in node.target_top]
            assert probs == sorted(probs, reverse=True)
            assert 0 < sum(probs) <= 1.0001
            assert (node.target_prob is None) == (node.id == 0)
            if node.parent is not None:
                above = {top.token_id: top.prob for top in step.nodes[node.parent].target_top}
                if node.token_id in above:
                    assert above[node.token_id] == pytest.approx(node.target_prob, rel=1e-4)
                else:
                    assert node.target_prob is not None
                    assert node.target_prob <= min(above.values()) * 1.0001
        last = step.nodes[step.accepted[-1] if step.accepted else 0]
        if step.next_token.origin == "argmax":
            assert last.target_top[0].token_id == step.next_token.token_id
            assert last.target_top[0].prob == pytest.approx(step.next_token.probability, rel=1e-4)
            assert step.next_token.margin == pytest.approx(math.log(probs_ratio(last)), abs=1e-3)


def probs_ratio(node: Node) -> float:
    """Best over second probability: its logarithm is the logit margin."""
    return node.target_top[0].prob / node.target_top[1].prob


def test_spans_lie_end_to_end_on_the_lanes_clock(traces: list[Trace]) -> None:
    for trace in traces:
        spans = [*trace.prefill.spans, *(span for step in trace.steps for span in step.spans)]
        end = 0.0
        for span in spans:
            assert span.start_ms == pytest.approx(end, abs=0.01)
            end = span.start_ms + span.duration_ms
        assert {span.phase for span in trace.prefill.spans} <= {"prefill", "drafter-prefill"}
        assert ("drafter-prefill" in {span.phase for span in trace.prefill.spans}) == (trace.drafter is not None)
        for step in trace.steps:
            assert [span.phase for span in step.spans] == ["draft", "verify", "accept", "commit"]


def test_joined_texts_are_the_decoded_output(traces: list[Trace], studio: Studio) -> None:
    texts = studio.shelf.target.texts
    for trace in traces:
        assert "".join(token.text for token in trace.tokens) == texts.decode([token.id for token in trace.tokens])


def test_the_cache_holds_all_but_the_root(traces: list[Trace]) -> None:
    for trace in traces:
        decided = len(trace.prompt.token_ids) + 1
        for step in trace.steps:
            decided += len(step.committed)
            assert step.cache_length == decided - 1


def test_a_trace_says_how_it_was_made(comparisons: list[Comparison]) -> None:
    for comparison, values in zip(comparisons, REQUESTS, strict=True):
        for trace, lane in zip(comparison.lanes, LANES, strict=True):
            assert (trace.method, trace.lane) == (lane.method, lane.method)
            assert trace.schema_version == 1
            assert trace.model.id == "toy"
            assert trace.params["seed"] == values.get("seed", 0)
            assert trace.params["temperature"] == values.get("temperature", 0.0)
            assert {"top_k", "top_p", "acceptance_rule", *lane.params} <= set(trace.params)
            assert trace.prompt.template_applied == (not values.get("raw", False))
            assert values["prompt"] in trace.prompt.text
            assert trace.stop_reason in ("length", "eos")
            assert trace.branch is None
            assert {step.payload["kind"] for step in trace.steps if step.payload} <= {trace.method}


def test_greedy_lanes_are_checked_against_plain_decoding_and_sampled_ones_are_not(
    comparisons: list[Comparison],
) -> None:
    for comparison, values in zip(comparisons, REQUESTS, strict=True):
        if values.get("temperature"):
            assert comparison.lossless == {}
        else:
            assert set(comparison.lossless) == {"medusa", "eagle", "lookahead"}
            for lane, check in comparison.lossless.items():
                assert check.equal or (check.margin or 0.0) < 1e-3, lane


def without_times(trace: Trace) -> dict[str, Any]:
    """A trace's data but for what a clock measured."""
    data = trace.model_dump(mode="json")
    data["prefill"] = [span["phase"] for span in data["prefill"]["spans"]]
    for step in data["steps"]:
        step["spans"] = [span["phase"] for span in step["spans"]]
    for name in ("prefill_ms", "decode_ms", "tokens_per_second"):
        del data["totals"][name]
    return data


@pytest.mark.parametrize("place", [0, 2])
def test_the_same_request_gives_the_same_trace(place: int, studio: Studio, comparisons: list[Comparison]) -> None:
    again = compared(studio, REQUESTS[place])
    for one, other in zip(again.lanes, comparisons[place].lanes, strict=True):
        assert without_times(one) == without_times(other)


def test_a_lanes_trace_does_not_depend_on_the_lanes_beside_it(studio: Studio, comparisons: list[Comparison]) -> None:
    values = {"max_new_tokens": 40} | REQUESTS[2]
    for place in (3, 1):
        asked = CompareRequest(lanes=[LANES[place]], **values)
        ended = next(event for event in studio.compare(asked, threading.Event()) if isinstance(event, Ended))
        assert ended.comparison is not None
        assert without_times(ended.comparison.lanes[0]) == without_times(comparisons[2].lanes[place])


def test_json_and_back_is_the_same_comparison(comparisons: list[Comparison]) -> None:
    for comparison in comparisons:
        text = to_json(comparison)
        assert json.loads(text) == comparison.model_dump(mode="json")
        assert to_json(Comparison.model_validate(json.loads(text))) == text


def test_unknown_fields_and_payload_kinds_are_kept() -> None:
    data = Comparison.model_validate(make_comparison().model_dump(mode="json")).model_dump(mode="json")
    data["lanes"][0]["steps"][0]["payload"] = {"kind": "of-tomorrow", "x": [1, {"y": None}]}
    data["lanes"][0]["later"] = {"a": 1}
    again = Comparison.model_validate(data).model_dump(mode="json")
    assert again == data


@pytest.mark.parametrize("value", [0.0, 1.0, 1 / 3, 1e-12, 0.123456789, 2.5e-7])
def test_probabilities_keep_six_digits(value: float) -> None:
    assert round_probability(value) == pytest.approx(value, rel=5e-6)
    assert round_probability(value) == round_probability(round_probability(value))


def changed_step(**changes: Any) -> dict[str, Any]:
    return example_step().model_dump(mode="json") | changes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"accepted": [99]}, "an accepted node does not exist"),
        ({"accepted": [0]}, "an accepted node does not exist"),
        ({"accepted": [-1]}, "an accepted node does not exist"),
        ({"nodes": []}, "at least 1 item"),
        ({"index": -1}, "greater than or equal to 0"),
        ({"index": "two"}, "valid integer"),
        ({"cache_length": None}, "valid integer"),
        ({"committed": "abc"}, "valid tuple"),
        ({"payload": []}, "valid dictionary"),
    ],
)
def test_steps_that_cannot_be_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Step.model_validate(changed_step(**changes))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("parent", 7),
        ("parent", None),
        ("id", 4),
        ("token_id", -3),
        ("draft_prob", 1.5),
        ("draft_prob", math.nan),
        ("target_prob", -0.1),
        ("score", math.inf),
        ("status", "maybe"),
        ("text", None),
        ("target_top", [{"token_id": 1, "text": "x", "prob": 2.0}]),
    ],
)
def test_nodes_that_cannot_be_are_refused(field: str, value: Any) -> None:
    data = changed_step()
    data["nodes"][3][field] = value
    with pytest.raises(ValidationError):
        Step.model_validate(data)


def test_negative_and_endless_times_are_refused() -> None:
    for start, duration in ((-1.0, 1.0), (0.0, -1.0), (math.nan, 1.0), (0.0, math.inf)):
        with pytest.raises(ValidationError):
            Span(phase="draft", start_ms=start, duration_ms=duration)


def test_records_cannot_be_changed() -> None:
    step = example_step()
    with pytest.raises(ValidationError, match="frozen"):
        step.index = 3  # type: ignore[misc]


@pytest.mark.parametrize("change", ["no steps", "a step left out", "another token"])
def test_an_output_that_its_steps_did_not_commit_is_refused(change: str) -> None:
    data = make_comparison().lanes[0].model_dump(mode="json")
    if change == "no steps":
        data["steps"] = []
    elif change == "a step left out":
        del data["steps"][1]
    else:
        data["tokens"][-1]["id"] += 1
    with pytest.raises(ValidationError):
        Trace.model_validate(data)


def test_lossless_names_only_lanes_that_exist() -> None:
    data = make_comparison().model_dump(mode="json")
    data["lossless"]["nobody"] = {"equal": True}
    with pytest.raises(ValidationError):
        Comparison.model_validate(data)
