"""Autoregressive against `generate`, and what recording costs: interleaved runs in one process, medians.

python -m benchmarks.engine [--tokens 64] [--rounds 5] [--dtype float32] [--out out/engine.json]
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers

from explorer.decode import Lane
from explorer.methods import METHODS
from explorer.methods.base import Method
from explorer.record import StepWriter
from explorer.sampling import SamplingSettings
from explorer.session import Studio
from explorer.shelf import Shelf, ShelfSettings

PROMPT = "Write a Python function that returns the n-th Fibonacci number, and explain each line."


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--out", type=Path, default=Path("out/engine.json"))
    asked = parser.parse_args()
    shelf = Studio(ShelfSettings(dtype=asked.dtype)).shelf
    list(shelf.watch())
    result = {"machine": machine(shelf), "tokens": asked.tokens, "rounds": asked.rounds}
    result |= against_generate(shelf, asked.tokens, asked.rounds)
    result["recording"] = [recording(shelf, method, asked.tokens, asked.rounds) for method in METHODS]
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


def machine(shelf: Shelf) -> dict[str, Any]:
    """What the numbers hold for."""
    info = shelf.target.info
    return {
        "processor": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "dtype": info.dtype,
        "device": info.device,
    }


def against_generate(shelf: Shelf, tokens: int, rounds: int) -> dict[str, Any]:
    """Tokens per second of `generate` and of the autoregressive lane, recording on, interleaved."""
    target = shelf.target
    prompt = target.tokenizer(PROMPT)["input_ids"]
    model: Any = target.transformers_model

    def ours() -> None:
        decode(shelf, METHODS[0], prompt, tokens, record=True)

    def theirs() -> None:
        model.generate(
            torch.tensor([prompt], device=target.device),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long, device=target.device),
            max_new_tokens=tokens,
            min_new_tokens=tokens,
            do_sample=False,
        )

    times = interleave({"generate": theirs, "autoregressive": ours}, rounds)
    rates = {name: [tokens / second for second in seconds] for name, seconds in times.items()}
    pairs = zip(rates["autoregressive"], rates["generate"], strict=True)
    ratios = [own / other for own, other in pairs]
    return {
        "tokens_per_second": {name: statistics.median(values) for name, values in rates.items()},
        "autoregressive_over_generate": {"median": statistics.median(ratios), "all": ratios},
    }


def recording(shelf: Shelf, method: type[Method], tokens: int, rounds: int) -> dict[str, Any]:
    """Wall time with recording on over wall time with it off, on the same decode."""
    prompt = shelf.target.tokenizer(PROMPT)["input_ids"]
    times = interleave(
        {
            "off": lambda: decode(shelf, method, prompt, tokens, record=False),
            "on": lambda: decode(shelf, method, prompt, tokens, record=True),
        },
        rounds,
    )
    ratios = [on / off - 1 for on, off in zip(times["on"], times["off"], strict=True)]
    return {"method": method.name, "extra_share": {"median": statistics.median(ratios), "all": ratios}}


def decode(shelf: Shelf, method: type[Method], prompt: list[int], tokens: int, *, record: bool) -> None:
    """One lane to its end; end-of-sequence tokens do not stop it early only if the model says none."""
    lane = Lane(
        method.name,
        shelf.target,
        method,
        method.Params(),
        sampling=SamplingSettings(),
        max_new_tokens=tokens,
        drafter=shelf.drafter(method.needs),
    )
    lane.start(shelf.target.prefill(prompt, taps=method.taps), 0.0)
    writer = StepWriter(shelf.target.texts)
    for turn in lane.turns():
        if record:
            writer.step(turn, lane.method.payload())
            writer.tokens(turn, lane.stop_reason is not None)


def interleave(tasks: dict[str, Callable[[], None]], rounds: int) -> dict[str, list[float]]:
    """Seconds per task and round, tasks taking turns, after one round that is not counted."""
    times: dict[str, list[float]] = {name: [] for name in tasks}
    for number in range(rounds + 1):
        for name, task in tasks.items():
            begin = time.perf_counter()
            task()
            if number:
                times[name].append(time.perf_counter() - begin)
    return times


if __name__ == "__main__":
    main()
