"""Models are loaded once, in the background; a failure is one sentence, and may be tried again."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from explorer import stock
from explorer.drafters.detect import KINDS
from explorer.drafters.loading import load
from explorer.errors import ExplorerError
from explorer.load import choose_device, choose_dtype, load_target, weights_sha256
from explorer.shelf import Shelf, ShelfSettings
from explorer.toy import toy_target

CONFORMANCE = Path(__file__).parent / "data" / "conformance"
TINY = CONFORMANCE / "tiny-target"


def settings(model: str = "toy", **values: Any) -> ShelfSettings:
    return ShelfSettings(**({"model": model, "device": "cpu", "dtype": "float32"} | values))


def watched(shelf: Shelf) -> list[str]:
    return [event.message for event in shelf.watch()]


def failure(shelf: Shelf) -> str:
    with pytest.raises(ExplorerError) as caught:
        watched(shelf)
    assert not shelf.ready
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_nothing_is_there_before_it_is_loaded() -> None:
    shelf = Shelf(settings())
    assert not shelf.ready
    with pytest.raises(ExplorerError, match="not loaded yet"):
        _ = shelf.target
    with pytest.raises(ExplorerError, match="medusa drafter is not loaded yet"):
        shelf.drafter("medusa")
    assert shelf.drafter(None) is None
    assert shelf.title == "toy model, random weights: for tests only"


def test_watching_loads_and_ends_when_all_is_there() -> None:
    shelf = Shelf(settings())
    watched(shelf)
    assert shelf.ready
    assert shelf.target.info.id == "toy"
    assert {kind: type(shelf.drafter(kind)).__name__ for kind in KINDS} == {
        "medusa": "MedusaHeads",
        "eagle": "EagleHead",
        "eagle3": "Eagle3Head",
        "draft-model": "DraftModel",
    }
    assert watched(shelf) == []
    with pytest.raises(ExplorerError, match=r"drafter is not loaded yet|no other drafter"):
        shelf.drafter("other")


def test_many_watchers_load_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loads, go = [], threading.Event()

    def slow(**_: Any) -> Any:
        loads.append(1)
        go.wait(10)
        return toy_target()

    monkeypatch.setattr(stock, "toy_target", slow)
    shelf = Shelf(settings())
    threads = [threading.Thread(target=watched, args=(shelf,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    go.set()
    for thread in threads:
        thread.join(30)
    assert shelf.ready
    assert loads == [1]


def test_a_failed_load_may_be_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(**_: Any) -> Any:
        raise ExplorerError("No network.")

    shelf = Shelf(settings())
    monkeypatch.setattr(stock, "toy_target", broken)
    assert failure(shelf) == "No network."
    assert failure(shelf) == "No network."
    monkeypatch.undo()
    watched(shelf)
    assert shelf.ready


def test_a_defect_while_loading_is_told_without_its_insides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stock, "toy_target", lambda **_: {}["secret"])
    assert failure(Shelf(settings())) == "The model could not be loaded; the server's log says more."


def test_whoever_stops_watching_stops_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()

    def slow(**_: Any) -> Any:
        go.wait(10)
        return toy_target()

    monkeypatch.setattr(stock, "toy_target", slow)
    shelf = Shelf(settings())
    list(shelf.watch(stopped=lambda: True))
    assert not shelf.ready
    go.set()
    watched(shelf)
    assert shelf.ready


def test_a_folder_is_loaded_with_its_drafters() -> None:
    drafters = {"medusa": CONFORMANCE / "medusa-heads", "eagle": CONFORMANCE / "eagle-draft"}
    shelf = Shelf(settings(str(TINY), drafters=drafters))
    watched(shelf)
    info = shelf.target.info
    assert (info.id, info.sha256, info.dtype, info.device) == ("tiny-target", weights_sha256(TINY), "float32", "cpu")
    assert shelf.title == "tiny-target"
    assert shelf.drafter("medusa").info.id == "medusa-heads"
    assert shelf.missing("eagle") is None


def test_a_folder_without_drafters_says_what_is_missing() -> None:
    shelf = Shelf(settings(str(TINY)))
    assert shelf.missing(None) is None
    assert shelf.missing("medusa") == "There is no medusa drafter for tiny-target; train one or name its folder."


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the tiny model, to be damaged."""
    copy = tmp_path / "model"
    shutil.copytree(TINY, copy)
    return copy


