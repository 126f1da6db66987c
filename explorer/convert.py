"""Turn a downloaded GGUF file into a folder that transformers loads in about two seconds.

It runs as a process of its own (`python -m explorer.convert GGUF FOLDER`), so that a page that is
being served stays responsive and the memory is given back afterwards.
"""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from explorer.catalogue import DEFAULT_MODEL, Model

MANIFEST = "manifest.json"
FORMAT = 1  # raise it when the conversion changes: older folders are then made anew


def convert(gguf: Path, folder: Path, model: Model = DEFAULT_MODEL) -> None:
    """Write config, tokenizer and float32 weights into `folder`, the manifest last."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    # Not dequantised, weights stay packed where a kernel exists, and outputs change with the machine.
    target = AutoModelForCausalLM.from_pretrained(
        **source, quantization_config=GgufConfig(dequantize=True), dtype=torch.float32
    )
    target.config.name_or_path = model.id
    target.save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(**source)
    tokenizer.model_max_length = model.context_tokens
    tokenizer.save_pretrained(folder)
    if model.individual_digits:
        split_digits(folder / "tokenizer.json")
    write_manifest(folder, model.file.sha256)


def split_digits(tokenizer_json: Path) -> None:
    """Put back the tokenizer's first step, which transformers drops when it reads a GGUF file.

    The model was trained with every digit split off before the byte-level split (GGUF calls that
    `tokenizer.ggml.pre = smollm`). Without it, white space in front of a number is cut differently:
    a blank line followed by "1." becomes two newline tokens in place of the one that the model knows.
    """
    data: dict[str, Any] = json.loads(tokenizer_json.read_text(encoding="utf-8"))
    byte_level = data["pre_tokenizer"]
    if byte_level["type"] != "ByteLevel":
        return  # a later transformers reads it right
    digits = {"type": "Digits", "individual_digits": True}
    data["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [digits, byte_level]}
    tokenizer_json.write_text(json.dumps(data, ensure_ascii=False), encoding="utf-8")


def write_manifest(folder: Path, source_sha256: str) -> None:
    """Record what the folder was made from, and each file's size, hash and time of change."""
    files = {
        path.name: {
            "bytes": path.stat().st_size,
            "sha256": sha256_of(path),
            "changed_ns": path.stat().st_mtime_ns,
        }
        for path in sorted(folder.iterdir())
        if path.name != MANIFEST
    }
    manifest = {"format": FORMAT, "source_sha256": source_sha256, "files": files}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The folder's manifest, or None where it is missing or is not one."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), dict):
        return None
    return manifest


def is_whole(folder: Path, source_sha256: str, *, hashes: bool = False) -> bool:
    """Whether `folder` is a finished, unchanged conversion of that file.

    A file's size is always compared; its hash (a second for the weights) when asked, or when the file
    was written to since.
    """
    manifest = read_manifest(folder)
    if manifest is None or manifest.get("format") != FORMAT or manifest.get("source_sha256") != source_sha256:
        return False
    return all(_is_unchanged(folder / name, known, hashes) for name, known in manifest["files"].items())


def _is_unchanged(path: Path, known: dict[str, Any], hashes: bool) -> bool:
    if not path.is_file() or path.stat().st_size != known["bytes"]:
        return False
    if path.stat().st_mtime_ns == known.get("changed_ns") and not hashes:
        return True
    return sha256_of(path) == known["sha256"]


def sha256_of(path: Path) -> str:
    """The file's SHA-256 in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
