import dataclasses
import itertools
import json

import pytest

from explorer.events import Checked, Ended, LaneEnded, Preparing, Queued, Stepped
from explorer.figures import FIGURES
from explorer.reel import Reel, badge, model_line, reel_of, rule_mark
from explorer.runs import Run, events_of
from explorer.trace import LosslessCheck
from tests.traces import MODEL, header, make_comparison, make_events

EVENTS = make_events()
KEYS = {
    "schema",
    "run",
    "continues",
    "state",
    "message",
    "progress",
    "prompt",
    "model",
    "settings",
    "max_tokens",
    "titles",
    "lanes",
}
LANE_KEYS = {
    "id", "method", "title", "subtitle", "state", "rule", "badge", "parts_at", "counters", "views", "asides",
    "given", "first", "prefill_ms", "steps", "apart",
}  # fmt: skip


def values_of(events) -> list[dict]:
    reel = Reel(Run(id="r"))
    values = [reel.value]
    for event in events:
        reel.apply(event)
        values.append(reel.value)
    return values


VALUES = values_of([Queued(2), Preparing("Loading the model.", 0.5), *EVENTS])


def test_every_value_is_what_the_contract_says():
    for value in VALUES:
        assert value.keys() == KEYS
        assert json.loads(json.dumps(value, allow_nan=False)) == value
        for lane in value["lanes"]:
            assert lane.keys() == LANE_KEYS
            assert lane["state"] in ("waiting", "running", "done", "cancelled", "error")
            for step in lane["steps"]:
                assert step.keys() == {"t", "ms", "d", "a", "say"}


def test_lists_only_grow_at_their_ends():
    for before, after in itertools.pairwise(VALUES):
        check_grown(before, after, "value")


def check_grown(before, after, where):
    if isinstance(before, dict) and isinstance(after, dict):
        assert before.keys() == after.keys(), where
        for key in before:
            check_grown(before[key], after[key], f"{where}.{key}")
    elif isinstance(before, list) and isinstance(after, list):
        assert len(after) >= len(before), where
        for place, item in enumerate(before):
            check_grown(item, after[place], f"{where}[{place}]")


def test_a_finished_step_never_changes():
    for before, after in itertools.pairwise(VALUES):
        for old, new in zip(before["lanes"], after["lanes"], strict=False):
            assert new["steps"][: len(old["steps"])] == old["steps"]


def test_a_value_stays_as_it_was_when_the_run_goes_on():
    reel = Reel(Run(id="r"))
    for event in EVENTS[:6]:
        reel.apply(event)
    value = reel.value
    frozen = json.dumps(value)
    for event in EVENTS[6:]:
        reel.apply(event)
    assert json.dumps(value) == frozen
    assert reel.value is not value


def test_a_step_costs_a_few_hundred_bytes():
    steps = [step for lane in VALUES[-1]["lanes"] for step in lane["steps"]]
    assert sum(len(json.dumps(step)) for step in steps) / len(steps) < 900


def test_states_and_messages_follow_the_run():
    assert [value["state"] for value in VALUES[:4]] == ["queued", "queued", "preparing", "preparing"]
    assert VALUES[1]["message"] == "Waiting for the model: place 2 in line."
    assert (VALUES[2]["message"], VALUES[2]["progress"]) == ("Loading the model.", 0.5)
    assert VALUES[-1]["state"] == "done"
    assert VALUES[-1]["progress"] is None
    running = [value["progress"] for value in VALUES if value["state"] == "running"]
    assert running == sorted(running)
    assert 0.0 <= running[0] < 0.1
    assert running[-1] == 1.0


def test_counts_are_the_traces_totals():
    comparison = make_comparison()
    for lane, trace in zip(VALUES[-1]["lanes"], comparison.lanes, strict=True):
        counters, totals = lane["counters"], trace.totals
        assert counters["tokens"] == totals.output_tokens
        assert counters["passes"] == totals.target_passes
        assert counters["per_pass"] == pytest.approx(totals.tokens_per_target_pass, abs=1e-3)
        assert counters["clock_ms"] == pytest.approx(totals.prefill_ms + totals.decode_ms, abs=0.01)
        assert sum(step["a"] for step in lane["steps"]) == totals.accepted_drafts
        assert sum(step["d"] for step in lane["steps"]) == totals.drafted_nodes