def break_nothing_there(folder: Path) -> None:
    (folder / "config.json").unlink()


def break_cut_short(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:5000])


def break_empty(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"")


def break_no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def break_config(folder: Path) -> None:
    (folder / "config.json").write_text("{")


def break_kind(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "nonsense"}))


def break_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("[]")


BREAKERS = [
    break_nothing_there,
    break_cut_short,
    break_empty,
    break_no_weights,
    break_config,
    break_kind,
    break_tokenizer,
]


@pytest.mark.parametrize("damage", BREAKERS)
def test_a_damaged_model_is_one_sentence_that_names_the_folder(damage: Any, folder: Path) -> None:
    damage(folder)
    assert str(folder) in failure(Shelf(settings(str(folder))))


def test_a_model_that_cannot_be_rolled_back_is_refused(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    changes = {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 64}
    (folder / "config.json").write_text(json.dumps(config | changes))
    assert "MistralForCausalLM cannot be shown: its sliding-window" in failure(Shelf(settings(str(folder))))


@pytest.mark.parametrize("swap", [("medusa", "eagle-draft"), ("eagle", "medusa-heads"), ("eagle", "tiny-target")])
def test_a_drafter_of_another_kind_is_refused(swap: tuple[str, str]) -> None:
    kind, name = swap
    assert name in failure(Shelf(settings(str(TINY), drafters={kind: CONFORMANCE / name})))


def test_a_drafter_of_another_target_is_refused() -> None:
    target = toy_target()
    for kind, name in (("medusa", "medusa-heads"), ("eagle", "eagle-draft")):
        with pytest.raises(ExplorerError, match="hidden size 64, the target has 48"):
            load(kind, CONFORMANCE / name, target)
    with pytest.raises(ExplorerError, match="no drafter kind 'hydra'"):
        load("hydra", CONFORMANCE, target)


@pytest.mark.parametrize("wanted", ["gpu", "", "cpu:x", "xpu", "meta", "cuda:-1", "mps"])
def test_devices_that_are_not_there_are_refused(wanted: str) -> None:
    with pytest.raises(ExplorerError, match=r"auto"):
        choose_device(wanted)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_cuda_without_a_device_is_refused() -> None:
    with pytest.raises(ExplorerError, match="no CUDA device that PyTorch can use; use cpu or auto"):
        choose_device("cuda")
    assert choose_device("auto").type == "cpu"


@pytest.mark.parametrize("changes", [{"device": "abacus"}, {"dtype": "int3"}], ids=str)
def test_the_toy_too_is_asked_for_a_device_that_is_there(changes: dict[str, str]) -> None:
    assert "use auto" in failure(Shelf(settings(**changes)))


def test_the_toy_in_bfloat16() -> None:
    shelf = Shelf(settings(dtype="bfloat16"))
    watched(shelf)
    assert shelf.target.info.dtype == "bfloat16"


def test_dtypes() -> None:
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    assert choose_dtype("auto", cpu) == torch.float32
    assert choose_dtype("auto", cuda) == torch.bfloat16
    assert choose_dtype("bfloat16", cpu) == torch.bfloat16
    assert choose_dtype("fastest", cuda) == torch.bfloat16
    assert choose_dtype("fastest", cpu) == choose_dtype("fastest", cpu) in (torch.float32, torch.bfloat16)
    for wanted in ("float16", "int8", "", "torch.float32"):
        with pytest.raises(ExplorerError, match="use auto, fastest, float32 or bfloat16"):
            choose_dtype(wanted, cpu)


def test_bfloat16_is_loaded_as_asked() -> None:
    target = load_target(TINY, model_id="x", label="x", device="cpu", dtype="bfloat16")
    assert target.dtype == torch.bfloat16
    assert target.info.dtype == "bfloat16"
