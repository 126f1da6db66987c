"""Ways to run the same pass: the explorer's own three executions, and the padded pass through torch.compile."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor

from explorer.errors import ExplorerError
from explorer.execution import Execution, choose_execution
from explorer.static import StaticCache, padded_inputs
from explorer.target import TAP_LAST, TargetModel
from explorer.tree import Candidate, CandidateTree

EXECUTIONS: tuple[Execution, ...] = ("eager", "static", "graphs")
MODES = (*EXECUTIONS, "compiled")
"""Executions are the explorer's own calls, host work and transfers included. compiled: what a compiler could gain, on
inputs that are on the device already; the explorer does not offer it."""
SAME = 0.05
"""Another execution may differ from the eager one by so much of the largest logit: other orders of sums."""


def running(target: TargetModel, execution: Execution) -> TargetModel:
    """The same weights with another execution. ExplorerError where the device has it not."""
    return target.with_execution(choose_execution(execution, target.device))


def prepared(mode: str, target: TargetModel, nodes: int, context: int) -> Callable[[], float]:
    """A task that runs one pass over so many nodes and gives its seconds, events' time on CUDA.

    ExplorerError or torch's own error where the mode does not work here, or gives other logits.
    """
    tree = CandidateTree(7, tuple(Candidate(7, (node - 1) // 2, "check") for node in range(1, nodes)))
    expected = _pass(target, tree, context)()
    if mode == "compiled":
        run = _compiled(target, tree, context)
    else:
        own = running(target, next(each for each in EXECUTIONS if each == mode))
        run = _pass(own, tree, context)
        if own.execution != mode:
            raise ExplorerError("could not be captured; the log says why")
    _refuse_other_logits(run(), expected)
    return lambda: _seconds(run, target.device)


def _pass(target: TargetModel, tree: CandidateTree, context: int) -> Callable[[], Tensor]:
    """The explorer's own call, made ready; the logits (T, V)."""
    cache = target.new_cache(context + len(tree))
    cache.copy_from(target.prefill([7] * context).cache)
    target.prepare(tree, cache)
    return lambda: target.verify(tree, cache).logits


def _compiled(target: TargetModel, tree: CandidateTree, context: int) -> Callable[[], Tensor]:
    """The padded pass with inductor on CUDA; elsewhere no code is generated: only whether it works is looked at."""
    own = running(target, "static")
    cache = own.new_cache(context + len(tree))
    assert isinstance(cache, StaticCache)
    cache.copy_from(own.prefill([7] * context).cache)
    passes, key = own.static_passes, own.static_passes.key(len(tree), cache, frozenset())
    inputs = padded_inputs(tree.token_ids, tree.depths, tree.visibility(), context, key[0]).to(target.device)
    head = target.transformers_model.get_output_embeddings()

    def padded() -> Tensor:
        logits: Tensor = head(passes.padded(inputs, key, cache)[TAP_LAST])
        return logits

    torch._dynamo.reset()
    compiled: Callable[[], Tensor] = torch.compile(
        padded, dynamic=False, backend="inductor" if target.device.type == "cuda" else "eager"
    )

    def run() -> Tensor:
        with torch.inference_mode():
            return compiled()[: len(tree)]

    return run


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