def test_the_pieces_joined_are_the_output():
    comparison = make_comparison()
    for lane, trace in zip(VALUES[-1]["lanes"], comparison.lanes, strict=True):
        pieces = [lane["first"][0], *(piece[0] for step in lane["steps"] for piece in step["t"])]
        assert "".join(pieces) == "".join(token.text for token in trace.tokens)


def test_tokens_name_their_nodes():
    for lane, trace in zip(VALUES[-1]["lanes"], make_comparison().lanes, strict=True):
        for light, step in zip(lane["steps"], trace.steps, strict=True):
            assert len(light["t"]) == len(step.committed)
            for _, source, token, node in light["t"]:
                assert (node is None) == (source == "target")
                assert node is None or step.nodes[node].token_id == token


def test_speed_up_is_unknown_until_both_lanes_have_stepped():
    reel = Reel(Run(id="r"))
    seen = set()
    for event in EVENTS:
        reel.apply(event)
        for lane in reel.value["lanes"]:
            if lane["counters"]["speedup"] is None:
                assert "autoregressive" not in seen or lane["id"] not in seen
        if hasattr(event, "step"):
            seen.add(event.lane)
    assert next(lane["counters"]["speedup"] for lane in reel.value["lanes"]) == 1.0
    assert all(lane["counters"]["speedup"] > 1 for lane in reel.value["lanes"][1:])


def test_views_are_those_that_the_steps_have():
    for lane, trace in zip(VALUES[-1]["lanes"], make_comparison().lanes, strict=True):
        expected = [view.name for view in FIGURES if any(view.applies(step) for step in trace.steps)]
        assert sorted([*lane["views"], *lane["asides"]]) == sorted(expected)
        assert {view.name for view in FIGURES if view.name in lane["asides"]} >= {"details", "code"}
        assert all((view.name in lane["asides"]) <= (view.place == "aside") for view in FIGURES)


def test_a_stopped_run_stops_its_lanes_and_keeps_their_steps():
    reel = reel_of(Run(id="r"), [*EVENTS[:8], Ended("cancelled", "Stopped.", None)])
    value = reel.value
    assert value["state"] == "cancelled"
    assert value["message"] == "Stopped."
    assert {lane["state"] for lane in value["lanes"]} == {"cancelled"}
    assert sum(len(lane["steps"]) for lane in value["lanes"]) > 0


def test_of_a_stopped_run_only_the_tokens_of_both_lanes_are_called_the_same():
    """A lane that drafts is ahead of the baseline when a viewer stops; what only it has decoded was not compared."""
    steps = [event for event in EVENTS if isinstance(event, Stepped) and event.lane == "autoregressive"]
    late = set(map(id, steps[5:]))
    ended = [event for event in EVENTS if isinstance(event, LaneEnded | Ended)]
    before = [event for event in EVENTS if id(event) not in late and event not in ended]
    value = reel_of(Run(id="r"), [*before, Ended("cancelled", "Stopped.", None)]).value
    plain, eagle = (next(lane for lane in value["lanes"] if lane["id"] == name) for name in ("autoregressive", "eagle"))
    assert plain["counters"]["tokens"] == 6 < eagle["counters"]["tokens"]
    assert eagle["badge"] == {"kind": "equal", "text": "same 6 tokens so far"}


def test_an_error_before_the_start_is_told():
    value = reel_of(Run(id="r"), [Ended("error", "The model file is cut short.", None)]).value
    assert (value["state"], value["message"], value["lanes"]) == ("error", "The model file is cut short.", [])


def test_a_recording_says_so():
    assert reel_of(Run(id="example", recorded=True), EVENTS).value["state"] == "recorded"


def test_reels_fold_into_their_run():
    run = Run(id="r")
    reel_of(run, EVENTS)
    assert len(run.lanes["eagle"].steps) == 8
    assert run.lossless["eagle"].equal


@pytest.mark.parametrize(
    ("method", "state", "check", "kind", "text"),
    [
        ("autoregressive", "done", None, "baseline", "baseline"),
        ("eagle", "running", None, "pending", "compared when it has ended"),
        ("eagle", "cancelled", None, "pending", "not compared"),
        ("eagle", "done", None, "pending", "not compared"),
        ("eagle", "done", LosslessCheck(equal=True), "equal", "same 24 tokens"),
        ("eagle", "cancelled", LosslessCheck(equal=True), "equal", "same 24 tokens so far"),
        ("eagle", "done", LosslessCheck(equal=False, first_difference=4, margin=0.3), "differs",
         "differs from token 5 on, logit margin 0.3"),
        ("eagle", "done", LosslessCheck(equal=False, first_difference=0), "differs", "differs from token 1 on"),
        ("eagle", "done", LosslessCheck(equal=False, first_difference=4, margin=0.0004), "tie",
         "a near-tie, decided by rounding: differs from token 5 on, logit margin 0.0004"),
    ],
)  # fmt: skip
def test_badges(method, state, check, kind, text):
    assert badge(header(method), state, check, 24) == {"kind": kind, "text": text}


