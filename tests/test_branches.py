"""What if: a branch from a forced token, a lane with other parameters; nobody else's run changes."""

from __future__ import annotations

import base64
import gzip
import json
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from explorer.branches import choices, parameters, place_of, read_extension
from explorer.errors import ExplorerError
from explorer.events import Ended, Event, Extended, LaneEnded, Prefilled, Stepped
from explorer.figures.serve import frames, overview
from explorer.reel import Reel
from explorer.replay import replay_html
from explorer.requests import MAX_LANES, CompareRequest, LaneRequest
from explorer.runs import Run
from explorer.session import Studio, recorded_events
from explorer.trace import Comparison, Trace
from explorer.trace_io import read_comparison, to_json, write
from tests.lanes import ALL_NAMES

PROMPT = "1 2 3 1 2 3 1 2 3"
TOKENS = 20
GIVEN = ("given", "forced")


def run_of(studio: Studio, lanes: tuple[str, ...] = ALL_NAMES, **values: Any) -> Run:
    """A finished run."""
    settings = {"max_new_tokens": TOKENS} | values
    request = CompareRequest(prompt=PROMPT, lanes=[LaneRequest(method=name) for name in lanes], **settings)
    run = studio.runs.new()
    for event in studio.compare(request, threading.Event()):
        run.apply(event)
    return run


def extend(studio: Studio, run: Run, seen: Callable[[Event], object] = lambda event: None, **posted: Any) -> Trace:
    """One more lane of the run, folded in; its trace."""
    request = read_extension(posted)
    held = studio.extendable(run.id, request)
    assert held is run, "a viewer's own run is extended in place"
    for event in studio.extend(run, request, threading.Event()):
        run.apply(event)
        seen(event)
    assert run.comparison is not None
    return run.comparison.lanes[-1]


def refusal(studio: Studio, run_id: object, **posted: Any) -> str:
    """The sentence in which the lane is refused."""

    def ask() -> None:
        request = read_extension(posted)
        list(studio.extend(studio.extendable(run_id, request), request, threading.Event()))

    with pytest.raises(ExplorerError) as refused:
        ask()
    sentence = str(refused.value)
    assert sentence.endswith(".")
    return sentence


def ids(trace: Trace) -> list[int]:
    return [token.id for token in trace.tokens]


@pytest.fixture
def run(studio: Studio) -> Run:
    return run_of(studio, ("autoregressive", "eagle"))


def lane(run: Run, name: str) -> Trace:
    trace = run.lanes[name].trace
    assert trace is not None
    return trace


def rejected(trace: Trace) -> tuple[int, int]:
    """A step and a draft that the target turned down, with room behind it."""
    return next(
        (step.index, node.id)
        for step in trace.steps
        for node in step.nodes
        if node.status == "rejected" and step.index > 0
    )


@pytest.mark.parametrize("name", ALL_NAMES)
def test_the_token_that_was_there_anyway_leads_to_the_same_output(name: str, studio: Studio) -> None:
    run = run_of(studio, ("autoregressive", name) if name != "autoregressive" else (name,))
    source = lane(run, name)
    places = [(step.index, node) for step in source.steps[1:4] for node in (0, "next") if step.committed]
    assert places
    for step, node in places:
        branch = extend(studio, run, lane=name, force={"step": step, "node": node})
        assert ids(branch) == ids(source)
        assert run.lossless[branch.lane].equal
        if len(run.lanes) == MAX_LANES:
            break


def check_counts(branch: Trace) -> None:
    """Given, first and committed tokens are the output, in that order."""
    given = [token for token in branch.tokens if token.source in GIVEN]
    assert branch.tokens[: len(given)] == tuple(given)
    assert branch.tokens[len(given)].source == "prefill"
    committed = [token for step in branch.steps for token in step.committed]
    assert ids(branch) == [*(token.id for token in given), ids(branch)[len(given)], *committed]
    assert branch.totals.output_tokens == len(branch.tokens) <= TOKENS
    assert branch.totals.target_passes == len(branch.steps)
    assert branch.totals.tokens_per_target_pass * len(branch.steps) == pytest.approx(len(committed))


