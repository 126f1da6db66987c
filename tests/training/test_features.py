"""Cached features equal the target's own hidden states and survive an interruption."""

import hashlib
import shutil

import pytest
import torch

from explorer.errors import ExplorerError
from explorer.training.data import build_examples, read_pairs
from explorer.training.features import extract_features, length_batches, read_samples
from explorer.training.target import load_frozen


@pytest.fixture
def target(model_folder):
    return load_frozen(model_folder, sha256="aa", dtype="float32")


@pytest.fixture
def examples(target, data_file):
    return build_examples(
        read_pairs(data_file), target.codec, vocab_size=target.vocab_size, max_length=64, max_tokens=None
    )


def extract(target, examples, folder, sha256="aa", taps=(), **parts):
    shards = extract_features(
        target.model,
        examples,
        folder,
        target_sha256=sha256,
        tap_layers=taps,
        batch_tokens=100,
        show_progress=False,
        **parts,
    )
    return shards if parts else read_samples(shards, target.config.hidden_size, len(taps))


def test_features_are_the_final_normed_states_of_each_sequence_alone(target, examples, tmp_path):
    samples = extract(target, examples, tmp_path)
    assert [sample.example for sample in samples] == examples
    with torch.inference_mode():
        for sample in samples[::17]:
            alone = target.model(torch.tensor([sample.example.ids]), output_hidden_states=True)
            torch.testing.assert_close(sample.features.float(), alone.hidden_states[-1][0], atol=2e-2, rtol=1e-2)
            logits = sample.features.float() @ target.output_weight.T
            torch.testing.assert_close(logits, alone.logits[0], atol=2e-2, rtol=2e-2)


def test_taps_are_the_inputs_of_the_named_layers_before_the_norm(target, examples, tmp_path):
    samples = extract(target, examples[:70], tmp_path, taps=(1, 2))
    with torch.inference_mode():
        for sample in samples[::17]:
            alone = target.model.base_model(torch.tensor([sample.example.ids]), output_hidden_states=True)
            expected = torch.cat([alone.hidden_states[1][0], alone.hidden_states[2][0]], dim=-1)
            torch.testing.assert_close(sample.taps.float(), expected, atol=2e-2, rtol=1e-2)


def test_several_processes_share_the_work(target, examples, tmp_path):
    first = extract(target, examples, tmp_path, part=0, parts=2)
    assert [shard.complete for shard in first] == [True, False]
    assert all(shard.complete for shard in extract(target, examples, tmp_path, part=1, parts=2))
    samples = extract(target, examples, tmp_path)
    assert [sample.example for sample in samples] == examples


def test_features_of_a_run_without_taps_are_completed_by_one_with_taps(target, examples, tmp_path):
    plain = extract(target, examples[:10], tmp_path)
    both = extract(target, examples[:10], tmp_path, taps=(1,))
    assert all(sample.taps is None for sample in plain)
    assert all(torch.equal(a.features, b.features) and b.taps.shape[1] == 64 for a, b in zip(plain, both, strict=True))


def test_finished_shards_are_kept_and_only_missing_ones_computed(target, examples, tmp_path):
    extract(target, examples[:64], tmp_path)
    (first,) = tmp_path.iterdir()
    written = first.stat().st_mtime_ns
    extract(target, examples, tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    assert first.stat().st_mtime_ns == written
    extract(target, examples[:64], tmp_path, sha256="another target")
    assert len(list(tmp_path.iterdir())) == 3


def test_a_damaged_shard_is_named(target, examples, tmp_path):
    extract(target, examples[:10], tmp_path)
    (shard,) = tmp_path.iterdir()
    shard.write_bytes(shard.read_bytes()[:-2])
    with pytest.raises(ExplorerError, match=rf"{shard.name} has the wrong size"):
        extract(target, examples[:10], tmp_path)


def test_length_batches_cover_all_within_the_limit():
    lengths = [7, 3, 9, 3, 30, 8, 1]
    batches = length_batches(lengths, 20)
    assert sorted(index for batch in batches for index in batch) == list(range(7))
    assert all(len(batch) * max(lengths[i] for i in batch) <= 20 for batch in batches if len(batch) > 1)


def test_broken_model_folders_are_refused(model_folder, tmp_path):
    with pytest.raises(ExplorerError, match=r"config\.json is missing"):
        load_frozen(tmp_path, sha256=None)
    shutil.copytree(model_folder, tmp_path / "copy")
    (tmp_path / "copy" / "chat_template.jinja").unlink()
    with pytest.raises(ExplorerError, match="has no chat template"):
        load_frozen(tmp_path / "copy", sha256=None)


def test_the_hash_of_the_weights_names_the_target(model_folder):
    expected = hashlib.sha256((model_folder / "model.safetensors").read_bytes()).hexdigest()
    assert load_frozen(model_folder, sha256=None).sha256 == expected
