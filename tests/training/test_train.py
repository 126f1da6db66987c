"""Both trainings from data file to loadable drafter, on a tiny target."""

import json
import shutil

import pytest
import torch
from pydantic import ValidationError

from explorer.drafters.eagle_head import load_eagle
from explorer.drafters.medusa_heads import load_medusa
from explorer.errors import ExplorerError
from explorer.training import TrainOptions, train_eagle, train_medusa
from explorer.training.data import is_held_out
from explorer.training.target import load_frozen


@pytest.fixture
def options(model_folder, data_file, tmp_path):
    return TrainOptions(
        data=data_file,
        model=model_folder,
        out=tmp_path / "drafter",
        epochs=4,
        learning_rate=5e-3,
        unroll_epochs=1,
        heads=2,
        batch_tokens=256,
        draft_vocab=40,
        save_every=10,
        target_sha256="ef" * 32,
    )


def losses(options, name):
    return torch.load(options.work_folder / name, weights_only=True)["losses"]


def falls(values):
    return sum(values[-5:]) < 0.9 * sum(values[:5])


def test_medusa_learns_and_its_folder_loads(options):
    report = train_medusa(options)
    history = losses(options, "medusa.pt")
    assert len(history) >= 30
    assert falls(history)
    target = load_frozen(options.model, sha256=None)
    heads = load_medusa(options.out, output_weight=target.output_weight, device="cpu", dtype=torch.float32)
    assert (heads.num_heads, heads.hidden_size, len(heads.token_map)) == (2, 64, 40)
    assert heads.accuracies == report.accuracies
    assert all(len(row) == 10 and 0 <= sum(row) <= 1.001 for row in heads.accuracies)
    assert heads.info.target_sha256 == "ef" * 32
    config = json.loads((options.out / "config.json").read_text())
    assert config["draft_vocab_size"] == 40
    assert config["training"]["epochs"] == 4
    assert "Held-out accuracy" in (options.out / "README.md").read_text()


def test_eagle_learns_in_both_stages_and_its_folder_loads(options):
    report = train_eagle(options)
    first, second = losses(options, "eagle-stage-1.pt"), losses(options, "eagle-stage-2.pt")
    assert falls(first)
    assert sum(second[-3:]) < sum(second[:3])
    target = load_frozen(options.model, sha256=None)
    head = load_eagle(
        options.out,
        embed_weight=target.embed_weight,
        output_weight=target.output_weight,
        device="cpu",
        dtype=torch.float32,
    )
    assert (head.hidden_size, len(head.token_map), head.shape.num_kv_heads) == (64, 40, 2)
    assert head.info.bytes == 2 * head.info.parameters + 4 * 40
    held_out = json.loads((options.out / "config.json").read_text())["training"]["held_out"]
    assert held_out["top1"] == report.top1
    assert 1.0 <= report.chain_tokens <= 6.0


def test_the_same_seed_gives_the_same_weights(options, tmp_path):
    train_medusa(options)
    other = options.model_copy(update={"out": tmp_path / "again"})
    train_medusa(other)
    weights = [(folder / "model.safetensors").read_bytes() for folder in (options.out, other.out)]
    assert weights[0] == weights[1]


def test_other_options_do_not_take_up_an_old_state(options):
    train_medusa(options)
    with pytest.raises(ExplorerError, match="belongs to other data or options"):
        train_medusa(options.model_copy(update={"epochs": 1.0}))
    shutil.rmtree(options.work_folder)
    assert train_medusa(options.model_copy(update={"epochs": 1.0})).positions > 0


def test_too_little_data_is_told_before_any_training(options):
    with pytest.raises(ExplorerError, match="No training example is left"):
        train_eagle(options.model_copy(update={"max_tokens": 5}))
    assert not options.out.exists()


def test_nothing_held_out_is_told(options, tmp_path):
    train_only = [line for line in options.data.read_text().splitlines() if not is_held_out(json.loads(line)["prompt"])]
    (tmp_path / "train.jsonl").write_text("\n".join(train_only))
    with pytest.raises(ExplorerError, match="No held-out example is left"):
        train_medusa(options.model_copy(update={"data": tmp_path / "train.jsonl"}))


@pytest.mark.parametrize("wrong", [{"epochs": 0}, {"unroll_steps": 1}, {"no_such_option": 1}])
def test_wrong_options_are_refused(options, wrong):
    with pytest.raises(ValidationError):
        TrainOptions(**(options.model_dump() | wrong))