@pytest.mark.parametrize("name", ALL_NAMES)
def test_a_forced_token_is_in_the_output_and_counts_add_up(name: str, studio: Studio) -> None:
    run = run_of(studio, (name,))
    source = lane(run, name)
    place = place_of(source, 2, "next")
    other = next(top.token_id for top in place.instead if top.token_id != place.token_id)
    branch = extend(studio, run, lane=name, force={"step": 2, "node": "next", "token_id": other})
    at = len(place.before)
    assert ids(branch)[: at + 1] == [*ids(source)[:at], other]
    assert [token.source for token in branch.tokens[: at + 2]] == ["given"] * at + ["forced", "prefill"]
    assert branch.branch is not None
    assert (branch.branch.kind, branch.branch.lane, branch.branch.step) == ("forced", name, 2)
    assert (branch.branch.position, branch.branch.token_ids) == (at, (other,))
    assert branch.lane not in run.lossless, "a text of its own is compared with nothing"
    check_counts(branch)
    # what goes on from there is what the model says after that beginning
    expected = extend(studio, run, lane=branch.lane, force={"step": 0, "node": "next"})
    assert ids(expected) == ids(branch)


def test_any_node_can_be_forced_with_all_that_leads_to_it(studio: Studio) -> None:
    run = run_of(studio, ("eagle",))
    source = lane(run, "eagle")
    step = next(step for step in source.steps[1:] if any(node.depth > 1 for node in step.nodes))
    deep = next(node for node in step.nodes if node.status == "unreached" and node.depth > 1)
    path, at = [], deep.id
    while at:
        path.insert(0, step.nodes[at].token_id)
        at = step.nodes[at].parent or 0
    branch = extend(studio, run, lane="eagle", force={"step": step.index, "node": deep.id})
    begun = sum(token.step is None or token.step < step.index for token in source.tokens)
    assert ids(branch)[: begun + len(path)] == [*ids(source)[:begun], *path]
    assert branch.branch is not None
    assert branch.branch.token_ids == tuple(path[branch.branch.position - begun :])  # type: ignore[operator]
    check_counts(branch)


def test_own_text_is_forced_token_by_token(run: Run, studio: Studio) -> None:
    branch = extend(studio, run, lane="eagle", force={"step": 1, "node": "next", "text": " then\u202e 🙂"})
    forced = [token for token in branch.tokens if token.source == "forced"]
    assert "".join(token.text for token in branch.tokens).count("🙂") == 1
    assert [token.id for token in forced] == list(studio.shelf.target.tokenizer(" then\u202e 🙂")["input_ids"])
    check_counts(branch)


def test_a_lane_runs_again_with_another_parameter(run: Run, studio: Studio) -> None:
    source = lane(run, "eagle")
    again = extend(studio, run, lane="eagle", params={"depth": 1})
    assert again.params == source.params | {"depth": 1}
    assert again.prompt == source.prompt
    assert again.branch is not None
    assert (again.branch.kind, again.branch.lane, again.branch.changed) == ("rerun", "eagle", {"depth": 5})
    assert max(node.depth for step in again.steps for node in step.nodes) == 1
    assert run.lossless[again.lane].equal
    assert "depth 1, not 5" in run.lanes[again.lane].header.subtitle


def test_the_first_lanes_stay_as_they_were(run: Run, studio: Studio) -> None:
    other = run_of(studio, ("autoregressive", "medusa"))
    assert run.comparison is not None
    before, beside = run.comparison, to_json(other.comparison) if other.comparison else ""
    value = Reel.resumed(run).value["lanes"]
    extend(studio, run, lane="eagle", force={"step": 1, "node": "next"})
    extend(studio, run, lane="eagle", params={"nodes": 3})
    assert [trace.lane for trace in run.comparison.lanes] == ["autoregressive", "eagle", "eagle-2", "eagle-3"]
    assert run.comparison.lanes[:2] == before.lanes
    assert Reel.resumed(run).value["lanes"][:2] == value
    assert other.comparison is not None
    assert to_json(other.comparison) == beside


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.9, "seed": 3}], ids=["greedy", "sampled"])
def test_same_seed_same_branch(settings: dict[str, Any], studio: Studio) -> None:
    run = run_of(studio, ("autoregressive", "draft-model"), **settings)
    step, node = rejected(lane(run, "draft-model"))
    stories = []
    for _ in range(2):
        branch = extend(studio, run, lane="draft-model", force={"step": step, "node": node})
        stories.append([ids(branch), [each.model_dump(exclude={"spans"}) for each in branch.steps]])
    assert stories[0] == stories[1]
    assert all(key not in run.lossless for key in ("draft-model-2", "draft-model-3"))


