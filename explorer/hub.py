"""Repositories of the Hugging Face hub: by id, pinned to a commit, downloaded once with progress, offline afterwards.

The files lie in the hub's own cache, which other programs share. What a name without a revision meant at its first
download is kept in `revisions.json` of the model home, so that later loads are of the same weights.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from explorer.errors import ExplorerError
from explorer.fetch import model_dir
from explorer.machine import in_gb

Tell = Callable[[str, float | None], None]
"""Takes a few words and the share done (None: unknown)."""

POLL_SECONDS = 0.2
REACH_SECONDS = 10.0
_ID = re.compile(r"^(?P<name>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(@(?P<revision>[\w./-]+))?$")
_COMMIT = re.compile(r"^[0-9a-f]{40}$")
_TEXTS = re.compile(r"^(.+\.json|tokenizer\.model|vocab\.txt|merges\.txt|.+\.jinja)$")
_SAFETENSORS = re.compile(r"^model.*\.safetensors$")
_PICKLES = re.compile(r"^pytorch_model.*\.bin$")


@dataclass(frozen=True)
class RepoId:
    """A repository and, where it was said, which revision of it: a commit, a branch or a tag."""

    name: str
    revision: str | None = None

    @property
    def folder_name(self) -> str:
        """Its folder in the hub's cache."""
        return "models--" + self.name.replace("/", "--")


@dataclass(frozen=True)
class Snapshot:
    """A repository's files on this machine, of one commit."""

    folder: Path
    commit: str


def parse_id(text: str) -> RepoId | None:
    """`owner/name` or `owner/name@revision`; None where the text is neither."""
    match = _ID.match(text)
    return RepoId(match["name"], match["revision"]) if match else None


def model_files(files: Sequence[str], name: str) -> list[str]:
    """Of a repository's files those that a causal LM is loaded from: safetensors before pickles. No code."""
    top = [file for file in files if "/" not in file]
    weights = [file for file in top if _SAFETENSORS.match(file)] or [file for file in top if _PICKLES.match(file)]
    if not weights or "config.json" not in top:
        raise ExplorerError(
            f"The repository {name} holds no transformers model: it needs config.json and model.safetensors "
            "or pytorch_model.bin."
        )
    return [file for file in top if _TEXTS.match(file)] + weights


def get_model(repo: RepoId, tell: Tell, *, pin: str | None = None) -> Snapshot:
    """A model's repository, from this machine or the hub. ExplorerError where it cannot be had.

    `pin` is the commit to take where the id names none; without it, the commit of the first download.
    """
    revision = repo.revision or pin or pinned(repo.name)
    held = _held(repo, revision)
    if held is not None:
        return held
    if offline():
        raise ExplorerError(
            f"{repo.name} is not on this machine, and DECODING_EXPLORER_OFFLINE=1 forbids to download it; "
            "unset the variable, or name a folder."
        )
    found = _ask(repo, revision)
    sizes = {each.rfilename: each.size or 0 for each in found.siblings or []}
    wanted = model_files(list(sizes), repo.name)
    total = sum(sizes[file] for file in wanted)
    _refuse_full_disk(repo, total)
    grow = Growth(f"downloading {repo.name}", cache_dir() / repo.folder_name, total)
    folder = grow.during(lambda: _download(repo, found.sha, wanted), tell)
    remember(repo.name, found.sha, wanted, pin=repo.revision is None)
    return Snapshot(folder, found.sha)


def offline() -> bool:
    """Did the user forbid the network?"""
    return os.environ.get("DECODING_EXPLORER_OFFLINE") == "1" or os.environ.get("HF_HUB_OFFLINE") == "1"


