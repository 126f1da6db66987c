"""The CUDA check's own code, on the CPU with a toy; and what it says where there is no such device."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks import gpu_check
from benchmarks.gpu_modes import MODES
from explorer.methods import METHODS


def test_the_toy_is_checked_on_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu_check, "NODES", (1, 4))
    out = tmp_path / "new" / "check.json"
    status = gpu_check.main(["--device", "cpu", "--tiny", "--dtypes", "float32", "--out", str(out)])
    found = json.loads(out.read_text(encoding="utf-8"))["dtypes"]["float32"]
    assert status == 0
    names = [method.name for method in METHODS]
    assert [(row["execution"], row["method"]) for row in found["equality"]] == [
        (execution, name) for execution in ("eager", "static") for name in names
    ]
    assert all(row["right"] for row in found["equality"])
    assert [row["nodes"] for row in found["passes"]] == [1, 4]
    for row in found["passes"]:
        assert all(row[mode]["median"] > 0.0 for mode in MODES if mode != "graphs")
        assert row["graphs"].startswith("CUDA graphs need a CUDA device")
    assert "all outputs are generate's" in capsys.readouterr().out


def test_a_wrong_output_is_status_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_check, "timed", lambda *args: [])
    monkeypatch.setattr(gpu_check, "METHODS", METHODS[:1])
    monkeypatch.setattr(gpu_check, "drain", lambda lane, each: [1, 2, 3])
    asked = ["--device", "cpu", "--tiny", "--dtypes", "float32", "--out", str(tmp_path / "check.json")]
    assert gpu_check.main(asked) == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a device")
def test_without_a_device_it_says_so_and_is_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_check.main([]) == 2
    assert capsys.readouterr().out.startswith("Nothing was checked: This machine has no CUDA device")


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [(["--device", "cpu"], "add --tiny for a trial"), (["--device", "cpu", "--tiny", "--dtypes", "int3"], "'int3'")],
)
def test_what_cannot_be_checked_is_refused(asked: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_check.main(asked) == 2
    assert sentence in capsys.readouterr().out
