"""The target and its drafters: got and loaded once, in the background, with progress that anybody may watch."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from explorer.catalogue import DEFAULT_MODEL, find
from explorer.drafters.eagle_head import load_eagle
from explorer.drafters.medusa_heads import load_medusa
from explorer.errors import ExplorerError
from explorer.events import Preparing
from explorer.fetch import PROJECT, ensure_default_model
from explorer.load import choose_device, choose_dtype, load_target, weights_sha256
from explorer.target import TargetModel
from explorer.toy import TOY_ID, TOY_LABEL, toy_drafter, toy_target
from explorer.tree import Candidate, CandidateTree

WARM_UP_NODES = (1, 4, 26)
LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class ShelfSettings:
    """Which models, and where they run."""

    model: str = DEFAULT_MODEL.id
    """The default model's id, `toy`, or a folder."""
    device: str = "auto"
    dtype: str = "auto"
    drafters: Mapping[str, Path] = field(default_factory=dict)
    """Kind to folder, besides those that ship for the default model."""


def check_model(model: str) -> None:
    """ExplorerError where the name is neither a model on offer, nor the toy, nor a folder."""
    if model != TOY_ID and not Path(model).is_dir():
        find(model)


class Shelf:
    """Loads on the first `watch` or `start`; a failed load may be tried again."""

    def __init__(self, settings: ShelfSettings = ShelfSettings()) -> None:
        self.settings = settings
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._target: TargetModel | None = None
        self._drafters: dict[str, Any] = {}
        self._failure: ExplorerError | None = None
        self._now = Preparing("Loading the model.")

    @property
    def ready(self) -> bool:
        """Has everything been loaded?"""
        return self._target is not None

    @property
    def target(self) -> TargetModel:
        """The target. ExplorerError before it is loaded."""
        if self._target is None:
            raise ExplorerError("The model is not loaded yet.")
        return self._target

    @property
    def title(self) -> str:
        """What the page calls the model."""
        if self.settings.model == TOY_ID:
            return TOY_LABEL
        return DEFAULT_MODEL.title if self._default else Path(self.settings.model).name

    def drafter(self, kind: str | None) -> Any:
        """The loaded drafter of that kind; None for None."""
        if kind is None:
            return None
        if kind not in self._drafters:
            raise ExplorerError(self.missing(kind) or f"The {kind} drafter is not loaded yet.")
        return self._drafters[kind]

    def missing(self, kind: str | None) -> str | None:
        """Why a kind of drafter cannot be had, or None when it can."""
        if kind is None or self.settings.model == TOY_ID or kind in self._folders:
            return None
        return f"There is no {kind} drafter for {self.title}; train one or name its folder."

    def start(self) -> None:
        """Begin loading in the background, unless that was done."""
        with self._lock:
            if self.ready or (self._thread and self._thread.is_alive()):
                return
            self._failure = None
            self._thread = threading.Thread(target=self._load, name="model-loader", daemon=True)
            self._thread.start()

    def watch(self, stopped: Callable[[], bool] = lambda: False) -> Iterator[Preparing]:
        """Wait until all is loaded, telling how far it is. ExplorerError when it failed."""
        self.start()
        shown = None
        while not self.ready and not stopped():
            thread = self._thread
            if thread is not None:
                thread.join(0.1)
            if self._failure is not None:
                raise self._failure
            if self._now != shown:
                shown = self._now
                yield shown

    @property
    def _default(self) -> bool:
        return self.settings.model == DEFAULT_MODEL.id

    @property
    def _folders(self) -> dict[str, Path]:
        shipped = {kind: PROJECT / folder for kind, folder in DEFAULT_MODEL.drafters.items()}
        own = {kind: folder for kind, folder in shipped.items() if folder.is_dir()} if self._default else {}
        return {**own, **self.settings.drafters}

    def _load(self) -> None:
        try:
            target = self._load_target()
            self._drafters = self._load_drafters(target)
            self._now = Preparing("Warming up.")
            warm_up(target)
            self._target = target
        except ExplorerError as error:
            self._failure = error
        except Exception:
            LOG.exception("loading the model failed")
            self._failure = ExplorerError("The model could not be loaded; the server's log says more.")

    def _load_target(self) -> TargetModel:
        settings = self.settings
        if settings.model == TOY_ID:
            device = choose_device(settings.device)
            return toy_target(dtype=choose_dtype(settings.dtype, device), device=device)
        if not self._default:
            self._now = Preparing("Loading the model.")
            folder = Path(settings.model)
            sha256 = weights_sha256(folder)
            return self._read(folder, folder.name, sha256, None)
        folder = ensure_default_model(self._tell)
        self._now = Preparing("Loading the model.")
        file = DEFAULT_MODEL.file
        return self._read(folder, DEFAULT_MODEL.id, file.sha256, file.hub_revision)

    def _read(self, folder: Path, model_id: str, sha256: str, revision: str | None) -> TargetModel:
        return load_target(
            folder,
            model_id=model_id,
            label=self.title,
            sha256=sha256,
            revision=revision,
            device=self.settings.device,
            dtype=self.settings.dtype,
        )

    def _load_drafters(self, target: TargetModel) -> dict[str, Any]:
        if self.settings.model == TOY_ID:
            return {kind: toy_drafter(kind, target) for kind in ("medusa", "eagle")}
        self._now = Preparing("Loading the drafters.")
        return {kind: load_drafter(kind, folder, target) for kind, folder in self._folders.items()}

    def _tell(self, text: str, fraction: float | None) -> None:
        self._now = Preparing(f"Getting the model: {text}.", fraction)


def load_drafter(kind: str, folder: Path, target: TargetModel) -> Any:
    """A drafter of that kind from its folder, bound to the target's matrices."""
    place = {"device": target.device, "dtype": target.dtype}
    if kind == "medusa":
        return load_medusa(folder, output_weight=target.output_weight, **place)
    if kind == "eagle":
        return load_eagle(folder, embed_weight=target.embed_weight, output_weight=target.output_weight, **place)
    raise ExplorerError(f"There is no drafter kind {kind!r}; there is medusa and eagle.")


def warm_up(target: TargetModel) -> None:
    """First calls are slow (lazy initialisation, memory); none of that belongs on a lane's clock."""
    prefill = target.prefill([0] * 8)
    for nodes in WARM_UP_NODES:
        cache = target.new_cache(8 + nodes)
        cache.copy_from(prefill.cache)
        chain = tuple(Candidate(0, node, "warm-up") for node in range(nodes - 1))
        target.verify(CandidateTree(0, chain), cache)
    target.synchronize()
