"""On an NVIDIA device: the same laws in float32, and bfloat16 that agrees with itself."""

from __future__ import annotations

import dataclasses
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from explorer.errors import ExplorerError
from explorer.events import Ended
from explorer.load import choose_device, choose_dtype, load_target
from explorer.requests import CompareRequest, LaneRequest
from explorer.session import Studio
from explorer.shelf import ShelfSettings
from explorer.target import TAP_LAST, TargetModel
from explorer.toy import toy_drafter
from explorer.tree import Candidate, CandidateTree
from tests.lanes import ALL_NAMES, PROMPTS, SETTINGS, Bench, decode, make_toy, setting_name

TINY = Path(__file__).resolve().parents[1] / "data" / "conformance" / "tiny-target"

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA device"),
]


@pytest.fixture(scope="module")
def cuda() -> Bench:
    """The toy on the device, in float32."""
    return make_toy(0, device="cuda")


@pytest.fixture(autouse=True, scope="module")
def _exact_products() -> Any:
    """float32 means float32: no TF32, which keeps ten bits."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


def generated(bench: Bench, ids: list[int], budget: int) -> list[int]:
    prompt = torch.tensor([ids], device="cuda")
    output = bench.model.generate(
        prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=budget, pad_token_id=0
    )
    return [int(token) for token in output[0, len(ids) :]]


def first_difference(one: list[int], other: list[int]) -> int | None:
    return next((place for place, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1]), None)


def margin_after(bench: Bench, ids: list[int]) -> float:
    with torch.inference_mode():
        row = bench.model(torch.tensor([ids], device="cuda")).logits[0, -1].float()
    best = torch.topk(row, 2).values
    return float(best[0] - best[1])


@pytest.mark.parametrize("setting", SETTINGS, ids=setting_name)
def test_greedy_output_is_generates(setting: tuple[str, dict[str, Any]], cuda: Bench) -> None:
    name, params = setting
    ids = cuda.ids(PROMPTS[SETTINGS.index(setting) % len(PROMPTS)])
    wanted = generated(cuda, ids, 32)
    output = decode(cuda.lane(name, params, ids=ids, budget=32))
    place = first_difference(output, wanted)
    assert place is None or margin_after(cuda, [*ids, *wanted[:place]]) < 1e-3


@pytest.mark.parametrize("name", ALL_NAMES)
def test_after_every_step_the_cache_is_a_fresh_prefill(name: str, cuda: Bench) -> None:
    ids = cuda.ids(PROMPTS[2])
    lane = cuda.lane(name, ids=ids, budget=10)
    for _ in lane.turns():
        fresh = cuda.target.prefill([*ids, *lane.output[:-1]])
        for mine, theirs in zip(lane.cache.rows(), fresh.cache.rows(), strict=True):
            assert mine.device.type == "cuda"
            torch.testing.assert_close(mine, theirs, atol=5e-4, rtol=5e-4)


@pytest.mark.parametrize("name", ALL_NAMES)
def test_bfloat16_agrees_with_plain_decoding_up_to_a_tie(name: str) -> None:
    half = make_toy(0, dtype=torch.bfloat16, device="cuda")
    ids = half.ids(PROMPTS[0])
    output = decode(half.lane(name, ids=ids, budget=24))
    plain = decode(half.lane("autoregressive", ids=ids, budget=24))
    place = first_difference(output, plain)
    assert place is None or margin_after(half, [*ids, *plain[:place]]) < 0.25


@pytest.fixture(scope="module")
def graphs(cuda: Bench) -> Bench:
    """The same toy, its passes replayed as CUDA graphs."""
    target = TargetModel(cuda.model, cuda.target.tokenizer, cuda.target.info, "graphs")
    return dataclasses.replace(cuda, target=target)


@pytest.mark.parametrize("name", ALL_NAMES)
def test_graphs_give_the_steps_of_eager_passes(name: str, cuda: Bench, graphs: Bench) -> None:
    """Two lanes in a row: the second one replays what the first one captured, on the same buffers."""
    for method, params in [setting for setting in SETTINGS if setting[0] == name][:8]:
        for prompt in PROMPTS[:2]:
            ids = cuda.ids(prompt)
            plain = decode(cuda.lane(method, params, ids=ids, budget=24))
            output = decode(graphs.lane(method, params, ids=ids, budget=24))
            place = first_difference(output, plain)
            assert place is None or margin_after(cuda, [*ids, *plain[:place]]) < 1e-3
    assert graphs.target.execution == "graphs", "no pass could be captured"


def test_a_replayed_pass_waits_for_nothing(graphs: Bench) -> None:
    """Inputs are queued, the replay is queued: torch itself raises where the host would wait."""
    cache = graphs.target.new_cache(64)
    cache.copy_from(graphs.target.prefill([5, 6, 7, 8]).cache)
    tree = CandidateTree(9, (Candidate(10, 0, "test"), Candidate(11, 0, "test"), Candidate(12, 1, "test")))
    expected = graphs.target.verify(tree, cache).logits
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        again = graphs.target.verify(tree, cache).logits
        cache.commit([0, 1, 3])
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.testing.assert_close(again, expected)
    assert cache.length == 4 + 3


def test_a_greedy_step_waits_once(graphs: Bench) -> None:
    """For the choice; the clock and the record are read when the step is over."""
    lane = graphs.lane("autoregressive", ids=graphs.ids(PROMPTS[0]), budget=12)
    turns = lane.turns()
    next(turns)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            turn = next(turns)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert sum("synchroniz" in str(each.message) for each in caught) == 1
    assert all(span.duration_ms > 0.0 for span in turn.spans if span.phase != "draft")


def test_cuda_agrees_with_the_cpu(cuda: Bench) -> None:
    ids = cuda.ids(PROMPTS[1])
    here = make_toy(0).target.prefill(ids, taps=frozenset({TAP_LAST}))
    there = cuda.target.prefill(ids, taps=frozenset({TAP_LAST}))
    torch.testing.assert_close(there.logits.cpu(), here.logits, atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(there.taps[TAP_LAST].cpu(), here.taps[TAP_LAST], atol=1e-3, rtol=1e-3)


def test_the_device_is_chosen_and_named(cuda: Bench) -> None:
    assert choose_device("auto").type == "cuda"
    assert choose_dtype("auto", torch.device("cuda")) == torch.bfloat16
    assert cuda.target.info.device == torch.cuda.get_device_name(0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_whole_comparison(dtype: str) -> None:
    studio = Studio(ShelfSettings(model="toy", device="cuda", dtype=dtype))
    for temperature in (0.0, 0.9):
        request = CompareRequest(
            prompt="the rain in the", lanes=[LaneRequest(method=name) for name in ALL_NAMES],
            max_new_tokens=20, temperature=temperature, top_k=40, top_p=0.95,
        )  # fmt: skip
        ended = [list(studio.compare(request, threading.Event()))[-1] for _ in range(2)]
        outputs = []
        for event in ended:
            assert isinstance(event, Ended)
            assert event.comparison is not None
            outputs.append([[token.id for token in trace.tokens] for trace in event.comparison.lanes])
            assert all(span.duration_ms > 0 for trace in event.comparison.lanes for span in trace.steps[0].spans[:2])
        assert outputs[0] == outputs[1]


def test_too_little_memory_is_one_sentence(cuda: Bench) -> None:
    with pytest.raises(ExplorerError, match="Not enough memory for a cache"):
        cuda.target.new_cache(10**11)


def test_a_model_spread_over_device_memory_and_disk_decodes_the_same() -> None:
    """accelerate fetches what lies elsewhere; caches lie where the layers run, and all comes back to one device."""
    names: dict[str, Any] = {"model_id": "tiny", "label": "tiny", "dtype": "float32"}
    whole = load_target(TINY, device="cuda", **names)
    places: tuple[str | int, ...] = (0, "cpu", "disk")
    device_map: dict[str, str | int] = {f"model.layers.{layer}": places[layer % 3] for layer in range(8)}
    device_map |= {"model.embed_tokens": 0, "model.norm": 0, "model.rotary_emb": 0, "lm_head": "cpu"}
    spread = load_target(TINY, device="cuda", device_map=device_map, **names)
    assert spread.device.type == "cuda"
    assert torch.equal(spread.output_weight, whole.output_weight)
    outputs = []
    for target in (whole, spread):
        bench = Bench(target.transformers_model, target, {"medusa": toy_drafter("medusa", target)})
        lanes = [bench.lane(name, ids=[5, 6, 7, 8], budget=16) for name in ("autoregressive", "lookahead", "medusa")]
        outputs += [decode(lane) for lane in lanes]
        assert {rows.device.type for lane in lanes for rows in lane.cache.rows()} == {"cuda"}
    assert all(output == outputs[0] for output in outputs)
