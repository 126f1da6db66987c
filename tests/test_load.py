"""Models from folders: every kind loads and decodes, spread ones too, and what is wrong is one sentence."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from explorer import load
from explorer.drafters.loading import load as load_drafter
from explorer.errors import ExplorerError
from explorer.load import load_target
from explorer.target import TargetModel
from explorer.toy import toy_drafter, toy_tokenizer
from tests.lanes import Bench, Oracle, decode
from tests.models import SHOWN, config_of, tiny_model

CONFORMANCE = Path(__file__).parent / "data" / "conformance"
TINY = CONFORMANCE / "tiny-target"
PROMPT = (17, 30, 45, 17, 30, 45, 99)
PROMISED = ("llama", "mistral", "qwen2", "qwen3", "gemma", "phi3", "gpt2", "gpt_neox", "opt", "mixtral", "qwen3_moe")
FUSED = ("llama", "mistral", "qwen2")
NAMES: dict[str, Any] = {"model_id": "x", "label": "Tiny", "device": "cpu", "dtype": "float32"}


def save(name: str, folder: Path, **changes: Any) -> Any:
    """A tiny model of that kind as a folder; the model."""
    model = tiny_model(name, **changes)
    model.save_pretrained(folder)
    toy_tokenizer().save_pretrained(folder)
    return model


def bench_of(target: TargetModel) -> Bench:
    return Bench(target.transformers_model, target, {"medusa": toy_drafter("medusa", target)})


def refusal(folder: Path, **changes: Any) -> str:
    with pytest.raises(ExplorerError) as caught:
        load_target(folder, **(NAMES | changes))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def greedy(target: TargetModel, method: Any, params: dict[str, Any]) -> list[int]:
    return decode(bench_of(target).lane(method, params, ids=PROMPT, budget=16))


@pytest.mark.parametrize("name", PROMISED)
def test_every_kind_loads_from_its_folder(name: str, tmp_path: Path) -> None:
    model = save(name, tmp_path)
    target = load_target(tmp_path, **NAMES)
    bench = Bench(model, target, {})
    assert target.info.parameters == sum(each.numel() for each in model.parameters())
    assert (target.decoder is not None) == (name in FUSED)
    assert greedy(target, "autoregressive", {}) == bench.expected(PROMPT, 16)


def halves(target_layers: int, embed: str = "cpu") -> dict[str, str]:
    """A device map of a Llama: every other layer and the head on disk."""
    layers = {f"model.layers.{layer}": "disk" if layer % 2 else "cpu" for layer in range(target_layers)}
    rest = {"model.embed_tokens": embed, "model.norm": "cpu", "model.rotary_emb": "cpu", "lm_head": "disk"}
    return {**layers, **rest}


@pytest.mark.parametrize("embed", ["cpu", "disk"])
def test_a_model_that_lies_partly_on_disk_decodes_the_same(embed: str) -> None:
    whole = load_target(TINY, **NAMES)
    spread = load_target(TINY, **NAMES, device_map=halves(8, embed))
    assert any(each.device.type == "meta" for each in spread.transformers_model.parameters())
    assert (spread.device, spread.dtype) == (torch.device("cpu"), torch.float32)
    assert set(spread.info.device.split(" + ")) == {"cpu", "disk"}
    assert spread.info.parameters == whole.info.parameters
    expected = greedy(whole, "autoregressive", {})
    for method, params in (("autoregressive", {}), ("lookahead", {"pool_from_prompt": True}), ("medusa", {})):
        assert greedy(spread, method, params) == expected
    assert greedy(spread, Oracle, {"script": tuple(expected)}) == expected


def test_what_drafters_borrow_of_a_spread_model_is_the_weights_themselves() -> None:
    whole = load_target(TINY, **NAMES)
    spread = load_target(TINY, **NAMES, device_map=halves(8, "disk"))
    assert torch.equal(spread.output_weight, whole.output_weight)
    assert torch.equal(spread.embed_weight, whole.embed_weight)
    assert spread.output_weight is spread.output_weight  # fetched once
    assert spread.hidden_size == whole.hidden_size
    for kind, name in (("medusa", "medusa-heads"), ("eagle", "eagle-draft")):
        drafter = load_drafter(kind, CONFORMANCE / name, spread)
        lanes = [Bench(each.transformers_model, each, {kind: drafter}) for each in (whole, spread)]
        outputs = [decode(lane.lane(kind, {}, ids=PROMPT, budget=16)) for lane in lanes]
        assert outputs[0] == outputs[1]


@pytest.mark.parametrize("tied", [True, False])
def test_tied_and_untied_models_may_be_spread(tied: bool, tmp_path: Path) -> None:
    model = save("llama", tmp_path, tie_word_embeddings=tied)
    device_map: dict[str, str | int] = {"model": "disk", "lm_head": "disk"}
    target = load_target(tmp_path, **NAMES, device_map=device_map)
    assert greedy(target, "medusa", {}) == Bench(model, target, {}).expected(PROMPT, 16)
    assert torch.equal(target.output_weight, model.get_output_embeddings().weight)


def test_spread_is_a_device_that_accelerate_chooses(tmp_path: Path) -> None:
    model = save("mixtral", tmp_path)
    target = load_target(tmp_path, **(NAMES | {"device": "spread"}))
    assert greedy(target, "autoregressive", {}) == Bench(model, target, {}).expected(PROMPT, 16)


def test_a_device_map_that_forgets_a_layer_is_refused() -> None:
    device_map: dict[str, str | int] = {"model.embed_tokens": "cpu", "lm_head": "disk"}
    assert "cannot be loaded: The device_map provided does not give any device" in refusal(TINY, device_map=device_map)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the tiny model, to be damaged."""
    copy = tmp_path / "model"
    shutil.copytree(TINY, copy)
    return copy


