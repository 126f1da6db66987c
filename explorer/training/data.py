"""Training text: read pairs of prompt and answer, put them in the chat template, split off held-out ones.

A line of the file is a JSON object with `prompt`, and the answer as `ids` (token ids) or `response`
(text). `temperature` (default 0) and `loops` (default false; such answers are left out) are optional.
The answers must come from the target itself, or the drafter learns to predict somebody else.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from explorer.errors import ExplorerError

HELD_OUT_MODULUS = 20
Encode = Callable[[str], list[int]]


@dataclass(frozen=True)
class Pair:
    """One user turn and the target's answer, before templating."""

    prompt: str
    answer_ids: tuple[int, ...] | None
    answer_text: str | None
    temperature: float


@dataclass(frozen=True)
class Example:
    """One token sequence: templated prompt, then the answer."""

    ids: tuple[int, ...]
    prompt_length: int
    temperature: float
    held_out: bool

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Codec:
    """The two text functions that the data need from a tokenizer."""

    encode_prompt: Encode
    encode_answer: Encode


def codec_of(tokenizer: Any) -> Codec:
    """Chat template with an open assistant turn for prompts; plain text plus end of turn for answers."""

    def encode_prompt(prompt: str) -> list[int]:
        turns = [{"role": "user", "content": prompt}]
        text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        return list(tokenizer(text, add_special_tokens=False).input_ids)

    def encode_answer(text: str) -> list[int]:
        return list(tokenizer(text, add_special_tokens=False).input_ids)

    return Codec(encode_prompt, encode_answer)


def prompt_digest(prompt: str) -> int:
    """md5 of the prompt as a number: stable across runs, so the split stays when data grow."""
    return int(hashlib.md5(prompt.encode("utf-8"), usedforsecurity=False).hexdigest(), 16)


def is_held_out(prompt: str) -> bool:
    """Whether the prompt belongs to the twentieth that is never trained on."""
    return prompt_digest(prompt) % HELD_OUT_MODULUS == 0


def read_pairs(path: Path) -> list[Pair]:
    """All usable pairs of a .jsonl or .jsonl.gz file, in file order; raises ExplorerError on bad data."""
    if not path.is_file():
        raise ExplorerError(f"The training data file {path} does not exist.")
    pairs: list[Pair] = []
    try:
        with _open_text(path) as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip() and (pair := _parse(line, path, number)) is not None:
                    pairs.append(pair)
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise ExplorerError(f"The training data file {path} cannot be read: {error}.") from error
    if not pairs:
        raise ExplorerError(f"The training data file {path} has no usable pair of prompt and answer.")
    return pairs


def _open_text(path: Path) -> IO[str]:
    return gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8")


def _parse(line: str, path: Path, number: int) -> Pair | None:
    """One line; None for an answer that is marked as looping or is empty."""
    where = f"Line {number} of {path}"
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise ExplorerError(f"{where} is not valid JSON: {error.msg}.") from error
    if not isinstance(record, dict) or not isinstance(record.get("prompt"), str):
        raise ExplorerError(f"{where} is not an object with a text field `prompt`.")
    ids, text = record.get("ids"), record.get("response")
    if ids is None and not isinstance(text, str):
        raise ExplorerError(f"{where} has neither `ids` nor a text field `response`.")
    if ids is not None and not _is_token_list(ids):
        raise ExplorerError(f"{where}: `ids` must be a list of token ids.")
    temperature = record.get("temperature", 0)
    if isinstance(temperature, bool) or not isinstance(temperature, int | float):
        raise ExplorerError(f"{where}: `temperature` must be a number.")
    if record.get("loops") or not (ids if ids is not None else text):
        return None
    return Pair(record["prompt"], None if ids is None else tuple(ids), text, float(temperature))


def _is_token_list(value: Any) -> bool:
    return isinstance(value, list) and all(type(token) is int and token >= 0 for token in value)


def build_examples(
    pairs: Iterable[Pair], codec: Codec, *, vocab_size: int, max_length: int, max_tokens: int | None
) -> list[Example]:
    """Templated examples in the order of the prompts' digests, cut after `max_tokens` tokens in all.

    The digest order is a shuffle that depends on nothing but the text: a longer run sees the shorter
    run's examples first, so cached features stay useful.
    """
    examples: list[Example] = []
    total = 0
    for pair in sorted(pairs, key=lambda item: prompt_digest(item.prompt)):
        example = _example(pair, codec, max_length)
        if example is None:
            continue
        if max(example.ids) >= vocab_size:
            raise ExplorerError(
                f"The training data have token id {max(example.ids)}, "
                f"but the target's vocabulary ends at {vocab_size - 1}."
            )
        if max_tokens is not None and total + len(example) > max_tokens:
            break
        examples.append(example)
        total += len(example)
    if not any(not example.held_out for example in examples):
        raise ExplorerError("No training example is left: the data or --max-tokens are too small.")
    return examples


def _example(pair: Pair, codec: Codec, max_length: int) -> Example | None:
    """Template and cut one pair; None if fewer than three answer tokens fit (nothing to learn from)."""
    prompt_ids = codec.encode_prompt(pair.prompt)
    answer = pair.answer_ids if pair.answer_ids is not None else tuple(codec.encode_answer(pair.answer_text or ""))
    ids = (*prompt_ids, *answer)[:max_length]
    if len(ids) < len(prompt_ids) + 3:
        return None
    return Example(ids, len(prompt_ids), pair.temperature, is_held_out(pair.prompt))


def frequent_tokens(examples: Sequence[Example], size: int) -> list[int]:
    """The `size` most frequent answer tokens of the training part, in ascending id order.

    Tokens that never occur fill up from the lowest id, so that the size is what was asked for.
    """
    counts: Counter[int] = Counter()
    for example in examples:
        if not example.held_out:
            counts.update(example.ids[example.prompt_length :])
    ranked = sorted(counts, key=lambda token: (-counts[token], token))[:size]
    chosen = set(ranked)
    filler = (token for token in range(10**9) if token not in chosen)
    while len(ranked) < size:
        ranked.append(next(filler))
    return sorted(ranked)