def test_a_branch_runs_again_as_a_branch(run: Run, studio: Studio) -> None:
    step, node = rejected(lane(run, "eagle"))
    branch = extend(studio, run, lane="eagle", force={"step": step, "node": node})
    again = extend(studio, run, lane=branch.lane, params={"nodes": 2})
    assert ids(again) == ids(branch)
    assert again.branch is not None
    assert (again.branch.kind, again.branch.changed) == ("forced", {"nodes": 11})
    check_counts(again)


def test_the_reel_grows_by_one_lane_at_its_end(run: Run, studio: Studio) -> None:
    request = read_extension({"lane": "eagle", "force": {"step": 1, "node": "next", "text": "cat"}})
    reel = Reel.resumed(run)
    whole = Reel.resumed(run).value
    assert reel.value == whole
    states, kinds = [], []
    for event in studio.extend(run, request, threading.Event()):
        reel.apply(event)
        states.append(reel.value["state"])
        kinds.append(type(event))
        assert reel.value["lanes"][:2] == whole["lanes"]
    assert list(dict.fromkeys(states)) == ["preparing", "running", "done"]
    assert [kind for kind in (Extended, Prefilled, Stepped, LaneEnded, Ended) if kind not in kinds] == []
    assert Reel.resumed(run).value == reel.value
    added = reel.value["lanes"][-1]
    assert added["id"] == "eagle-2"
    assert added["title"] == "EAGLE (2)"
    before = len(place_of(lane(run, "eagle"), 1, "next").before)
    assert added["subtitle"].startswith(f'branch of EAGLE at token {before + 1}: "cat"')
    assert added["badge"] == {"kind": "branch", "text": "a text of its own; not compared"}
    assert [source for _, source, _ in added["given"]] == ["given"] * before + ["forced"] * 3
    assert added["state"] == "done"


def test_figures_download_and_replay_have_the_branch(run: Run, studio: Studio, tmp_path: Path) -> None:
    branch = extend(studio, run, lane="eagle", force={"step": 1, "node": "next", "text": "cat"})
    asked = {"run": run.id, "lane": branch.lane, "lo": 0, "hi": 2, "views": ["tree", "drafts"], "theme": "light"}
    assert frames(studio.runs, asked)["ok"]
    race = overview(studio.runs, {"run": run.id, "view": "race", "theme": "dark", "axis": "passes"})["view"]
    assert race["data"][2]["y"][0] == sum(token.source in GIVEN for token in branch.tokens) + 1
    assert run.comparison is not None
    write(run.comparison, tmp_path / "run.json")
    read = read_comparison(tmp_path / "run.json")
    assert to_json(read) == to_json(run.comparison)
    opened = studio.open_recording(tmp_path / "run.json")
    assert Reel.resumed(opened).value["lanes"] == Reel.resumed(run).value["lanes"]
    packed = re.search(r'id="block-index">([^<]+)<', replay_html(read, recorded_events))
    assert packed is not None
    index = json.loads(gzip.decompress(base64.b64decode(packed[1])))
    assert index["value"]["lanes"] == Reel.resumed(run).value["lanes"]
    assert "drafts" in index["frames"][branch.lane]


def test_a_recording_that_everybody_sees_is_copied_first(run: Run, studio: Studio, tmp_path: Path) -> None:
    assert run.comparison is not None
    write(run.comparison, tmp_path / "run.json")
    shared = studio.open_recording(tmp_path / "run.json", "shared-by-all")
    value, text = Reel.resumed(shared).value, to_json(run.comparison)
    request = read_extension({"lane": "eagle", "force": {"step": 1, "node": "next", "text": "cat"}})
    copied = studio.extendable("shared-by-all", request)
    for event in studio.extend(copied, request, threading.Event()):
        copied.apply(event)
    assert copied.id != "shared-by-all"
    assert copied.continues == "shared-by-all"
    assert copied.state == "done"
    assert list(copied.lanes) == ["autoregressive", "eagle", "eagle-2"]
    assert Reel.resumed(shared).value == value
    assert shared.comparison is not None
    assert to_json(shared.comparison) == text
    added = Reel.resumed(copied).value["lanes"][-1]
    assert added["counters"]["speedup"] is None, "it was measured on another occasion than the baseline"