def cache_dir() -> Path:
    """The hub's cache on this machine."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def pinned(name: str) -> str | None:
    """The commit that a repository was first downloaded at; None where it never was."""
    commit = _read_pins().get(name, {}).get("commit")
    return commit if isinstance(commit, str) else None


def remember(name: str, commit: str, files: Sequence[str] = (), *, pin: bool = True) -> None:
    """Keep which commit a name meant (`pin`), unless that is known already, and which files were taken of it."""
    entry = _read_pins().get(name, {})
    taken = {**_taken(entry), commit: sorted(files)} if files else _taken(entry)
    made = {"commit": entry.get("commit") or commit if pin else entry.get("commit"), "files": taken}
    if not _COMMIT.match(commit) or made == entry:
        return
    pins = _read_pins() | {name: made}
    path = _pins_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_text(json.dumps(pins, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    temporary.replace(path)


def _pins_path() -> Path:
    return model_dir() / "revisions.json"


def _read_pins() -> dict[str, dict[str, Any]]:
    try:
        pins = json.loads(_pins_path().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {name: entry for name, entry in pins.items() if isinstance(entry, dict)} if isinstance(pins, dict) else {}


def _taken(entry: dict[str, Any]) -> dict[str, list[str]]:
    """Commit to the files that were taken of it."""
    files = entry.get("files")
    return files if isinstance(files, dict) else {}


def _held(repo: RepoId, revision: str | None) -> Snapshot | None:
    """The whole snapshot on this machine, if it is known to be one, or if nothing better can be had."""
    base = cache_dir() / repo.folder_name
    commit = _commit_of(base, revision)
    if commit is None:
        return None
    folder = base / "snapshots" / commit
    files = _taken(_read_pins().get(repo.name, {})).get(commit)
    if files:
        return Snapshot(folder, commit) if all((folder / file).is_file() for file in files) else None
    # another program put it there: it may be a part only, so the hub is asked unless that is forbidden
    return Snapshot(folder, commit) if offline() and (folder / "config.json").is_file() else None


def _commit_of(base: Path, revision: str | None) -> str | None:
    if revision is not None and _COMMIT.match(revision):
        return revision
    try:
        return (base / "refs" / (revision or "main")).read_text(encoding="ascii").strip() or None
    except OSError:
        return None


def _ask(repo: RepoId, revision: str | None) -> Any:
    """What the hub knows of the repository at that revision."""
    from huggingface_hub import HfApi

    api = HfApi(endpoint=os.environ.get("HF_ENDPOINT"))
    try:
        return api.model_info(repo.name, revision=revision, files_metadata=True, timeout=REACH_SECONDS)
    except Exception as error:
        raise refusal(error, repo.name, revision) from error


def _download(repo: RepoId, commit: str, files: Sequence[str]) -> Path:
    """Each file into the hub's cache; the snapshot's folder."""
    from huggingface_hub import hf_hub_download

    place: dict[str, Any] = {"cache_dir": cache_dir(), "endpoint": os.environ.get("HF_ENDPOINT")}
    try:
        paths = [Path(hf_hub_download(repo.name, file, revision=commit, **place)) for file in files]
    except Exception as error:
        raise refusal(error, repo.name, commit) from error
    return paths[0].parent


def refusal(error: Exception, name: str, revision: str | None) -> ExplorerError:
    """One sentence for whatever the hub's client raised."""
    from huggingface_hub import errors

    if isinstance(error, ExplorerError):
        return error
    if isinstance(error, errors.GatedRepoError):
        return ExplorerError(
            f"{name} is gated: accept its licence on https://huggingface.co/{name}, then log in with "
            "`hf auth login` or set HF_TOKEN."
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return ExplorerError(
            f"There is no model {name} on the Hugging Face hub, or it is private; check the spelling, or log in "
            "with `hf auth login`."
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return ExplorerError(f"{name} has no revision {revision!r}; name a commit, branch or tag that it has.")
    if isinstance(error, errors.HFValidationError):
        return ExplorerError(f"{name} is no id that the hub could have; write owner/name.")
    if isinstance(error, OSError) and error.errno == 28:
        return ExplorerError(f"{name} does not fit the disk: {cache_dir()} is full.")
    lines = str(error).strip().splitlines()
    reason = (lines[0] if lines else type(error).__name__)[:160].rstrip(".")
    return ExplorerError(
        f"{name} is not on this machine and could not be downloaded from the Hugging Face hub ({reason}); "
        "check the network, or name a folder."
    )


def _refuse_full_disk(repo: RepoId, needed: int) -> None:
    existing = next(path for path in (cache_dir(), *cache_dir().parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if needed > free:
        raise ExplorerError(
            f"{repo.name} is a download of {in_gb(needed)}, but {in_gb(free)} of disk are free below {existing}; "
            "make room, or set HF_HOME to a larger disk."
        )


@dataclass(frozen=True)
class Growth:
    """A download, as the growth of a folder."""

    label: str
    folder: Path
    total_bytes: int | None

    def during(self, work: Callable[[], Path], tell: Tell) -> Path:
        """Do the work in a thread and tell how far it is; its result, or its exception."""
        done: list[Path] = []
        failed: list[BaseException] = []

        def run() -> None:
            try:
                done.append(work())
            except BaseException as error:
                failed.append(error)

        before = _bytes_below(self.folder)
        thread = threading.Thread(target=run, name=self.label, daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(POLL_SECONDS)
            tell(*self._words(max(_bytes_below(self.folder) - before, 0)))
        if failed:
            raise failed[0]
        return done[0]

    def _words(self, grown: int) -> tuple[str, float | None]:
        if not self.total_bytes:
            return f"{self.label}: {in_gb(grown)}", None
        return f"{self.label}: {in_gb(grown)} of {in_gb(self.total_bytes)}", min(grown / self.total_bytes, 1.0)


def _bytes_below(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() and not path.is_symlink() else 0
        except OSError:  # moved away between listing and looking
            continue
    return total
