"""Ways to run the same pass: as the explorer does, by the decoder alone, compiled, and replayed as a CUDA graph.

Compiled and replayed passes have fixed shapes: one number of nodes, one cache length. They say what a static cache
could gain on this device; the explorer itself runs eager.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from explorer.errors import ExplorerError
from explorer.target import TargetModel, additive_mask
from explorer.tree import Candidate, CandidateTree

MODES = ("verify", "eager", "compiled", "graph")
"""verify: the explorer's own call, host work and transfers included. The others: decoder and head on inputs that are
on the device already."""
SAME = 0.05
"""A compiled or replayed pass may differ from the eager one by so much of the largest logit: other orders of sums."""


def prepared(mode: str, target: TargetModel, nodes: int, context: int) -> Callable[[], float]:
    """A task that runs one pass over so many nodes and gives its seconds, events' time on CUDA.

    ExplorerError or torch's own error where the mode does not work here, or gives other logits.
    """
    tree = CandidateTree(7, tuple(Candidate(7, (node - 1) // 2, "check") for node in range(1, nodes)))
    cache = target.new_cache(context + nodes)
    cache.copy_from(target.prefill([7] * context).cache)
    if mode == "verify":
        return lambda: _seconds(lambda: target.verify(tree, cache).logits, target.device)
    run = _static_pass(target, tree, cache)
    expected = run()
    if mode == "compiled":
        run = _compiled(run, target.device)
    elif mode == "graph":
        run = _graph(run, target.device)
    _refuse_other_logits(run(), expected)
    return lambda: _seconds(run, target.device)


def _static_pass(target: TargetModel, tree: CandidateTree, cache: Any) -> Callable[[], Tensor]:
    """The pass on tensors that stay where they are; the logits (T, V)."""
    model: Any = target.transformers_model
    decoder, head = model.get_decoder(), model.get_output_embeddings()
    ids = torch.tensor([tree.token_ids], device=target.device)
    positions = (cache.length + torch.tensor(tree.depths))[None].to(target.device)
    mask = additive_mask(tree.visibility(), cache.length, target.dtype).to(target.device)

    def run() -> Tensor:
        with torch.inference_mode():
            output = decoder(input_ids=ids, position_ids=positions, attention_mask=mask, cache=cache, use_cache=True)
            logits: Tensor = head(output.last_hidden_state[0])
            return logits

    return run


def _compiled(run: Callable[[], Tensor], device: torch.device) -> Callable[[], Tensor]:
    """With inductor on CUDA; elsewhere without generating code, since only whether it works is looked at there."""
    torch._dynamo.reset()
    compiled: Callable[[], Tensor] = torch.compile(
        run, dynamic=False, backend="inductor" if device.type == "cuda" else "eager"
    )
    compiled()
    return compiled


def _graph(run: Callable[[], Tensor], device: torch.device) -> Callable[[], Tensor]:
    if device.type != "cuda":
        raise ExplorerError("CUDA only")
    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):  # warm up outside of the capture, as the documentation of CUDA graphs asks for
        for _ in range(3):
            run()
    torch.cuda.current_stream(device).wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        logits = run()

    def replay() -> Tensor:
        graph.replay()
        return logits

    return replay


def _refuse_other_logits(found: Tensor, expected: Tensor) -> None:
    largest = float(expected.float().abs().max())
    difference = float((found.float() - expected.float()).abs().max())
    if difference > SAME * largest:
        raise ExplorerError(f"gives other logits: {difference:.3g} off, where the largest is {largest:.3g}")


def _seconds(run: Callable[[], Tensor], device: torch.device) -> float:
    if device.type != "cuda":
        begin = time.perf_counter()
        run()
        return time.perf_counter() - begin
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize(device)
    start.record()
    run()
    end.record()
    torch.cuda.synchronize(device)
    return start.elapsed_time(end) / 1000.0
