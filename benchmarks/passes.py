"""A pass over 1 to 64 rows at three contexts against the floor: what reading and multiplying must take at least."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import torch

from benchmarks.common import Json, interleave, summary
from explorer.products import Product
from explorer.shelf import Shelf
from explorer.target import TargetModel
from explorer.tree import Candidate, CandidateTree

ROWS = (1, 2, 4, 8, 16, 32, 64)
CONTEXTS = (128, 512, 1024, 4096)
READ_BYTES = 1 << 29
SQUARE = 2048


def memory_bandwidth(device: torch.device, rounds: int = 7) -> float:
    """Bytes per second of reading memory with all threads: a sum over an array that no cache holds."""
    numbers = torch.ones(READ_BYTES // 8, dtype=torch.int64, device=device)
    seconds = interleave({"read": lambda: _timed(lambda: numbers.sum(), device)}, rounds)["read"]
    return READ_BYTES / min(seconds)


def matrix_rate(device: torch.device, dtype: torch.dtype, rounds: int = 7) -> float:
    """Operations per second of one large square product, in the faster of the two layouts that weights have here."""
    left = torch.rand(SQUARE, SQUARE, device=device).to(dtype)
    packed = Product(left)
    with torch.inference_mode():
        seconds = interleave(
            {
                "plain": lambda: _timed(lambda: left @ left, device),
                "packed": lambda: _timed(lambda: packed(left), device),
            },
            rounds,
        )
    return 2.0 * SQUARE**3 / min(min(values) for values in seconds.values())


def _timed(task: Callable[[], object], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    begin = time.perf_counter()
    task()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - begin


def passes(shelf: Shelf, rounds: int, contexts: tuple[int, ...] = CONTEXTS) -> Json:
    """Milliseconds per context and number of rows, in turns, and the floor under each."""
    target = shelf.target
    bandwidth, rate = memory_bandwidth(target.device), matrix_rate(target.device, target.dtype)
    result: Json = {"bytes_per_second": bandwidth, "operations_per_second": rate, "passes": []}
    for context in contexts:
        if context + ROWS[-1] > target.context_tokens:
            continue
        prefill = target.prefill([7] * context)
        cache = target.new_cache(context + ROWS[-1])
        cache.copy_from(prefill.cache)
        tasks: dict[str, Callable[[], float | None]] = {}
        for rows in ROWS:
            tree = CandidateTree(7, tuple(Candidate(7, (node - 1) // 2, "bench") for node in range(1, rows)))
            tasks[str(rows)] = partial(_timed, partial(target.verify, tree, cache), target.device)
        for name, seconds in interleave(tasks, rounds).items():
            floor_ms = 1000.0 * floor_seconds(target, int(name), context, bandwidth, rate)
            measured = summary([1000.0 * second for second in seconds])
            result["passes"].append(
                {"context": context, "rows": int(name), "ms": measured, "floor_ms": floor_ms}
            )  # fmt: skip
    return result


def floor_seconds(target: TargetModel, rows: int, context: int, bandwidth: float, rate: float) -> float:
    """The longer of two: reading weights and cache once; two operations per weight and row, and attention's own.

    The embedding is looked up, not read; a head that shares its matrix is read once.
    """
    config = target.transformers_model.config
    embedding = target.embed_weight.numel()
    tied = target.embed_weight.data_ptr() == target.output_weight.data_ptr()
    weights = target.info.parameters - (0 if tied else embedding)
    kv_heads = int(getattr(config, "num_key_value_heads", config.num_attention_heads))
    head_dim = int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
    cached = 2 * target.num_layers * kv_heads * head_dim * (context + rows)
    operations = 2.0 * weights * rows + 4.0 * target.num_layers * config.num_attention_heads * head_dim * rows * (
        context + rows
    )
    return max((weights + cached) * target.dtype.itemsize / bandwidth, operations / rate)


def rows(result: Json) -> list[list[object]]:
    """For the screen."""
    lines: list[list[object]] = [["context", "rows", "ms", "least", "most", "floor ms", "floor / ms", "over 1 row"]]
    one: dict[int, float] = {}
    for each in result["passes"]:
        median = each["ms"]["median"]
        one.setdefault(each["context"], median)
        lines.append([
            each["context"], each["rows"], median, each["ms"]["least"], each["ms"]["most"], each["floor_ms"],
            each["floor_ms"] / median, median / one[each["context"]],
        ])  # fmt: skip
    return lines
