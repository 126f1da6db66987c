"""Acceptance from recorded runs, on the toy: counts add up, and what is written is what was measured."""

import itertools
import json
import shutil
import threading

import pytest
from typer.testing import CliRunner

from explorer.cli import app
from explorer.drafters.checkpoint import write_checkpoint
from explorer.errors import ExplorerError
from explorer.requests import CompareRequest, LaneRequest
from explorer.session import Studio
from explorer.shelf import ShelfSettings
from explorer.toy import toy_drafter, toy_target
from explorer.training.judge import acceptance_by_depth, judge, write_measurement

PROMPTS = ("the red hat", "on the mat in the inn", "an hour there")


@pytest.fixture(scope="module")
def studio():
    return Studio(ShelfSettings(model="toy", device="cpu"))


def traces_of(studio, method):
    traces = []
    for prompt in PROMPTS:
        request = CompareRequest(prompt=prompt, lanes=[LaneRequest(method=method)], max_new_tokens=40)
        traces += [list(studio.compare(request, threading.Event()))[-1].comparison.lanes[0]]
    return traces


@pytest.fixture(scope="module")
def traces(studio):
    return traces_of(studio, "medusa")


def test_acceptance_by_depth_adds_up_to_the_accepted_drafts(traces):
    rows = acceptance_by_depth(traces)
    steps = [step for trace in traces for step in trace.steps]
    assert sum(row.accepted for row in rows) == sum(len(step.accepted) for step in steps) > 0
    assert rows[0].reached == sum(len(step.nodes) > 1 for step in steps)
    assert all(deep.reached <= row.accepted for row, deep in itertools.pairwise(rows))
    assert all(0 <= row.rate <= 1 for row in rows)


@pytest.mark.parametrize("kind", ["medusa", "eagle"])
def test_a_drafter_is_judged_on_the_target_s_own_output(studio, kind):
    traces = traces_of(studio, kind)
    report = judge(studio.shelf.drafter(kind), studio.shelf.target, traces)
    assert report.positions > 60
    assert 1 <= report.chain_tokens <= report.tree_tokens
    assert all(sum(row) <= 1.001 for row in report.accuracies)
    with pytest.raises(ExplorerError, match="no trained drafter to judge"):
        judge(object(), studio.shelf.target, traces)


def test_what_is_measured_is_written_and_the_weights_stay(studio, traces, tmp_path):
    heads = toy_drafter("medusa", toy_target())
    folder = tmp_path / "heads"
    write_checkpoint(folder, heads.export(), {"model_type": "medusa", "medusa_num_heads": heads.num_heads}, "# card\n")
    weights = (folder / "model.safetensors").read_bytes()
    prompts = tmp_path / "p.jsonl"
    prompts.write_text("".join(json.dumps({"category": "x", "prompt": text}) + "\n" for text in PROMPTS))
    command = ["evaluate", "--prompts", str(prompts), "--lane", "medusa:nodes=5", "--drafter", str(folder)]
    told = CliRunner().invoke(app, [*command, "--model", "toy", "--max-new-tokens", "24", "--device", "cpu"])
    assert told.exit_code == 0, told.output
    config = json.loads((folder / "config.json").read_text())
    measured = config["evaluation"]
    assert measured["by_category"]["x"] == measured["tokens_per_target_pass"] >= 1.0
    assert f"{measured['tokens_per_target_pass']:.2f}" in told.output
    assert {len(tree) for tree in config["trees"].values()} <= set(range(1, 64))
    assert config["medusa_num_heads"] == heads.num_heads
    assert (folder / "model.safetensors").read_bytes() == weights
    shutil.rmtree(folder)
    report = judge(studio.shelf.drafter("medusa"), studio.shelf.target, traces)
    with pytest.raises(ExplorerError, match="does not exist"):
        write_measurement(folder, report, {}, prompts)
