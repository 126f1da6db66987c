"""A folder that is broken or hostile is refused in one sentence, through the one loader, and runs nothing."""

import json
import pickle
import zipfile
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from explorer.drafters.checkpoint import Checkpoint
from explorer.drafters.loading import load
from explorer.errors import ExplorerError
from explorer.toy import toy_target
from tests.drafters.conftest import HIDDEN


@pytest.fixture(scope="module")
def target():
    return toy_target(hidden_size=HIDDEN)


class Touch:
    """Unpickling it would write a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    return tmp_path


def sentence(folder, target):
    """What the loader says; one line, with the folder in it."""
    with pytest.raises(ExplorerError) as caught:
        load(None, folder, target)
    said = str(caught.value)
    assert "\n" not in said
    assert said.endswith(".")
    return said


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_bare_pickle_runs_no_code(folder, target, protocol):
    mark = folder / "executed"
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"fc.weight": Touch(mark)}, protocol=protocol))
    assert "pytorch_model.bin is damaged or not a weights file" in sentence(folder, target)
    assert not mark.exists()


def test_a_pickle_in_torchs_own_format_runs_no_code(folder, target):
    mark = folder / "executed"
    torch.save({"fc.weight": torch.zeros(2), "more": Touch(mark)}, folder / "medusa_lm_head.pt")
    assert "medusa_lm_head.pt is damaged or not a weights file" in sentence(folder, target)
    assert not mark.exists()


def test_a_pickle_in_a_shard_runs_no_code(folder, target):
    mark = folder / "executed"
    torch.save({"fc.weight": Touch(mark)}, folder / "shard.bin")
    index = {"weight_map": {"fc.weight": "shard.bin", "layers.0.self_attn.q_proj.weight": "shard.bin"}}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    assert "shard.bin is damaged" in sentence(folder, target)
    assert not mark.exists()


def test_code_next_to_a_language_model_is_not_run(folder, target):
    """The config asks transformers for a module of the folder."""
    mark = folder / "executed"
    (folder / "modeling_own.py").write_text(f"import pathlib; pathlib.Path({str(mark)!r}).touch()")
    config = {
        "model_type": "own",
        "auto_map": {"AutoConfig": "modeling_own.C", "AutoModelForCausalLM": "modeling_own.M"},
    }
    (folder / "config.json").write_text(json.dumps(config))
    tensors = {"model.embed_tokens.weight": torch.zeros(4, 4), "model.layers.0.mlp.up_proj.weight": torch.zeros(4, 4)}
    torch.save(tensors, folder / "pytorch_model.bin")
    assert "cannot be loaded" in sentence(folder, target)
    assert not mark.exists()


@pytest.mark.parametrize(
    "content",
    [
        [torch.zeros(2)],
        {"state_dict": {"a": torch.zeros(2)}},
        {"a": 1.0},
        {3: torch.zeros(2)},
        {"a": torch.eye(3).to_sparse()},
        {"a": torch.zeros(2, device="meta")},
        {"a": torch.zeros(1).expand(1 << 40)},
    ],
    ids=["list", "nested", "number", "unnamed", "sparse", "meta", "larger than its storage"],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_pickle_of_anything_but_dense_tensors_is_refused(folder, target, content):
    torch.save(content, folder / "pytorch_model.bin")
    assert "does not hold a plain mapping of names to tensors" in sentence(folder, target)


def test_a_truncated_pickle_is_refused(folder, target):
    path = folder / "medusa_lm_head.pt"
    torch.save({"0.0.linear.weight": torch.zeros(64, 64)}, path)
    whole = path.read_bytes()
    for keep in (0, 10, len(whole) // 2, len(whole) - 30):
        path.write_bytes(whole[:keep])
        assert "damaged" in sentence(folder, target)


def test_a_zip_that_is_no_checkpoint_is_refused(folder, target):
    with zipfile.ZipFile(folder / "pytorch_model.bin", "w") as archive:
        archive.writestr("hello.txt", "hello")
    assert "damaged" in sentence(folder, target)


@pytest.mark.parametrize("place", ["../other.bin", "/etc/hostname", "a/b.safetensors", "notes.txt", 3, None])
def test_an_index_may_only_name_weights_next_to_it(folder, target, place):
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"fc.weight": place}}))
    assert "names a shard" in sentence(folder, target)


def test_an_index_that_says_something_else_than_its_shards_is_refused(folder, target, write_folder, medusa_tensors):
    write_folder({"x": torch.zeros(1)}, {})
    made = folder / "drafter"
    (made / "model.safetensors").rename(made / "a.safetensors")
    places = {name: "a.safetensors" for name in medusa_tensors}
    (made / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    assert "a.safetensors is damaged" in sentence(made, target)
    (made / "a.safetensors").unlink()
    assert "a.safetensors is missing" in sentence(made, target)
    (made / "model.safetensors.index.json").write_text("[]")
    assert "must hold a JSON object" in sentence(made, target)
    (made / "model.safetensors.index.json").write_text("{}")
    assert "has no weight_map" in sentence(made, target)


def test_deeply_nested_json_is_refused(folder, target):
    (folder / "config.json").write_text("[" * 200_000)
    torch.save({"a": torch.zeros(1)}, folder / "pytorch_model.bin")
    assert "config.json" in sentence(folder, target)


def test_a_size_without_bytes_behind_it_is_refused(write_folder, target):
    """Believed, it would fill the memory."""
    shapes = {"fc.weight": (HIDDEN, 64), "layers.0.self_attn.q_proj.weight": (10**12, 0)}
    tensors = {name: torch.zeros(shape) for name, shape in shapes.items()}
    assert "is empty: its shape is (1000000000000, 0)" in sentence(write_folder(tensors, {}), target)


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn, torch.complex64])
def test_quantised_weights_are_refused(write_folder, target, medusa_tensors, dtype):
    changed = medusa_tensors | {"1.0.linear.weight": torch.zeros(HIDDEN, HIDDEN).to(dtype)}
    assert "1.0.linear.weight" in sentence(write_folder(changed, {}), target)


def loads_or_says_why(folder, target):
    try:
        load(None, folder, target)
    except ExplorerError as error:
        return bool(str(error))
    return True


def damage(content, data, end):
    """A few bytes before `end` overwritten, or the rest cut off."""
    changed = bytearray(content)
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, end))] = data.draw(st.integers(0, 255))
    return bytes(changed[: data.draw(st.sampled_from([None, None, end, end // 2, len(content) - 3]))])


FUZZ = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@FUZZ
@given(data=st.data())
def test_damaged_safetensors_load_or_give_a_sentence(write_folder, target, medusa_tensors, data):
    folder = write_folder(medusa_tensors, {})
    path = folder / "model.safetensors"
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(damage(content, data, int.from_bytes(content[:8], "little") + 40))
    assert loads_or_says_why(folder, target)


@FUZZ
@given(data=st.data())
@pytest.mark.filterwarnings("ignore")
def test_damaged_pickles_load_or_give_a_sentence(folder, target, medusa_tensors, data):
    path = folder / "medusa_lm_head.pt"
    torch.save(medusa_tensors, path, _use_new_zipfile_serialization=data.draw(st.booleans()))
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(damage(content, data, 1500))
    assert loads_or_says_why(folder, target)


def test_reading_one_tensor_leaves_the_others_alone(write_folder):
    folder = write_folder({"good": torch.ones(2), "bad": torch.tensor([float("nan")])}, {})
    checkpoint = Checkpoint(folder)
    assert dict(checkpoint) == {"good": (2,), "bad": (1,)}
    assert torch.equal(checkpoint.read(["good"])["good"], torch.ones(2))
    with pytest.raises(ExplorerError, match="Tensor bad .* not finite"):
        checkpoint.read()