def test_stop_keeps_the_branch_so_far_and_the_run(run: Run, studio: Studio) -> None:
    request = read_extension({"lane": "autoregressive", "force": {"step": 0, "node": "next"}})
    stop = threading.Event()
    events = studio.extend(run, request, stop)
    for event in events:
        run.apply(event)
        if isinstance(event, Stepped):
            stop.set()
    assert run.state == "cancelled"
    assert run.comparison is not None
    assert [trace.stop_reason for trace in run.comparison.lanes][-1] == "cancelled"
    assert len(run.comparison.lanes) == 3
    extend(studio, run, lane="eagle", params={"depth": 2})  # and it may go on


def test_two_extensions_of_one_run_do_not_meet(run: Run, studio: Studio) -> None:
    request = read_extension({"lane": "eagle", "params": {"depth": 2}})
    first = studio.extend(run, request, threading.Event())
    run.apply(next(event for event in first if not isinstance(event, Ended)))
    with pytest.raises(ExplorerError, match="is being added|has ended"):
        list(studio.extend(run, request, threading.Event()))
    first.close()  # type: ignore[attr-defined]


POSTED: tuple[tuple[dict[str, Any], str], ...] = (
    ({}, "cannot be read"),
    ({"lane": "eagle"}, "one of the two"),
    ({"lane": "eagle", "params": {}, "force": {"step": 0, "node": 0}}, "one of the two"),
    ({"lane": "nobody", "params": {}}, "no such lane"),
    ({"lane": "eagle", "params": {"depth": 99}}, "depth is 99"),
    ({"lane": "eagle", "params": {"colour": 1}}, "no parameter 'colour'"),
    ({"lane": "eagle", "params": {"depth": [1]}}, "cannot be read"),
    ({"lane": "eagle", "force": {"step": 0, "node": 4000}}, "no such node"),
    ({"lane": "eagle", "force": {"step": 4000, "node": 1}}, "no step 4001"),
    ({"lane": "eagle", "force": {"step": -1, "node": 1}}, "cannot be read"),
    ({"lane": "eagle", "force": {"step": 1, "node": "root"}}, "cannot be read"),
    ({"lane": "eagle", "force": {"step": 1, "node": 1, "token_id": -5}}, "knows 384 tokens"),
    ({"lane": "eagle", "force": {"step": 1, "node": 1, "token_id": 10**9}}, "knows 384 tokens"),
    ({"lane": "eagle", "force": {"step": 1, "node": 1, "token_id": 0}}, "ends the output"),
    ({"lane": "eagle", "force": {"step": 1, "node": 1, "text": ""}}, "text to go on with is empty"),
    ({"lane": "eagle", "force": {"step": 1, "node": 1, "text": "<|end|>"}}, "ends the output"),
    ({"lane": "eagle", "force": {"step": 1, "node": 1, "text": "qwertyuiopasdfghjkl"}}, "16 at most"),
    ({"lane": "eagle", "force": {"step": 1, "node": 1, "text": "x" * 500}}, "200 characters"),
)


@pytest.mark.parametrize(("posted", "words"), POSTED)
def test_bad_wishes_are_one_sentence(posted: dict[str, Any], words: str, run: Run, studio: Studio) -> None:
    before = Reel.resumed(run).value
    assert words in refusal(studio, run.id, **posted)
    assert Reel.resumed(run).value == before


def test_a_token_past_the_limit_is_refused(run: Run, studio: Studio) -> None:
    last = len(lane(run, "autoregressive").steps) - 1
    force = {"step": last, "node": "next"}
    assert f"limit is {TOKENS}" in refusal(studio, run.id, lane="autoregressive", force=force)


