"""The default model: every method's output is `generate`'s, on prompts of several kinds, in chat and raw.

EXPLORER_REAL_TOKENS sets the tokens per prompt (48; 128 is what the project promises).
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from explorer.catalogue import BARELY, DEFAULT_MODEL
from explorer.decode import Lane
from explorer.drafters.loading import load
from explorer.errors import ExplorerError
from explorer.fetch import PROJECT, converted_path, ensure_default_model
from explorer.load import load_target
from explorer.target import TAP_LAST
from tests.lanes import Bench, assert_same_output, decode

pytestmark = pytest.mark.real

TOKENS = int(os.environ.get("EXPLORER_REAL_TOKENS", "48"))
PROMPTS = {
    "code": "Write a Python function that merges two sorted lists into one sorted list.",
    "maths": "A train leaves at 14:35 and arrives at 17:20. How many minutes is the journey? Show each step.",
    "list": "1. apples\n2. pears\n3. plums\n4. cherries\n5.",
    "translate": "Translate into French: The weather was cold, but the children wanted to play outside.",
    "log": "[08:00:01] disk sda1 ok\n[08:00:02] disk sda2 ok\n[08:00:03] disk sda3 ok\n[08:00:04] disk",
    "odd": "Repeat after me: naïve café 🙂🙂 שלום e\u0301 <b>&amp;</b> \x00 {{x}} 12345",
}
CASES = [(name, raw) for name in PROMPTS for raw in (False, True)]
LANES = [
    ("autoregressive", {}),
    ("draft-model", {"schedule": "adaptive"}),
    ("prompt-lookup", {}),
    ("jacobi", {"block": 8}),
    ("lookahead", {"window": 4, "ngram": 4, "guesses": 4, "pool_from_prompt": True}),
    ("medusa", {"nodes": 12}),
    ("eagle", {"nodes": 12, "depth": 4, "top_k": 4, "context_branch": 6}),
    ("eagle3", {"nodes": 12, "depth": 4, "top_k": 4}),
]
OTHER_LANES = [
    ("jacobi", {"block": 6, "verification": "block"}),
    ("eagle", {"tree": "static"}),
    ("eagle", {"tree": "chain"}),
    ("medusa", {"tree": "mc_sim_7b_63", "context_branch": 10}),
    ("prompt-lookup", {"match": "latest", "max_ngram": 2}),
    ("draft-model", {"tokens": 3, "context_branch": 5}),
]
"""More settings, on one prompt each."""


@pytest.fixture(scope="module")
def real() -> Bench:
    """The default model in float32, plain and as a target, with those of its drafters that are there."""
    folder = ensure_default_model()
    plain = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    target = load_target(folder, model_id=DEFAULT_MODEL.id, label=DEFAULT_MODEL.title, device="cpu", dtype="float32")
    folders = {kind: PROJECT / place for kind, place in DEFAULT_MODEL.drafters.items()}
    drafters = {
        kind: load(kind.removesuffix(BARELY), place, target)
        for kind, place in folders.items()
        if any(place.glob("*.safetensors"))
    }
    return Bench(plain, target, drafters)


_EXPECTED: dict[tuple[str, bool], tuple[list[int], list[int]]] = {}


def expected(real: Bench, name: str, raw: bool) -> tuple[list[int], list[int]]:
    """Prompt ids and what `generate` adds; made once for all methods."""
    if (name, raw) not in _EXPECTED:
        tokenizer = real.target.tokenizer
        if raw:
            ids = tokenizer(PROMPTS[name])["input_ids"]
        else:
            message = [{"role": "user", "content": PROMPTS[name]}]
            text = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
            ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        _EXPECTED[name, raw] = list(ids), real.expected(ids, TOKENS)
    return _EXPECTED[name, raw]


_DECODED: dict[tuple[str, str, bool], tuple[Lane, list[int]]] = {}


def decoded(real: Bench, method: str, name: str, raw: bool) -> tuple[Lane, list[int]]:
    """The finished lane, and how many tokens each step committed; made once."""
    key = method, name, raw
    if key not in _DECODED:
        sizes: list[int] = []
        lane = real.lane(method, dict(LANES)[method], ids=expected(real, name, raw)[0], budget=TOKENS)
        decode(lane, lambda turn: sizes.append(len(turn.committed)))
        _DECODED[key] = lane, sizes
    return _DECODED[key]


def need(real: Bench, method: str) -> None:
    """Skip where the method's drafter has not been trained yet."""
    if method in DEFAULT_MODEL.drafters and method not in real.drafters:
        pytest.skip(f"there is no {DEFAULT_MODEL.drafters[method]}: train it with python -m explorer train {method}")


