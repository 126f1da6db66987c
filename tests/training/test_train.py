"""All trainings from data file to loadable drafter, on a tiny target."""

import json
import shutil

import pytest
import torch
from pydantic import ValidationError

from explorer.drafters.eagle_head import load_eagle
from explorer.drafters.loading import kind_of, load
from explorer.drafters.medusa_heads import load_medusa
from explorer.errors import ExplorerError
from explorer.load import load_target
from explorer.training import TrainOptions, train_draft_model, train_eagle, train_eagle3, train_medusa
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
    assert config["training"]["recipe"]["epochs"] == 4
    assert config["training"]["tokens_seen"] == pytest.approx(4 * config["training"]["train_tokens"], rel=0.01)
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


def test_eagle3_learns_and_its_folder_loads(options):
    report = train_eagle3(options.model_copy(update={"warm_epochs": 1.0}))
    assert falls(losses(options, "eagle3-warm.pt") + losses(options, "eagle3.pt"))
    target = load_target(options.model, model_id="t", label="t", device="cpu", dtype="float32")
    assert kind_of(options.out) == "eagle3"
    head = load("eagle3", options.out, target)
    assert (head.shape.draft_vocab_size, len(head.token_map), head.aux_layers) == (40, 40, (1, 1, 1))
    assert head.info.target_sha256 == "ef" * 32
    assert len(report.accuracies) == 5


def test_a_draft_model_learns_and_its_folder_loads(options):
    report = train_draft_model(options.model_copy(update={"layers": (-1,)}))
    assert falls(losses(options, "draft-model.pt"))
    target = load_target(options.model, model_id="t", label="t", device="cpu", dtype="float32")
    drafter = load("draft-model", options.out, target)
    assert len(drafter.module.base_model.layers) == 1
    assert len(drafter.token_map) == 40
    # No tensor of the target is stored: one layer, one norm, the map.
    weights = (options.out / "model.safetensors").stat().st_size
    assert weights < 2 * drafter.info.parameters + 4 * 40 + 4096
    assert drafter.info.parameters < 60_000
    assert len(report.accuracies) == 5


def test_a_run_leaves_checkpoints_that_load_a_curve_and_a_report(options):
    train_medusa(options)
    curve = json.loads((options.out / "curve.json").read_text())["points"]
    folders = sorted((options.work_folder / "checkpoints").iterdir())
    assert len(curve) == len(folders) >= 5
    assert [int(folder.name.removeprefix("tokens-")) for folder in folders] == [each["train_tokens"] for each in curve]
    assert curve[0]["train_tokens"] <= 0.1 * curve[-1]["train_tokens"]
    target = load_frozen(options.model, sha256=None)
    for folder, point in zip(folders, curve, strict=True):
        heads = load_medusa(folder, output_weight=target.output_weight, device="cpu", dtype=torch.float32)
        assert [row[0] for row in heads.accuracies] == point["top1"]
    page = (options.work_folder / "report.html").read_text()
    assert "Plotly.newPlot" in page
    assert f"{curve[-1]['train_tokens']:,} training tokens" in page
    assert (options.work_folder / "plotly.min.js").stat().st_size > 1_000_000


def test_own_output_matrices_start_as_the_target_and_are_stored(options):
    options = options.model_copy(
        update={"own_output": True, "labels": "text", "head_decay": 0.8, "head_layers": 2, "epochs": 2}
    )
    train_medusa(options)
    target = load_frozen(options.model, sha256=None)
    heads = load_medusa(options.out, output_weight=target.output_weight, device="cpu", dtype=torch.float32)
    assert heads.own_output.shape == (2, 64, 64)
    assert heads.weight.shape[0] == 2
    moved = (heads.own_output - target.output_weight.float()).abs().mean()
    assert 0 < moved < 0.2
    assert falls(losses(options, "medusa.pt"))


def test_drafters_share_features(options, tmp_path):
    shared = options.model_copy(update={"features": tmp_path / "features"})
    train_eagle3(shared)
    written = {path.name: path.stat().st_mtime_ns for path in shared.features.iterdir()}
    train_medusa(shared.model_copy(update={"out": tmp_path / "other"}))
    assert {path.name: path.stat().st_mtime_ns for path in shared.features.iterdir()} == written


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


def test_texts_longer_than_the_context_are_cut_to_it(options, tmp_path):
    lines = [
        {"prompt": f"w{3 + n % 50} w{4 + n % 9}", "ids": [3 + (n + k) % 60 for k in range(300)]} for n in range(60)
    ]
    (tmp_path / "long.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    long = options.model_copy(update={"data": tmp_path / "long.jsonl", "epochs": 1.0, "max_length": 512})
    train_medusa(long)
    assert json.loads((options.out / "config.json").read_text())["training"]["train_tokens"] <= 60 * 128


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no usable pair"),
        ("[1, 2]\n", "Line 1 of .* is not an object"),
        ('{"prompt": "w4", "ids": [1, 2, 900000]}\n', "token id 900000, but the target's vocabulary ends at 63"),
    ],
)
def test_bad_data_is_told_before_any_training(options, tmp_path, text, message):
    (tmp_path / "bad.jsonl").write_text(text)
    with pytest.raises(ExplorerError, match=message):
        train_eagle(options.model_copy(update={"data": tmp_path / "bad.jsonl"}))
    assert not options.out.exists()


@pytest.mark.parametrize(
    "wrong", [{"epochs": 0}, {"unroll_steps": 1}, {"no_such_option": 1}, {"mixed_precision": "fp8"}]
)
def test_wrong_options_are_refused(options, wrong):
    with pytest.raises(ValidationError):
        TrainOptions(**(options.model_dump() | wrong))


def test_layers_are_written_with_semicolons_on_the_command_line(options):
    assert TrainOptions(**(options.model_dump() | {"layers": "0;1; -1"})).layers == (0, 1, -1)
    with pytest.raises(ExplorerError, match="the target has 2 layers, numbered 0 to 1"):
        train_draft_model(options.model_copy(update={"layers": (0, 7)}))


def test_a_precision_that_the_device_lacks_is_told(options):
    with pytest.raises(ExplorerError, match="mixed precision fp16"):
        train_medusa(options.model_copy(update={"mixed_precision": "fp16"}))


def test_a_disk_that_fills_up_while_publishing_keeps_the_trained_state(options, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("explorer.training.monitor.write_checkpoint", full)
        with pytest.raises(ExplorerError, match=r"cannot be written to .*No space left on device"):
            train_medusa(options)
    assert train_medusa(options).positions > 0  # goes on from what was saved
