"""What a model's name stands for, and how it is got and read: default model, toy, pair, hub id or folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from explorer.catalogue import BARELY, DEFAULT_MODEL, MODELS
from explorer.drafters.detect import KINDS
from explorer.drafters.hub import resolve
from explorer.drafters.loading import load
from explorer.errors import ExplorerError
from explorer.execution import choose_execution
from explorer.fetch import PROJECT, ensure_default_model
from explorer.hub import Growth, RepoId, cache_dir, get_model, offline, parse_id, pinned, remember
from explorer.load import choose_device, choose_dtype, load_target, weights_sha256
from explorer.pairs import PAIRS, find_pair
from explorer.target import TargetModel
from explorer.toy import TOY_ID, TOY_LABEL, toy_drafter, toy_target

Tell = Callable[[str, float | None], None]
"""Takes a sentence and the share done (None: unknown)."""
Place = str | Path
"""A folder, or a repository's id, `@revision` allowed."""


def check_model(name: str) -> None:
    """ExplorerError where the name is no model on offer, nor a folder, nor could be an id of the hub."""
    known = [*(model.id for model in MODELS), *(pair.id for pair in PAIRS)]
    if name in known or name == TOY_ID or (name and Path(name).is_dir()) or parse_id(name) is not None:
        return
    raise ExplorerError(
        f"There is no model {name!r}; on offer: {', '.join(known)}, a folder with a model, or an id of the "
        "Hugging Face hub (owner/name, or owner/name@revision)."
    )


def check_place(kind: str, place: str) -> None:
    """ExplorerError where there is no such kind of drafter, or the place is no folder and could be no hub id."""
    if kind not in KINDS:
        raise ExplorerError(f"There is no drafter kind {kind!r}; there is {', '.join(KINDS)}.")
    if not Path(place).is_dir() and parse_id(place) is None:
        raise ExplorerError(f"There is no drafter folder {place}.")


def title_of(name: str) -> str:
    """What the page calls the model."""
    if name == TOY_ID:
        return TOY_LABEL
    if name == DEFAULT_MODEL.id:
        return DEFAULT_MODEL.title
    if not Path(name).is_dir():
        pair, repo = find_pair(name), parse_id(name)
        if pair is not None:
            return pair.title
        if repo is not None:
            return repo.name.partition("/")[2]
    return Path(name).name


def drafter_places(name: str) -> dict[str, Place]:
    """Kind to place of the drafters that come with a model."""
    if name == DEFAULT_MODEL.id:
        shipped = {kind: PROJECT / folder for kind, folder in DEFAULT_MODEL.drafters.items()}
        return {kind: folder for kind, folder in shipped.items() if folder.is_dir()}
    pair = None if Path(name).is_dir() else find_pair(name)
    return {each.kind: _with_revision(each.repo.name, each.repo.revision) for each in pair.drafters} if pair else {}


def _with_revision(name: str, revision: str | None) -> str:
    return name if revision is None else f"{name}@{revision}"


def read_target(name: str, device: str, dtype: str, tell: Tell, execution: str = "eager") -> TargetModel:
    """The model of that name, got first where it is not here. ExplorerError in one sentence."""
    wanted: dict[str, Any] = {"device": device, "dtype": dtype, "execution": execution, "label": title_of(name)}
    if name == TOY_ID:
        place = choose_device(device)
        running = choose_execution(execution, place)
        return toy_target(dtype=choose_dtype(dtype, place), device=place, execution=running)
    if name == DEFAULT_MODEL.id:
        folder = ensure_default_model(lambda text, share: tell(f"Getting the model: {text}.", share))
        file = DEFAULT_MODEL.file
        tell("Loading the model.", None)
        return load_target(folder, model_id=name, sha256=file.sha256, revision=file.hub_revision, **wanted)
    if Path(name).is_dir():
        tell("Loading the model.", None)
        folder = Path(name)
        return load_target(folder, model_id=folder.resolve().name, sha256=weights_sha256(folder), **wanted)
    return _read_repository(name, wanted, tell)


def _read_repository(name: str, wanted: Mapping[str, Any], tell: Tell) -> TargetModel:
    pair = find_pair(name)
    repo = RepoId(pair.target.name) if pair is not None else parse_id(name)
    if repo is None:
        raise ExplorerError(f"There is no model {name!r}.")
    pin = pair.target.revision if pair is not None else None
    got = get_model(repo, lambda text, share: tell(f"Getting the model: {text}.", share), pin=pin)
    tell("Loading the model.", None)
    target = load_target(got.folder, model_id=repo.name, revision=got.commit, **wanted)
    if pair is not None and pair.chat_template and target.tokenizer.chat_template is None:
        target.tokenizer.chat_template = pair.chat_template
    return target


def read_drafter(kind: str, place: Place, target: TargetModel, tell: Tell) -> Any:
    """The drafter of that kind, got first where it is not here. ExplorerError in one sentence."""
    tell(f"Loading the {kind} drafter.", None)
    return load(kind, drafter_folder(place, tell), target)


def drafter_folder(place: Place, tell: Tell) -> Path:
    """The folder, or a repository's, downloaded. A name without a revision means what it meant the first time."""
    if Path(place).is_dir():
        return Path(place)
    repo = parse_id(str(place))
    if repo is None:
        raise ExplorerError(f"There is no drafter folder {place}.")
    revision = repo.revision or pinned(repo.name)
    base = cache_dir() / repo.folder_name
    held = base / "snapshots" / (revision or "")
    if offline():
        if revision is None or not (held / "config.json").is_file():
            raise ExplorerError(
                f"The drafter {repo.name} is not on this machine, and DECODING_EXPLORER_OFFLINE=1 forbids to "
                "download it; unset the variable, or name a folder."
            )
        return held
    growth = Growth(f"downloading {repo.name}", base, None)
    folder = growth.during(
        lambda: resolve(repo.name, revision), lambda text, share: tell(f"Getting a drafter: {text}.", share)
    )
    remember(repo.name, folder.name)
    return folder


def toy_drafters(target: TargetModel) -> dict[str, Any]:
    """One untrained drafter of every kind; of some a second one, that stands for a barely trained one."""
    drafters: dict[str, Any] = {kind: toy_drafter(kind, target) for kind in KINDS}
    drafters |= {f"{kind}{BARELY}": toy_drafter(kind, target, seed=1) for kind in ("medusa", "eagle")}
    return drafters