@pytest.mark.parametrize("method", [method for method, _ in LANES])
@pytest.mark.parametrize(("name", "raw"), CASES, ids=[f"{name}-{'raw' if raw else 'chat'}" for name, raw in CASES])
def test_output_is_generates(method: str, name: str, raw: bool, real: Bench) -> None:
    need(real, method)
    ids, wanted = expected(real, name, raw)
    lane, _ = decoded(real, method, name, raw)
    assert_same_output(real, ids, lane.output, wanted)
    assert lane.stop_reason == ("eos" if lane.output[-1] in real.target.end_token_ids else "length")


@pytest.mark.parametrize(("method", "params"), OTHER_LANES, ids=[f"{name}-{params}" for name, params in OTHER_LANES])
def test_other_settings_give_the_same_output(method: str, params: dict[str, Any], real: Bench) -> None:
    need(real, method)
    ids, wanted = expected(real, "maths", False)
    assert_same_output(real, ids, decode(real.lane(method, params, ids=ids, budget=TOKENS)), wanted)


def test_padded_passes_give_the_same_output(real: Bench) -> None:
    padded = real.target.with_execution("static")
    assert padded.decoder is not None
    ids, wanted = expected(real, "maths", False)
    for method, params in (LANES[0], ("prompt-lookup", {"max_ngram": 2})):
        lane = dataclasses.replace(real, target=padded).lane(method, params, ids=ids, budget=TOKENS)
        assert_same_output(real, ids, decode(lane), wanted)


def test_a_prompt_of_four_thousand_tokens(real: Bench) -> None:
    """Half of the model's context: many chunks, long caches, the drafter's too."""
    ids = (expected(real, "maths", True)[0] * 4000)[:4000]
    wanted = real.expected(ids, 6)
    for method in ("prompt-lookup", "eagle"):
        need(real, method)
        lane = real.lane(method, ids=ids, budget=6)
        assert_same_output(real, ids, decode(lane), wanted)
        assert lane.cache.length == 4000 + 5


@pytest.mark.parametrize(("method", "params"), LANES, ids=[lane[0] for lane in LANES])
def test_after_every_step_the_cache_is_a_fresh_prefill(method: str, params: dict[str, Any], real: Bench) -> None:
    need(real, method)
    ids, _ = expected(real, "list", True)
    lane = real.lane(method, params, ids=ids, budget=8)
    for _ in lane.turns():
        fresh = real.target.prefill([*ids, *lane.output[:-1]])
        for mine, theirs in zip(lane.cache.rows(), fresh.cache.rows(), strict=True):
            torch.testing.assert_close(mine, theirs, atol=2e-3, rtol=2e-3)


def test_drafts_are_accepted(real: Bench) -> None:
    """Trained drafters are right now and then: far below what is hoped for, far above what noise gives."""
    least = {
        "draft-model": 1.2, "prompt-lookup": 1.1, "lookahead": 1.1, "medusa": 1.15, "eagle": 1.3, "eagle3": 1.3
    }  # fmt: skip
    for method, wanted in least.items():
        if method not in real.drafters and method in DEFAULT_MODEL.drafters:
            continue
        runs = [decoded(real, method, name, raw)[1] for name, raw in (("code", False), ("log", True), ("maths", False))]
        kept = [size for sizes in runs for size in sizes[:-1]]  # each run's last step is cut
        assert sum(kept) / len(kept) > wanted, method


def test_a_prompt_over_several_chunks(real: Bench) -> None:
    ids = (real.ids("The quick brown fox jumps over the lazy dog. ") * 40)[:300]
    wanted = real.expected(ids, 6)
    assert_same_output(real, ids, decode(real.lane("lookahead", ids=ids, budget=6)), wanted)


def test_the_models_own_shapes(real: Bench) -> None:
    """A prefill taps the feature that the output head reads: head of tap is logits."""
    prefill = real.target.prefill(real.ids("hello there"), taps=frozenset({TAP_LAST}))
    logits = prefill.taps[TAP_LAST][-1] @ real.target.output_weight.T
    torch.testing.assert_close(logits, prefill.logits, atol=1e-3, rtol=1e-3)
    assert real.target.context_tokens == DEFAULT_MODEL.context_tokens


def test_a_damaged_copy_of_the_model_is_one_sentence(real: Bench, tmp_path: Any) -> None:
    source = converted_path()
    for file in source.iterdir():
        content = file.read_bytes() if file.suffix != ".safetensors" else file.open("rb").read(1_000_000)
        (tmp_path / file.name).write_bytes(content)
    with pytest.raises(ExplorerError, match="cannot be loaded|is damaged") as caught:
        load_target(tmp_path, model_id="x", label="x", device="cpu", dtype="float32")
    assert "\n" not in str(caught.value)
    assert real.target.info.dtype == "float32"
