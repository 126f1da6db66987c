"""The target and its drafters: got and loaded in the background, with progress that anybody may watch."""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from explorer.catalogue import BARELY, DEFAULT_MODEL
from explorer.costs import measure_costs
from explorer.errors import ExplorerError
from explorer.events import Preparing
from explorer.footprint import target_info
from explorer.sizing import Costs
from explorer.stock import Place, check_model, drafter_places, read_drafter, read_target, title_of, toy_drafters
from explorer.target import TargetModel
from explorer.toy import TOY_ID
from explorer.tree import Candidate, CandidateTree

__all__ = ["Shelf", "ShelfSettings", "check_model", "warm_up"]
WARM_UP_NODES = (1, 4, 26)
LOG = logging.getLogger(__name__)
INSIDE = "The model could not be loaded; the server's log says more."


@dataclass(frozen=True)
class ShelfSettings:
    """Which models, and where they run."""

    model: str = DEFAULT_MODEL.id
    """The default model's id, a pair's, `toy`, a folder, or a repository of the hub (owner/name, @revision)."""
    device: str = "auto"
    dtype: str = "auto"
    drafters: Mapping[str, Place] = field(default_factory=dict)
    """Kind to folder or repository, besides those that come with the model."""
    switching: bool = True
    """May a viewer of the page put another model in its place?"""
    execution: str = "auto"
    """How passes run: auto, eager, static or graphs; see explorer/execution.py."""


@dataclass(frozen=True)
class Held:
    """A model that answers, with what drafts for it."""

    name: str
    target: TargetModel
    drafters: Mapping[str, Any]
    faults: Mapping[str, str]
    """Kind to the reason why its drafter could not be loaded."""
    costs: Mapping[str | None, Costs]
    """Per kind of drafter, None for none: what passes take on this machine."""


class _Stopped(ExplorerError):
    """Nobody waits for this load any more."""