def test_badges_of_lossy_rules():
    lossy = dataclasses.replace(header("medusa"), lossless=False)
    assert badge(lossy, "running", None, 9)["kind"] == "lossy"
    assert badge(lossy, "done", LosslessCheck(equal=True), 9)["kind"] == "equal"
    assert badge(lossy, "done", LosslessCheck(equal=False, first_difference=1, margin=1.0), 9)["kind"] == "lossy"


def test_checks_reach_the_badges():
    reel = reel_of(Run(id="r"), EVENTS[:-3])
    assert {lane["badge"]["kind"] for lane in reel.value["lanes"]} == {"baseline", "pending"}
    reel.apply(Checked({"eagle": LosslessCheck(equal=False, first_difference=3, margin=0.2)}))
    assert [lane["badge"]["kind"] for lane in reel.value["lanes"]] == ["baseline", "pending", "differs", "pending"]


def test_model_line():
    assert model_line(MODEL) == "Tiny-1M · float32 · CPU"
    told = MODEL.model_copy(update={"label": "Tiny, 4-bit file, dequantised", "threads": 2})
    assert model_line(told) == "Tiny, 4-bit file, dequantised · float32 · CPU, 2 threads"
    assert model_line(MODEL.model_copy(update={"device": "cuda:0"})).endswith("GPU")


def test_a_near_tie_is_judged_by_the_models_precision():
    """Logits of 32 to 64 are rounded to a quarter in bfloat16: passes of other widths round otherwise."""
    half = dataclasses.replace(header("eagle"), model=MODEL.model_copy(update={"dtype": "bfloat16"}))
    check = LosslessCheck(equal=False, first_difference=4, margin=0.125)
    assert badge(half, "done", check, 24)["kind"] == "tie"
    assert badge(header("eagle"), "done", check, 24)["kind"] == "differs"
    assert badge(half, "done", check.model_copy(update={"margin": 2.0}), 24)["kind"] == "differs"


@pytest.mark.parametrize(
    ("params", "lossless", "text", "title"),
    [
        ({"acceptance_rule": "greedy"}, True, "lossless", "Greedy match: a draft is kept only where"),
        ({"acceptance_rule": "greedy", "temperature": 1.0}, True, "lossless", "Sample match: every token has exactly"),
        ({"acceptance_rule": "speculative", "temperature": 1.0}, True, "lossless", "Speculative sampling: every"),
        (
            {"acceptance_rule": "typical", "temperature": 1.0},
            False,
            "not lossless",
            "Typical acceptance: the rule also",
        ),
        ({"acceptance_rule": "top-k"}, False, "not lossless", "Top-k match: the rule also accepts"),
        ({"acceptance_rule": "block"}, True, "lossless", "Match by block: a draft is kept"),
        ({"acceptance_rule": ["odd"]}, True, "lossless", "A draft is kept only"),
        ({}, False, "not lossless", "The rule also accepts drafts"),
    ],
)
def test_every_lane_says_whether_its_rule_is_lossless(params, lossless, text, title):
    mark = rule_mark(dataclasses.replace(header("medusa", params), lossless=lossless))
    assert mark is not None
    assert (mark["lossless"], mark["text"]) == (lossless, text)
    assert mark["title"].startswith(title)
    assert mark["title"].endswith(".")


def test_the_baseline_has_no_rule():
    assert rule_mark(header("autoregressive")) is None
    assert [lane["rule"] is None for lane in VALUES[-1]["lanes"]] == [True, False, False, False]


def test_the_place_where_an_output_parts_is_told():
    comparison = make_comparison()
    check = LosslessCheck(equal=False, first_difference=4, margin=0.5)
    comparison = comparison.model_copy(update={"lossless": {**comparison.lossless, "eagle": check}})
    value = reel_of(Run(id="x"), events_of(comparison, {}, "")).value
    assert {lane["id"]: lane["parts_at"] for lane in value["lanes"]} == {
        "autoregressive": None, "medusa": None, "eagle": 4, "lookahead": None,
    }  # fmt: skip
