"""Drafter folders: what was written is read, and every kind of damage has one clear sentence."""

import pytest
import torch

from explorer.drafters.checkpoint import describe, read_checkpoint, write_checkpoint
from explorer.errors import ExplorerError


def test_what_is_written_is_read(tmp_path):
    tensors = {"a": torch.arange(6.0).view(2, 3), "token_map": torch.tensor([4, 2], dtype=torch.int32)}
    write_checkpoint(tmp_path / "x", tensors, {"hidden_size": 3, "target_sha256": "f0"}, "# card\n")
    read, config = read_checkpoint(tmp_path / "x")
    assert config == {"hidden_size": 3, "target_sha256": "f0"}
    assert all(torch.equal(read[name], tensor) for name, tensor in tensors.items())
    assert sorted(path.name for path in (tmp_path / "x").iterdir()) == ["README.md", "config.json", "model.safetensors"]
    info = describe(tmp_path / "x", read, config)
    assert (info.id, info.parameters, info.bytes, info.target_sha256) == ("x", 6, 6 * 4 + 2 * 4, "f0")


def test_a_public_pickle_is_read_but_runs_no_code(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    torch.save({"a": torch.ones(2)}, tmp_path / "medusa_lm_head.pt")
    assert torch.equal(read_checkpoint(tmp_path)[0]["a"], torch.ones(2))
    (tmp_path / "medusa_lm_head.pt").write_bytes(b"cbuiltins\nprint\n(S'x'\ntR.")
    with pytest.raises(ExplorerError, match="damaged or not a weights file"):
        read_checkpoint(tmp_path)


def test_missing_pieces_are_named(tmp_path):
    with pytest.raises(ExplorerError, match="does not exist"):
        read_checkpoint(tmp_path / "nowhere")
    with pytest.raises(ExplorerError, match=r"no config\.json"):
        read_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ExplorerError, match="no weights file"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize("text", ['{"a": ', "[1]", "\ud83d".encode("utf-8", "surrogatepass").decode("latin-1")])
def test_a_bad_config_is_refused(tmp_path, text):
    (tmp_path / "config.json").write_text(text, encoding="latin-1")
    with pytest.raises(ExplorerError, match=r"config\.json"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize("keep", [0, 4, 60, -8])
def test_a_truncated_weights_file_is_refused(tmp_path, keep):
    write_checkpoint(tmp_path, {"a": torch.ones(64)}, {}, "")
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ExplorerError, match="damaged"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_values_that_are_not_finite_are_refused(tmp_path, bad):
    write_checkpoint(tmp_path, {"a": torch.tensor([1.0, bad])}, {}, "")
    with pytest.raises(ExplorerError, match="Tensor a .* not finite"):
        read_checkpoint(tmp_path)
