"""Killed runs and several processes: neither may change what a run learns."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

PROJECT = Path(__file__).resolve().parents[2]


def command(model_folder, data_file, out, *more):
    settings = ["draft_vocab=40", "save_every=5", "learning_rate=0.005", "target_sha256=aa", *more]
    return [
        *("-m", "explorer", "train", "medusa", "--data", str(data_file), "--out", str(out)),
        *("--model", str(model_folder), "--heads", "2", "--epochs", "6"),
        *(part for setting in settings for part in ("--set", setting)),
    ]


def environment():
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(PROJECT)}


def run(arguments, **more):
    return subprocess.run(
        [sys.executable, *arguments], cwd=PROJECT, env=environment(), capture_output=True, text=True, check=True, **more
    )


def state(out):
    return torch.load(out.with_name(out.name + "-work") / "medusa.pt", weights_only=True)


def test_a_killed_run_is_taken_up_and_ends_as_if_it_had_not_been(model_folder, data_file, tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    slow = ("mixed_precision=no", "batch_tokens=32")
    run(command(model_folder, data_file, whole, *slow))
    saved = killed.with_name("killed-work") / "medusa.pt"
    process = subprocess.Popen(
        [sys.executable, *command(model_folder, data_file, killed, *slow)],
        cwd=PROJECT,
        env=environment(),
        stderr=subprocess.DEVNULL,
    )
    while not saved.exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not killed.exists()  # it was still at work
    done = len(torch.load(saved, weights_only=True)["losses"])
    run(command(model_folder, data_file, killed, *slow))
    assert 0 < done < len(state(whole)["losses"])
    assert state(killed)["losses"] == state(whole)["losses"]
    assert (killed / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    curves = [json.loads((out / "curve.json").read_text())["points"] for out in (killed, whole)]
    assert curves[0] == curves[1]


def test_two_processes_learn_what_one_does_with_the_same_effective_batch(model_folder, data_file, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    plain = ("mixed_precision=no", "batch_tokens=128")
    run(command(model_folder, data_file, one, *plain, "accumulate=2"))
    # accelerate's launcher starts several processes under this flag only; without a GPU they talk through gloo.
    launch = ("-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1")
    launch += ("--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0")
    run([*launch, *command(model_folder, data_file, two, *plain)], timeout=240)
    config = json.loads((two / "config.json").read_text())
    assert config["training"]["processes"] == 2
    losses = [torch.tensor(state(out)["losses"]) for out in (one, two)]
    assert len(losses[0]) > 20
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-4, atol=1e-4)
    assert losses[0][-5:].mean() < 0.95 * losses[0][:5].mean()


def test_one_process_takes_up_what_two_began(model_folder, data_file, tmp_path):
    """The saved state names the effective batch, not the machine."""
    out = tmp_path / "drafter"
    plain = ("mixed_precision=no", "batch_tokens=128")
    run(command(model_folder, data_file, out, *plain, "accumulate=2"))
    before = state(out)["losses"]
    told = run(command(model_folder, data_file, out, *plain, "accumulate=2"))
    assert "Written to" in told.stdout
    assert state(out)["losses"] == before
    with pytest.raises(subprocess.CalledProcessError) as refused:
        run(command(model_folder, data_file, out, *plain, "accumulate=3"))
    assert "belongs to other data or options" in refused.value.stderr
    assert "Traceback" not in refused.value.stderr