class Loading:
    """A load in a thread of its own."""

    def __init__(self, settings: ShelfSettings) -> None:
        self.said = [Preparing("Loading the model.")]
        self.held: Held | None = None
        self.failure: ExplorerError | None = None
        self._settings = settings
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="model-loader", daemon=True)
        self._thread.start()

    @property
    def over(self) -> bool:
        """Has it come to its end, good or bad?"""
        return not self._thread.is_alive()

    def wait(self, stopped: Callable[[], bool]) -> Iterator[Preparing]:
        """How far it is, until it is over or `stopped` says so. ExplorerError when it failed."""
        shown = len(self.said) - 1
        while not stopped():
            over = self.over  # asked first: what is said until then is not lost
            fresh = self.said[shown:]
            shown += len(fresh)
            yield from fresh
            if over:
                break
            self._thread.join(0.1)
        if self.failure is not None:
            raise self.failure

    def abandon(self) -> None:
        """End it at the next word that it says, and wait for that."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            self.held = self._load()
        except ExplorerError as error:
            self.failure = error
        except torch.OutOfMemoryError:
            self.failure = ExplorerError(
                f"{title_of(self._settings.model)} does not fit the device's memory; take a smaller model, dtype "
                "bfloat16, or device spread."
            )
        except Exception:
            LOG.exception("loading the model failed")
            self.failure = ExplorerError(INSIDE)

    def _load(self) -> Held:
        settings = self._settings
        target = read_target(settings.model, settings.device, settings.dtype, self._tell, settings.execution)
        drafters, faults = self._load_drafters(target)
        self._tell("Warming up.", None)
        warm_up(target)
        self._tell("Measuring how long passes take.", None)
        target.info = target_info(target)
        return Held(settings.model, target, drafters, faults, measure_costs(target, drafters))

    def _load_drafters(self, target: TargetModel) -> tuple[dict[str, Any], dict[str, str]]:
        """What was named has to load; what only comes with the model may fail, and its lanes say why."""
        settings, faults = self._settings, {}
        drafters = toy_drafters(target) if settings.model == TOY_ID else {}
        for kind, place in {**drafter_places(settings.model), **settings.drafters}.items():
            try:
                drafters[kind] = read_drafter(kind.removesuffix(BARELY), place, target, self._tell)
            except _Stopped:
                raise
            except ExplorerError as error:
                if kind in settings.drafters or settings.model == DEFAULT_MODEL.id:
                    raise
                faults[kind] = str(error)
        return drafters, faults

    def _tell(self, text: str, share: float | None) -> None:
        if self._stopped.is_set():
            raise _Stopped("Loading was stopped.")
        if self.said[-1] != (now := Preparing(text, share)):
            self.said.append(now)


class Shelf:
    """Loads on the first `watch` or `start`; a failed load may be tried again. `switch` puts another in its place."""

    def __init__(self, settings: ShelfSettings = ShelfSettings()) -> None:
        self.settings = settings
        self._lock = threading.Lock()
        self._loading: Loading | None = None
        self._held: Held | None = None

    @property
    def ready(self) -> bool:
        """Has everything been loaded?"""
        return self._current() is not None

    @property
    def target(self) -> TargetModel:
        """The target. ExplorerError before it is loaded."""
        held = self._current()
        if held is None:
            raise ExplorerError("The model is not loaded yet.")
        return held.target

    @property
    def model(self) -> str:
        """The name that the model was asked for by."""
        held = self._current()
        return held.name if held is not None else self.settings.model

    @property
    def title(self) -> str:
        """What the page calls the model."""
        return title_of(self.model)

    def drafter(self, kind: str | None) -> Any:
        """The loaded drafter of that kind; None for None."""
        if kind is None:
            return None
        held = self._current()
        if held is None or kind not in held.drafters:
            raise ExplorerError(self.missing(kind) or f"The {kind} drafter is not loaded yet.")
        return held.drafters[kind]

    def costs(self, kind: str | None) -> Costs:
        """What passes take with that kind of drafter. ExplorerError before it is loaded."""
        held = self._current()
        if held is None or kind not in held.costs:
            raise ExplorerError(self.missing(kind) or "The model is not loaded yet.")
        return held.costs[kind]

    def missing(self, kind: str | None) -> str | None:
        """Why a kind of drafter cannot be had, or None when it can, as far as is known before all is loaded."""
        held = self._current()
        if kind is None or (held is not None and kind in held.drafters):
            return None
        if held is not None and kind in held.faults:
            return held.faults[kind]
        coming = {**drafter_places(self.model), **self.settings.drafters}
        if held is None and (self.model == TOY_ID or kind in coming):
            return None
        return f"There is no {_words(kind)} drafter for {self.title}; train one or name its folder."

    def start(self) -> None:
        """Begin loading in the background, unless that was done."""
        if self.ready:
            return
        with self._lock:
            if self._held is None and (self._loading is None or self._loading.over):
                self._loading = Loading(self.settings)

    def watch(self, stopped: Callable[[], bool] = lambda: False) -> Iterator[Preparing]:
        """Wait until all is loaded, telling how far it is. ExplorerError when it failed."""
        self.start()
        loading = self._loading
        if loading is not None:
            yield from loading.wait(stopped)

    def switch(self, model: str, stopped: Callable[[], bool] = lambda: False) -> Iterator[Preparing]:
        """Load another model beside the one that answers, then put it in its place.

        ExplorerError, and nothing has changed, where that fails. Nothing may run on the device meanwhile.
        """
        drafters = self.settings.drafters if model == self.settings.model else {}
        settings = replace(self.settings, model=model, drafters=drafters)
        loading = Loading(settings)
        try:
            yield from loading.wait(stopped)
        finally:
            if loading.held is None:
                loading.abandon()
        with self._lock:
            if loading.held is not None:
                self._held = loading.held
        loading.held = None
        _free_memory()

    def _current(self) -> Held | None:
        """What answers now; a load in the background that has come to its end is taken over here."""
        with self._lock:
            if self._held is None and self._loading is not None and self._loading.held is not None:
                # the only reference from here on, so that a switch can free it
                self._held, self._loading = self._loading.held, None
            return self._held


def _words(kind: str) -> str:
    """A kind of drafter for people."""
    return f"barely trained {kind.removesuffix(BARELY)}" if kind.endswith(BARELY) else kind


def warm_up(target: TargetModel) -> None:
    """First calls are slow (lazy initialisation, memory); none of that belongs on a lane's clock."""
    prefill = target.prefill([0] * min(8, target.context_tokens - 1))
    before = len(prefill.token_ids)
    for nodes in WARM_UP_NODES:
        deepest = max(target.context_tokens - before - 1, 0)
        cache = target.new_cache(before + nodes)
        cache.copy_from(prefill.cache)
        chain = tuple(Candidate(0, min(node, deepest - 1), "warm-up") for node in range(nodes - 1) if deepest)
        target.verify(CandidateTree(0, chain), cache)
    target.synchronize()


def _free_memory() -> None:
    """Give back what the earlier model held: tensors in cycles, and CUDA's own cache."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