def change_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_missing_tokenizer(folder: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json"):
        (folder / name).unlink(missing_ok=True)
    assert f"The model in {folder} has no tokenizer that can be read (tokenizer.json): " in refusal(folder)


def test_a_missing_tensor_is_not_made_up(folder: Path) -> None:
    """transformers would fill it with noise and only print a warning."""
    change_config(folder, num_hidden_layers=9)
    assert "lacks the tensor model.layers.8." in refusal(folder)


def test_tensors_of_another_shape(folder: Path) -> None:
    change_config(folder, intermediate_size=100)
    assert f"The model in {folder} cannot be loaded: " in refusal(folder)


def test_code_in_a_folder_is_never_run(folder: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    (folder / "modeling_own.py").write_text(f"open({str(ran)!r}, 'w').close()\n")
    names = {"AutoConfig": "modeling_own.Own", "AutoModelForCausalLM": "modeling_own.Own"}
    change_config(folder, model_type="own", auto_map=names)
    assert "it needs code of its own, which is never run here" in refusal(folder)
    assert not ran.exists()


class Trap:
    """A pickle that makes a file when it is loaded."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return open, (self.path, "w")


def test_a_pickle_with_code_in_it_is_refused_and_not_run(folder: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"x": Trap(str(ran))}))
    assert str(folder) in refusal(folder)
    assert not ran.exists()


def test_an_honest_pickle_loads(folder: Path) -> None:
    whole = load_target(folder, **NAMES, keep_weights=True)
    (folder / "model.safetensors").unlink()
    torch.save(whole.transformers_model.state_dict(), folder / "pytorch_model.bin")
    again = load_target(folder, **NAMES)
    assert torch.equal(again.output_weight, whole.output_weight)


@pytest.mark.parametrize(
    ("kind", "settings", "words"),
    [
        ("vit", {}, "is a vit, which is no causal language model"),
        ("bert", {}, "bert cannot be shown: it is an encoder, whose tokens see later ones"),
        ("t5", {}, "t5 cannot be shown: it is an encoder-decoder"),
        ("mamba", {}, "mamba cannot be shown: its recurrent state cannot be rolled back"),
    ],
)
def test_other_kinds_are_refused_before_their_weights_are_read(
    kind: str, settings: dict[str, Any], words: str, tmp_path: Path
) -> None:
    config_of(kind, settings).save_pretrained(tmp_path)
    assert words in refusal(tmp_path)


def test_a_model_that_would_not_fit_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "free_bytes", lambda device: 1_000_000)
    said = refusal(TINY)
    assert said.startswith("Tiny needs 0.00 GB in float32, but 0.00 GB of memory are free on cpu; ")
    assert said.endswith("take a smaller model, dtype bfloat16, or device spread.")


def test_memory_that_runs_out_on_the_way_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any, **named: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")

    monkeypatch.setattr(load.AutoModelForCausalLM, "from_pretrained", full)
    assert f"The model in {TINY} does not fit the device's memory; take a smaller model" in refusal(TINY)


def test_weights_in_bfloat16_are_taken_with_their_rounding(tmp_path: Path) -> None:
    for name in ("llama", "qwen3_moe", "gpt2"):
        save(name, tmp_path / name)
        target = load_target(tmp_path / name, **(NAMES | {"dtype": "bfloat16"}))
        assert target.info.dtype == "bfloat16"


def test_parameters_are_counted_without_memory() -> None:
    for name in ("llama", "gpt2", "mixtral"):
        kind, settings = SHOWN[name]
        expected = sum(each.numel() for each in tiny_model(name).parameters())
        assert load.parameters_of(config_of(kind, settings)) == expected
