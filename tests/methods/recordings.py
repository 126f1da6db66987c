"""Recordings of the original implementations on a tiny trained target."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

CONFORMANCE = Path(__file__).parent.parent / "data" / "conformance"


@cache
def golden(name: str) -> dict[str, Any]:
    """A recording: header and one result a prompt."""
    text = gzip.decompress((CONFORMANCE / "golden" / f"{name}.json.gz").read_bytes())
    return dict(json.loads(text))


def prompt_ids(number: int) -> list[int]:
    """The prompt's token ids, as the original implementations saw them."""
    return list(next(each["input_ids"] for each in golden("prompts")["prompts"] if each["id"] == number))


def plain_greedy(number: int) -> list[int]:
    """What transformers' own generate gave: 64 tokens, or up to the end token."""
    return list(next(each["tokens"] for each in golden("plain_greedy")["results"] if each["id"] == number))
