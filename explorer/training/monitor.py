"""What a training run leaves while it runs: checkpoints along the way, a history, a report for the browser."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from explorer.drafters.checkpoint import write_checkpoint
from explorer.errors import ExplorerError
from explorer.figures.training import PLOTLY_NAME, plotly_script, training_page
from explorer.training.evaluate import Report
from explorer.training.state import write_whole

QUICK_SAMPLES = 24
"""Held-out answers that a checkpoint is judged on while training goes on; the end judges all of them."""
POINT_FACTS = ("top1", "top5", "chain_tokens", "tree_tokens", "positions")


@dataclass(frozen=True)
class Trainee:
    """A drafter as seen by those who write it down."""

    title: str
    export: Callable[[], dict[str, Tensor]]
    """Its tensors under their public names, bf16, without any tensor of the target."""
    config: Callable[[Report], dict[str, Any]]
    """The part of config.json that is its own kind's."""
    evaluate: Callable[[int | None], Report]
    """Held-out figures on so many answers, None: on all."""


class Monitor:
    """Keeps history, checkpoints and report in the work folder. One for all stages of a run."""

    def __init__(self, folder: Path, trainee: Trainee, common: Callable[[Report, int], Mapping[str, Any]]) -> None:
        """`common(report, tokens)` is the part of config.json that every drafter has."""
        self._folder, self._trainee, self._common = folder, trainee, common
        self._stage, self._earlier = "", 0
        self._losses: dict[str, list[float]] = {}
        self._points: dict[int, dict[str, Any]] = self._read()

    @property
    def points(self) -> list[dict[str, Any]]:
        """Held-out figures by training tokens, ascending: what training buys."""
        return [self._points[tokens] for tokens in sorted(self._points)]

    def begin(self, stage: str, earlier_tokens: int) -> None:
        """A stage starts; `earlier_tokens` were seen in the ones before it."""
        self._stage, self._earlier = stage, earlier_tokens

    def mark(self, tokens: int) -> None:
        """Judge the drafter on some held-out answers and keep it as a folder of its own."""
        total = self._earlier + tokens
        report = self._trainee.evaluate(QUICK_SAMPLES)
        self._points[total] = {"train_tokens": total, "stage": self._stage, **report.facts()}
        config = {**self._trainee.config(report), **self._common(report, total)}
        card = f"# {self._trainee.title}, after {total:,} training tokens\n\nA checkpoint of an unfinished run.\n"
        save_drafter(self._folder / "checkpoints" / f"tokens-{total:010d}", self._trainee.export(), config, card)
        self._write()

    def losses(self, values: Sequence[float]) -> None:
        """All losses of the stage so far."""
        self._losses[self._stage] = [round(value, 5) for value in values]
        self._write()

    def _write(self) -> None:
        stages = [{"name": name, "losses": losses} for name, losses in self._losses.items()]
        history = {"title": self._trainee.title, "stages": stages, "points": self.points}
        write_whole(self._folder / "history.json", json.dumps(history).encode(), what="The history")
        if not (script := self._folder / PLOTLY_NAME).exists():
            write_whole(script, plotly_script(), what="The report")
        write_whole(self._folder / "report.html", training_page(history).encode(), what="The report")

    def _read(self) -> dict[int, dict[str, Any]]:
        """Points and losses of the run that is taken up; nothing where there is no readable history."""
        try:
            history = json.loads((self._folder / "history.json").read_text(encoding="utf-8"))
            self._losses = {stage["name"]: list(stage["losses"]) for stage in history["stages"]}
            return {int(point["train_tokens"]): point for point in history["points"]}
        except (OSError, ValueError, KeyError, TypeError):
            self._losses = {}
            return {}


def save_drafter(folder: Path, tensors: Mapping[str, Tensor], config: Mapping[str, Any], card: str) -> None:
    """`write_checkpoint`, with a sentence where the disk does not take it."""
    try:
        write_checkpoint(folder, tensors, config, card)
    except OSError as error:
        raise ExplorerError(
            f"The drafter cannot be written to {folder}: {error.strerror or error}; "
            "what was written before is kept, and the run goes on from its last saved state."
        ) from error
