"""Why a lane is slower or faster is told by its own numbers, and they add up."""

import re

from explorer.figures.timeline import TIMELINE, phases_a_token
from explorer.figures.verdicts import size_summary, verdicts
from explorer.metrics import ms_per_token, speedup
from explorer.runs import Run, events_of
from explorer.trace import Comparison, Draft, SizeChoice
from tests.figures.checks import LIGHT
from tests.traces import grouped, make_run, make_trace

NUMBERS = re.compile(r"\((\d+\.\d+)×\): a step costs (\d+\.\d+) plain ones \(.*\) and gives (?:only )?(\d+\.\d+)")


def run_of(*traces):
    run = Run(id="made")
    for event in events_of(Comparison(lanes=traces), {}, ""):
        run.apply(event)
    return run


def sized(choices):
    trace = make_trace("eagle", "eagle", grouped([1] * len(choices), "eagle", 4.0))
    steps = [step.model_copy(update={"size": choice}) for step, choice in zip(trace.steps, choices, strict=True)]
    return run_of(trace.model_copy(update={"steps": tuple(steps)})).lanes["eagle"]


def choice(nodes, declined=None, probing=False):
    return SizeChoice(
        nodes=nodes, depth=min(nodes, 2), branch_tokens=0, expected_tokens=1.0, expected_ms=10.0, plain_ms=10.0,
        calibration=1.0, probing=probing, declined=declined,
    )  # fmt: skip


def test_a_verdict_a_lane_that_drafts_and_its_numbers_give_the_speed_up():
    run = make_run()
    told = verdicts(run)
    assert len(told) == len(run.lanes) - 1
    plain = run.lanes["autoregressive"].trace
    for record in list(run.lanes.values())[1:]:
        words = next(each for each in told if each.startswith(record.header.title))
        speed, cost, tokens = map(float, NUMBERS.search(words).groups())
        assert speed == round(speedup(plain, record.trace), 2)
        assert abs(tokens / cost - speed) < 0.03
        assert ("slower" in words) == (speed < 0.98)
        assert ("faster" in words) == (speed > 1.02)


def test_the_slowest_comes_first():
    speeds = [float(NUMBERS.search(words)[1]) for words in verdicts(make_run())]
    assert speeds == sorted(speeds)


def test_without_a_plain_lane_there_is_no_verdict():
    assert verdicts(run_of(make_trace("eagle", "eagle", grouped([2, 1, 2, 1], "eagle", 4.0)))) == []
    assert verdicts(Run(id="empty")) == []


def test_a_lane_that_declined_to_draft_says_why():
    other = Draft(rows=4, expected_tokens=1.2, expected_ms=15.0)
    words = size_summary(sized([choice(4), choice(0, other), choice(0, other), choice(2, probing=True)]))
    assert "drafts in 2 of 4 steps, 3.0 nodes on average, 4 at most" in words
    assert "2 steps drafted nothing, since the best draft would have made a step cost 1.50 plain ones" in words
    assert "1.20 tokens expected" in words
    assert "1 step tried drafting out" in words


def test_a_lane_that_found_nothing_says_so():
    words = size_summary(sized([choice(0), choice(0), choice(0)]))
    assert "nothing drafted in 3 steps" in words
    assert "nothing to draft" in words


def test_a_fixed_size_has_no_summary():
    assert size_summary(make_run().lanes["eagle"]) is None


def test_phases_stack_up_to_the_time_of_a_token():
    run = make_run()
    built = TIMELINE.build(run, LIGHT, "phases")
    for row, record in enumerate(run.lanes.values()):
        whole = ms_per_token(list(record.steps))
        assert abs(sum(phases_a_token(record).values()) - whole) < 1e-6
        assert abs(sum(trace["x"][row] for trace in built["data"]) - whole) < 1e-2
    assert built["layout"]["barmode"] == "stack"
    assert "measured" in built["layout"]["xaxis"]["title"]["text"]
    assert built["words"] == verdicts(run)
