"""Traces and comparisons as JSON files: written atomically, read with a size cap and one clear sentence on failure.

A name that ends in .gz means a packed file; the cap holds for what is in it.
"""

from __future__ import annotations

import gc
import gzip
import json
import math
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from explorer.errors import ExplorerError
from explorer.trace import SCHEMA_VERSION, Comparison, Trace

MAX_FILE_BYTES = 32 * 1024 * 1024
MAX_NESTING = 64
"""Levels of lists and objects: far more than a trace has, far fewer than any JSON writer stumbles over."""


def to_json(record: Trace | Comparison) -> str:
    """UTF-8 JSON text. Non-finite numbers cannot occur: the records refuse them."""
    return json.dumps(record.model_dump(mode="json"), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def write(record: Trace | Comparison, path: Path) -> None:
    """Write the file under another name first, so that a reader never sees half of one."""
    partial = path.with_name(path.name + ".part")
    try:
        content = (to_json(record) + "\n").encode("utf-8", errors="surrogatepass")
        # without a time, so that equal records give equal files
        partial.write_bytes(gzip.compress(content, 9, mtime=0) if path.suffix == ".gz" else content)
        partial.replace(path)
    except OSError as error:
        raise ExplorerError(f"{path} cannot be written: {error.strerror or error}.") from error


def read_comparison(path: Path) -> Comparison:
    """A comparison file, or a single trace as a comparison of one lane."""
    with no_collecting():
        return _read_comparison(path)


@contextmanager
def no_collecting() -> Iterator[None]:
    """Nothing that a long recording is read into is garbage, and to look for some takes longer than the reading."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _read_comparison(path: Path) -> Comparison:
    data = _read_object(path)
    record: type[Comparison] | type[Trace] = Comparison if "lanes" in data else Trace
    try:
        read = record.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the file"
        raise ExplorerError(
            f"{path.name} is not a trace of this project: {place}: {first['msg'].removeprefix('Value error, ')}."
        ) from None
    return read if isinstance(read, Comparison) else Comparison(lanes=(read,))


def _read_object(path: Path) -> dict[str, Any]:
    try:
        size = path.stat().st_size
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            text = file.read(MAX_FILE_BYTES + 1) if size <= MAX_FILE_BYTES else b""
        if max(size, len(text)) > MAX_FILE_BYTES:  # a device or pipe tells no size
            raise ExplorerError(
                f"{path.name} has {max(size, len(text)) / 2**20:.0f} MiB; "
                f"a trace file may have {MAX_FILE_BYTES // 2**20} at most."
            )
        data = json.loads(text.decode("utf-8"), parse_constant=_refuse_constant, parse_float=_finite)
    except gzip.BadGzipFile:
        raise ExplorerError(f"{path.name} is not a packed file; was the download cut short?") from None
    except OSError as error:
        raise ExplorerError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (ValueError, RecursionError, EOFError, zlib.error):
        raise ExplorerError(f"{path.name} is not valid JSON; was the download cut short?") from None
    if _too_deep(data):
        raise ExplorerError(f"{path.name} is not a trace of this project: it is nested too deeply.")
    if not isinstance(data, dict) or "schema_version" not in data:
        raise ExplorerError(f"{path.name} is not a trace of this project: it has no schema_version.")
    if data["schema_version"] != SCHEMA_VERSION:
        raise ExplorerError(
            f"{path.name} has schema version {str(data['schema_version'])[:20]}; "
            f"this program reads version {SCHEMA_VERSION}."
        )
    return data


def _too_deep(data: Any) -> bool:
    level = [data] if isinstance(data, dict | list) else []
    for _ in range(MAX_NESTING):
        children = (value.values() if isinstance(value, dict) else value for value in level)
        level = [each for values in children for each in values if isinstance(each, dict | list)]
        if not level:
            return False
    return True


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):  # 1e999 is valid JSON
        raise ValueError(f"{digits[:20]} is too large")
    return number


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not allowed in a trace")