def test_a_run_that_is_not_there_or_not_over_is_refused(studio: Studio) -> None:
    wish: dict[str, Any] = {"lane": "eagle", "params": {"depth": 2}}
    for unknown in ("nobody", None, 5, ["x"]):
        assert "no longer held" in refusal(studio, unknown, **wish)
    assert "has ended" in refusal(studio, studio.runs.new().id, **wish)


def test_a_full_run_takes_no_more_lanes(studio: Studio) -> None:
    run = run_of(studio, ("eagle",) * MAX_LANES, max_new_tokens=4)
    assert f"{MAX_LANES} are the most" in refusal(studio, run.id, lane="eagle", params={"depth": 2})
    with pytest.raises(ExplorerError, match="are the most"):
        parameters(run, {"lane": "eagle"})


def recorded_with(run: Run, studio: Studio, tmp_path: Path, **changes: Any) -> str:
    """The run as an opened recording, each lane changed; its id."""
    assert run.comparison is not None
    lanes = tuple(trace.model_copy(update=changes) for trace in run.comparison.lanes)
    write(Comparison(lanes=lanes), tmp_path / "changed.json")
    return studio.open_recording(tmp_path / "changed.json").id


def test_a_recording_of_another_model_is_refused(run: Run, studio: Studio, tmp_path: Path) -> None:
    model = lane(run, "eagle").model
    wish: dict[str, Any] = {"lane": "eagle", "force": {"step": 1, "node": "next"}}
    for changes in ({"id": "other", "label": "Other"}, {"sha256": "00"}, {"dtype": "bfloat16"}):
        other = recorded_with(run, studio, tmp_path, model=model.model_copy(update=changes))
        assert "answers here, so it cannot go on" in refusal(studio, other, **wish)
    same = recorded_with(run, studio, tmp_path)
    request = read_extension(wish)
    assert studio.extendable(same, request).id == same, "an opened recording belongs to who opened it"


def test_a_recording_with_absurd_contents_is_refused(run: Run, studio: Studio, tmp_path: Path) -> None:
    wish: dict[str, Any] = {"lane": "eagle", "params": {"depth": 2}}
    trace = lane(run, "eagle")
    prompt = trace.prompt.model_copy(update={"token_ids": (5, 10**7)})
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"prompt": prompt}, "knows 384 tokens"),
        ({"prompt": trace.prompt.model_copy(update={"token_ids": (-1,)})}, "knows 384 tokens"),
        ({"prompt": trace.prompt.model_copy(update={"token_ids": tuple([5] * 2000)})}, "context of 1,024"),
        ({"method": "telepathy"}, "no method 'telepathy'"),
        ({"params": trace.params | {"sampling": "hot"}}, "how its tokens were chosen"),
        ({"params": trace.params | {"depth": "deep"}}, "depth is 'deep'"),
    )
    for changes, words in cases:
        assert words in refusal(studio, recorded_with(run, studio, tmp_path, **changes), **wish)


def test_choices_are_the_targets_best_and_the_token_itself(run: Run) -> None:
    source = lane(run, "eagle")
    for step in source.steps[1:6]:
        for node in (0, *range(1, len(step.nodes)), "next"):
            told = choices(run, {"lane": "eagle", "step": step.index, "node": node})
            place = place_of(source, step.index, node)
            assert told["position"] == len(place.before) + 1
            assert told["token"]["id"] == place.token_id
            assert 1 <= len(told["instead"]) <= 4
            output = ids(source)
            assert told["taken"] == (output[: len(place.before) + 1] == [*place.before, place.token_id])
    assert choices(run, {"lane": "eagle", "step": 0, "node": 0})["instead"] == []


def test_parameters_are_described_with_the_lanes_values(run: Run) -> None:
    told = parameters(run, {"lane": "eagle"})
    assert set(told["values"]) == {field["name"] for field in told["fields"]}
    assert told["values"]["depth"] == 5
    with pytest.raises(ExplorerError, match="no parameters to change"):
        parameters(run, {"lane": "autoregressive"})


@pytest.mark.parametrize("question", [None, 3, [], {}, {"lane": 3}, {"lane": "eagle", "step": "x", "node": 1}])
def test_questions_of_any_kind_get_a_sentence(question: object, run: Run) -> None:
    with pytest.raises(ExplorerError):
        choices(run, question)
