"""What all measurements share: runs in turns, medians with their spread, the machine, a lane from start to end."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

from explorer.backlog import Backlog
from explorer.decode import Lane, Turn
from explorer.errors import ExplorerError
from explorer.methods import find_method
from explorer.record import StepWriter
from explorer.sampling import SamplingSettings
from explorer.session import Studio
from explorer.shelf import Shelf, ShelfSettings

PROMPT = "Write a Python function that returns the n-th Fibonacci number, and explain each line."

Json = dict[str, Any]


def loaded(dtype: str, device: str = "auto", model: str | None = None) -> Studio:
    """A studio whose model and drafters are loaded and warm."""
    settings = ShelfSettings(dtype=dtype, device=device)
    if model is not None:
        settings = ShelfSettings(model=model, dtype=dtype, device=device)
    studio = Studio(settings)
    list(studio.shelf.watch())
    return studio


def machine(shelf: Shelf) -> Json:
    """What the numbers hold for."""
    info = shelf.target.info
    return {
        "processor": _processor(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "model": info.id,
        "dtype": info.dtype,
        "device": info.device,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]} x {len(names)}" if names else platform.machine()


def interleave(tasks: dict[str, Callable[[], float | None]], rounds: int) -> dict[str, list[float]]:
    """Per task a value a round: what it returns, else its seconds. They take turns; one round first does not count."""
    values: dict[str, list[float]] = {name: [] for name in tasks}
    for number in range(rounds + 1):
        for name, task in tasks.items():
            begin = time.perf_counter()
            result = task()
            value = time.perf_counter() - begin if result is None else result
            if number:
                values[name].append(value)
    return values


def summary(values: Sequence[float]) -> Json:
    """Median and spread."""
    return {"median": statistics.median(values), "least": min(values), "most": max(values), "runs": len(values)}


def ratios(over: Sequence[float], under: Sequence[float]) -> Json:
    """Of runs of the same round, one to one."""
    return summary([own / other for own, other in zip(over, under, strict=True)])


def lane_of(shelf: Shelf, name: str, params: Json, tokens: int) -> Lane:
    """A lane that has not started."""
    method = find_method(name)
    return Lane(
        name,
        shelf.target,
        method,
        method.Params(**params),
        sampling=SamplingSettings(),
        max_new_tokens=tokens,
        drafter=shelf.drafter(method.needs),
        costs=shelf.costs(method.needs),
    )


def decode(shelf: Shelf, name: str, params: Json, prompt: list[int], tokens: int, *, record: bool = True) -> Lane:
    """A lane from its prompt to its end, greedy."""
    lane = lane_of(shelf, name, params, tokens)
    lane.start(shelf.target.prefill(prompt, taps=lane.taps), 0.0)
    writer, backlog = StepWriter(shelf.target.texts), Backlog[None]()
    for turn in lane.turns():
        if record:
            record_turn(lane, turn, writer, backlog)
    return lane


def record_turn(lane: Lane, turn: Turn, writer: StepWriter, backlog: Backlog[None]) -> None:
    """Record as a race does: a few turns at a time, and all of them at the lane's end."""
    last = lane.stop_reason is not None
    backlog.add(None, writer, turn, lane.method.payload(), last=last)
    if last or backlog.due:
        for _ in backlog.write():
            pass


def prompt_ids(shelf: Shelf, text: str = PROMPT) -> list[int]:
    """As the model's chat template has it, where it has one."""
    tokenizer = shelf.target.tokenizer
    if tokenizer.chat_template is not None:
        message = [{"role": "user", "content": text}]
        text = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def missing(shelf: Shelf, name: str) -> str | None:
    """Why a method cannot run here, or None."""
    try:
        shelf.drafter(find_method(name).needs)
    except ExplorerError as error:
        return str(error)
    return None


def table(rows: Sequence[Sequence[object]]) -> str:
    """Columns of equal width; numbers short."""
    cells = [[f"{cell:.3g}" if isinstance(cell, float) else str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)
