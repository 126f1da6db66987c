"""Is decoding right on this CUDA device, and what does a pass cost? Builds nothing, needs no network, 10 minutes.

python -m benchmarks.gpu_check [--device cuda] [--dtypes bfloat16,float32] [--tiny] [--out out/gpu_check.json]

A Llama of real size (the shape of 1B) with random weights: every method's greedy output against `generate`, passes
over 1 to 64 nodes and whole lanes, eager against padded passes, CUDA graphs and torch.compile. Exit status 0: all is
right; 1: an output differs by more than a rounding tie; 2: there is no such device, so nothing was checked. `--device
cpu --tiny` runs the same code on a toy, for tests.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.common import Json, interleave, summary, table
from benchmarks.gpu_modes import MODES, prepared, running
from explorer import attention
from explorer.decode import Lane, Turn, drain
from explorer.drafters.detect import KINDS
from explorer.errors import ExplorerError
from explorer.load import DTYPES, choose_device, describe
from explorer.methods import METHODS
from explorer.methods.base import Method
from explorer.sampling import SamplingSettings
from explorer.target import TargetModel
from explorer.toy import toy_drafter, toy_tokenizer

NODES = (1, 2, 4, 8, 16, 32, 64)
REAL_SHAPE: Json = {
    "vocab_size": 128_256, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
    "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 8192, "rope_theta": 500_000.0,
}  # fmt: skip
TINY_SHAPE: Json = {
    "vocab_size": 384, "hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 1024,
}  # fmt: skip
TIES = {"bfloat16": 0.25, "float32": 1e-3}
"""Difference of the two best logits under which rounding may decide."""


def main(arguments: list[str] | None = None) -> int:
    """Check, print, write."""
    asked = _parser().parse_args(arguments)
    try:
        device = choose_device(asked.device)
        if device.type != "cuda" and not asked.tiny:
            raise ExplorerError("A model of real size is checked on CUDA devices only; add --tiny for a trial.")
        if unknown := [name for name in asked.dtypes.split(",") if name not in DTYPES]:
            raise ExplorerError(f"There is no dtype {unknown[0]!r} here; use {' or '.join(DTYPES)}.")
    except ExplorerError as error:
        print(f"Nothing was checked: {error}")
        return 2
    torch.set_float32_matmul_precision("highest")  # float32 means float32
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    result: Json = {"device": name, "torch": torch.__version__, "tiny": asked.tiny, "dtypes": {}}
    for dtype in asked.dtypes.split(","):
        result["dtypes"][dtype] = check(device, dtype, tiny=asked.tiny)
        if device.type == "cuda":
            torch.cuda.empty_cache()
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    wrong = [row for found in result["dtypes"].values() for row in found["equality"] if not row["right"]]
    print("all outputs are generate's, up to rounding ties" if not wrong else f"{len(wrong)} outputs are wrong")
    return 1 if wrong else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtypes", default="bfloat16,float32")
    parser.add_argument("--tiny", action="store_true", help="a toy in place of the model of real size")
    parser.add_argument("--out", type=Path, default=Path("out/gpu_check.json"))
    return parser


def check(device: torch.device, dtype: str, *, tiny: bool) -> Json:
    """One dtype: equality of every method, then times."""
    begin = time.perf_counter()
    target = random_target(device, DTYPES[dtype], tiny=tiny)
    budget, context, rounds = (12, 32, 2) if tiny else (96, 512, 9)
    padded = running(target, "graphs" if device.type == "cuda" else "static")
    equality = [equal(each, method, budget, TIES[dtype]) for each in (target, padded) for method in METHODS]
    head = ["execution", "method", dtype, "first difference", "margin", "tokens/pass", "ms/token"]
    print(table([head, *_equality_rows(equality)]), end="\n\n")
    times = timed(target, context, rounds)
    print(table([["nodes", *(f"{mode} ms" for mode in MODES)], *_time_rows(times)]), end="\n\n", flush=True)
    fell_back = padded.execution == "eager"
    return {
        "equality": equality, "passes": times, "graphs_fell_back": fell_back, "seconds": time.perf_counter() - begin
    }  # fmt: skip


def random_target(device: torch.device, dtype: torch.dtype, *, tiny: bool) -> TargetModel:
    """Random weights, seeded, made on the device itself."""
    tokenizer = toy_tokenizer()
    settings: Json = {**(TINY_SHAPE if tiny else REAL_SHAPE), "attn_implementation": attention.install()}
    config = LlamaConfig(
        **settings,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        tie_word_embeddings=False,
        initializer_range=0.15 if tiny else 0.04,
    )
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), torch.device(device):
        torch.manual_seed(0)
        model: Any = LlamaForCausalLM(config)
    model.to(dtype)
    with torch.no_grad():  # an early end would make a dull check
        model.lm_head.weight[tokenizer.eos_token_id] = 0.0
    return TargetModel(model.eval(), tokenizer, describe(model, model_id="random", label="random weights"))


def equal(target: TargetModel, method: type[Method], budget: int, tie: float) -> Json:
    """A greedy lane against `generate`: equal, or first different where the two best logits are as good as equal."""
    ids = target.tokenizer("one two one two one two three one two")["input_ids"]
    drafter = toy_drafter(method.needs, target) if method.needs in KINDS else None
    lane = Lane(
        method.name,
        target,
        method,
        method.Params(),
        sampling=SamplingSettings(),
        max_new_tokens=budget,
        drafter=drafter,
    )
    lane.start(target.prefill(ids, taps=lane.taps), 0.0)
    turns: list[Turn] = []
    output = drain(lane, turns.append)
    prompt = torch.tensor([ids], device=target.device)
    made = target.transformers_model.generate(
        prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=budget, pad_token_id=0
    )
    expected = made[0, len(ids) :].tolist()
    place = next((i for i, (own, other) in enumerate(zip(output, expected, strict=False)) if own != other), None)
    margin = None if place is None else _margin(target, [*ids, *expected[:place]])
    right = place is None and len(output) == len(expected)
    return {
        "execution": target.execution,
        "method": method.name,
        "first_difference": place,
        "margin": margin,
        "right": right or (margin is not None and margin < tie),
        "tokens_per_pass": (len(output) - 1) / max(len(turns), 1),
        "ms_per_token": sum(span.duration_ms for turn in turns for span in turn.spans) / max(len(output) - 1, 1),
    }


def _margin(target: TargetModel, ids: list[int]) -> float:
    with torch.inference_mode():
        row: Tensor = target.transformers_model(torch.tensor([ids], device=target.device)).logits[0, -1].float()
    best = torch.topk(row, 2).values
    return float(best[0] - best[1])


def timed(target: TargetModel, context: int, rounds: int) -> list[Json]:
    """Milliseconds of a pass per number of nodes and mode; a sentence where a mode does not work here."""
    results = []
    for nodes in NODES:
        row: Json = {"nodes": nodes}
        tasks: dict[str, Callable[[], float | None]] = {}
        for mode in MODES:
            try:
                tasks[mode] = prepared(mode, target, nodes, context)
            except Exception as error:  # a mode that a build or a device lacks is a finding, not a failure
                row[mode] = str(error).strip().splitlines()[0][:120] if str(error).strip() else type(error).__name__
        values = interleave(tasks, rounds)
        row |= {mode: summary([1000.0 * second for second in values[mode]]) for mode in tasks}
        results.append(row)
    return results


def _equality_rows(equality: list[Json]) -> list[list[object]]:
    return [
        [each["execution"], each["method"], "right" if each["right"] else "WRONG", each["first_difference"],
         each["margin"], each["tokens_per_pass"], each["ms_per_token"]]
        for each in equality
    ]  # fmt: skip


def _time_rows(times: list[Json]) -> list[list[object]]:
    return [
        [row["nodes"], *(row[mode]["median"] if isinstance(row[mode], dict) else row[mode] for mode in MODES)]
        for row in times
    ]


if __name__ == "__main__":
    sys.exit(main())
