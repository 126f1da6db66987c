"""A drafter by folder or by its id on the Hugging Face hub; of a repository only the files that are read are got."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from explorer.drafters.checkpoint import KNOWN_WEIGHTS
from explorer.drafters.detect import MEDUSA_PREFIX
from explorer.errors import ExplorerError

_ID = re.compile(r"^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$")
_COMMIT = re.compile(r"^[0-9a-f]{40}$")
_TOKENIZER = ("tokenizer.model", "merges.txt")
"""What some draft models need besides JSON files. None of these files can hold code."""


def resolve(folder_or_id: str | Path, revision: str | None = None) -> Path:
    """The folder itself, or the downloaded repository. ExplorerError where there is neither.

    A repository that cannot be reached is taken from the hub's cache on this machine, if it is there.
    """
    if Path(folder_or_id).is_dir():
        return Path(folder_or_id)
    name = str(folder_or_id)
    if not _ID.match(name):
        raise ExplorerError(
            f"{name} is neither a folder nor the id of a repository on the Hugging Face hub (owner/name)."
        )
    return _download(name, revision)


def _download(name: str, revision: str | None) -> Path:
    from huggingface_hub import list_repo_files, snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    held = _held(name, revision)
    if held is not None:
        return held
    try:
        wanted = _wanted(name, revision, list_repo_files(name, revision=revision))
        return Path(snapshot_download(name, revision=revision, allow_patterns=wanted))
    except GatedRepoError as error:
        raise ExplorerError(
            f"{name} is gated: accept its licence on huggingface.co/{name} and log in with `hf auth login`."
        ) from error
    except RepositoryNotFoundError as error:
        raise ExplorerError(
            f"There is no repository {name} on the Hugging Face hub, or it is private; for a private one log in with "
            "`hf auth login`."
        ) from error
    except RevisionNotFoundError as error:
        raise ExplorerError(f"The repository {name} has no revision {revision}.") from error
    except HFValidationError as error:
        raise ExplorerError(f"{name} is no valid repository id.") from error
    except ExplorerError:
        raise
    except Exception as error:  # the hub's client lets the errors of its transport through
        return _cached(name, revision, error)


def _held(name: str, revision: str | None) -> Path | None:
    """An earlier download of that very commit, if it is whole: no need to ask the hub."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    if revision is None or not _COMMIT.match(revision):
        return None
    try:
        folder = Path(snapshot_download(name, revision=revision, local_files_only=True))
    except (LocalEntryNotFoundError, ValueError):
        return None
    weights = next((folder / known for known in KNOWN_WEIGHTS if (folder / known).is_file()), None)
    if weights is None or not (folder / "config.json").is_file():
        return None
    shards = _heads_or_all(weights, name) if weights.suffix == ".json" else []
    return folder if all((folder / shard).is_file() for shard in shards) else None


def _cached(name: str, revision: str | None, failure: Exception) -> Path:
    """What an earlier download left on this machine."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, revision=revision, local_files_only=True))
    except LocalEntryNotFoundError:
        reason = str(failure).splitlines()[0][:200] if str(failure) else type(failure).__name__
        raise ExplorerError(
            f"{name} is not on this machine and the Hugging Face hub cannot be reached: {reason.rstrip('.')}."
        ) from failure


def _wanted(name: str, revision: str | None, files: Sequence[str]) -> list[str]:
    """The repository's files that a drafter is read from."""
    weights = next((known for known in KNOWN_WEIGHTS if known in files), None)
    if weights is None:
        raise ExplorerError(f"The repository {name} holds no weights that are known ({', '.join(KNOWN_WEIGHTS)}).")
    texts = [file for file in files if "/" not in file and (file.endswith(".json") or file in _TOKENIZER)]
    return [*texts, *(_shards(name, revision, weights) if weights.endswith(".json") else [weights])]


def _shards(name: str, revision: str | None, index: str) -> list[str]:
    from huggingface_hub import hf_hub_download

    return _heads_or_all(Path(hf_hub_download(name, index, revision=revision)), name)


def _heads_or_all(index: Path, name: str) -> list[str]:
    """Of a whole model with Medusa heads in it only the shards that hold heads."""
    try:
        content = json.loads(index.read_text(encoding="utf-8"))
        places = {str(tensor): str(shard) for tensor, shard in content["weight_map"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ExplorerError(f"{index.name} of the repository {name} cannot be read.") from error
    heads = {shard for tensor, shard in places.items() if MEDUSA_PREFIX.match(tensor)}
    return sorted(heads or set(places.values()))
