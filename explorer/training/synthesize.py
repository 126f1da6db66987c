"""Self-generated training text: the target writes the user turns and answers them.

Rounds of rows, each from its own seed: a killed run goes on behind its last whole round and ends with the
same file. Answers that loop are kept and marked (training leaves them out); fragments, noise and repeated
prompts are dropped and counted.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from tqdm import tqdm

from explorer.errors import ExplorerError
from explorer.training.filters import loops, prompt_key, why_not_answer, why_not_prompt
from explorer.training.generate import Writing, write_rows
from explorer.training.state import write_whole
from explorer.training.target import FrozenTarget, end_token_ids, load_frozen, use_threads

PLACE = "PLACEOFTHEUSERTURN"
"""Stands for the user's text while the template is taken apart; any word does that no template has."""


class SynthesisOptions(BaseModel):
    """What `synthesize` can be told."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: Path = Field(description="Folder of the target model in the transformers layout.")
    out: Path = Field(description="JSONL file that receives the pairs; a manifest lies beside it.")
    tokens: int = Field(default=1_000_000, gt=0, description="Answer tokens wanted, looping answers not counted.")
    prompts: Path | None = Field(default=None, description="JSONL of user turns (`prompt`); default: self-written.")
    exclude: tuple[Path, ...] = Field(default=(), description="JSONL files whose prompts must stay out.")
    rows: int = Field(default=96, ge=1, description="Texts decoded together.")
    max_prompt_tokens: int = Field(default=128, ge=8, description="Longest user turn that is written.")
    max_new_tokens: int = Field(default=256, ge=8, description="Longest answer.")
    greedy_share: float = Field(default=0.6, ge=0, le=1, description="Share of answers decoded greedily.")
    temperature: float = Field(default=0.7, gt=0, description="Temperature of the other answers.")
    prompt_temperature: float = Field(default=1.0, gt=0, description="Temperature of self-written user turns.")
    device: str = Field(default="auto", description="auto, cpu or cuda.")
    dtype: str = Field(default="bfloat16", description="auto, float32 or bfloat16.")
    threads: int = Field(default=1, ge=1, description="CPU threads.")
    seed: int = Field(default=0, ge=0, description="Seed of everything random.")
    target_sha256: str | None = Field(default=None, description="Hash of the target; default: from the folder.")

    @property
    def manifest(self) -> Path:
        """Beside the data: what was done so far, and how."""
        return self.out.with_name(self.out.name + ".manifest.json")

    def recipe(self) -> dict[str, Any]:
        """What decides which text comes out."""
        return self.model_dump(mode="json", exclude={"model", "out", "tokens", "device", "threads", "target_sha256"})


@dataclass
class Manifest:
    """What was written so far."""

    target_sha256: str
    recipe: dict[str, Any]
    rounds: int = 0
    bytes: int = 0
    pairs: int = 0
    answer_tokens: int = 0
    looping_pairs: int = 0
    looping_tokens: int = 0
    greedy_pairs: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        rate = self.answer_tokens / self.seconds if self.seconds else 0.0
        return {**vars(self), "dropped": dict(self.dropped), "answer_tokens_per_second": round(rate, 1)}

    @property
    def useful_tokens(self) -> int:
        """Answer tokens that training will use."""
        return self.answer_tokens - self.looping_tokens


def synthesize(options: SynthesisOptions) -> Manifest:
    """Write pairs until there are enough tokens or no prompts left."""
    use_threads(options.threads)
    target = load_frozen(options.model, sha256=options.target_sha256, dtype=options.dtype, device=options.device)
    manifest = _resume(options, target.sha256)
    keys = _excluded(options.exclude) | _keys_of(options.out)
    writer = _Writer(target, options, keys)
    given = read_prompts(options.prompts) if options.prompts else None
    begun = time.monotonic() - manifest.seconds
    with tqdm(total=options.tokens, initial=manifest.useful_tokens, unit="tok", unit_scale=True, desc="text") as shown:
        while manifest.useful_tokens < options.tokens:
            before = manifest.useful_tokens
            prompts = _given(given, manifest.rounds, options.rows) if given is not None else None
            if prompts is not None and not prompts:
                break
            lines = list(writer.round(manifest, prompts))
            manifest.seconds = round(time.monotonic() - begun, 1)
            _append(options, manifest, lines)
            shown.update(manifest.useful_tokens - before)
            shown.set_postfix(pairs=manifest.pairs, loops=f"{manifest.looping_pairs / max(1, manifest.pairs):.0%}")
    if not manifest.pairs:
        raise ExplorerError("No usable pair came out: the prompts were all dropped (see the manifest for the reasons).")
    return manifest


class _Writer:
    """Decodes one round after another."""

    def __init__(self, target: FrozenTarget, options: SynthesisOptions, keys: set[str]) -> None:
        self._target, self._options, self._keys = target, options, keys
        self._ends = end_token_ids(target)
        self._special = [str(mark) for mark in target.tokenizer.all_special_tokens]

    def round(self, manifest: Manifest, given: Sequence[str] | None) -> Iterator[str]:
        """Lines of one round; counts go into the manifest."""
        options, number = self._options, manifest.rounds
        manifest.rounds += 1
        prompts = [text for text in given or self._user_turns(number) if self._take(text, manifest.dropped)]
        if not prompts:
            return
        coin = random.Random(f"{options.seed}/{number}")
        heat = [0.0 if coin.random() < options.greedy_share else options.temperature for _ in prompts]
        encoded = [self._target.codec.encode_prompt(text) for text in prompts]
        how = Writing(options.max_new_tokens, self._ends, self._seed(number, 1))
        for text, temperature, ids in zip(
            prompts, heat, write_rows(self._target.model, encoded, heat, how), strict=True
        ):
            if (reason := why_not_answer(ids)) is not None:
                manifest.dropped[reason] += 1
                self._keys.discard(prompt_key(text))  # a resumed run knows only the prompts in the file
                continue
            yield self._line(manifest, text, temperature, ids)

    def _line(self, manifest: Manifest, prompt: str, temperature: float, ids: list[int]) -> str:
        looping = loops(ids)
        manifest.pairs += 1
        manifest.answer_tokens += len(ids)
        manifest.greedy_pairs += temperature == 0
        manifest.looping_pairs += looping
        manifest.looping_tokens += len(ids) if looping else 0
        response = self._target.tokenizer.decode(ids, skip_special_tokens=True)
        record = {"prompt": prompt, "response": response, "ids": ids, "temperature": temperature, "loops": looping}
        return json.dumps(record, ensure_ascii=False) + "\n"

    def _user_turns(self, number: int) -> list[str]:
        """Texts that the target writes where its template puts the user's."""
        options, prefix = self._options, user_prefix(self._target.tokenizer)
        how = Writing(options.max_prompt_tokens, self._ends, self._seed(number, 0))
        heat = [options.prompt_temperature] * options.rows
        rows = write_rows(self._target.model, [prefix] * options.rows, heat, how)
        # A turn that was cut off is no prompt.
        whole = [ids[:-1] for ids in rows if ids[-1] in self._ends]
        return [self._target.tokenizer.decode(ids, skip_special_tokens=False).strip() for ids in whole]

    def _take(self, text: str, dropped: Counter[str]) -> bool:
        """Whether the prompt is used; it is known from then on."""
        key, reason = prompt_key(text), why_not_prompt(text, self._special)
        if reason is None and key in self._keys:
            reason = "prompt repeated"
        if reason is not None:
            dropped[reason] += 1
            return False
        self._keys.add(key)
        return True

    def _seed(self, number: int, part: int) -> int:
        return (self._options.seed * 1_000_003 + number) * 2 + part


def user_prefix(tokenizer: Any) -> list[int]:
    """Token ids of everything that the chat template puts before the user's first words."""
    turns = [{"role": "user", "content": PLACE}]
    text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=False)
    head, found, _ = text.partition(PLACE)
    ids = list(tokenizer(head, add_special_tokens=False).input_ids)
    if not found or not ids:
        raise ExplorerError("The chat template has nothing before the user's text; give prompts with --prompts.")
    return ids


def read_prompts(path: Path) -> list[str]:
    """The `prompt` of each line of a JSONL file; ExplorerError names the line that is wrong."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError) as error:
        raise ExplorerError(f"The prompts file {path} cannot be read: {error}.") from error
    prompts: list[str] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ExplorerError(f"Line {number} of {path} is not valid JSON.") from error
        if not isinstance(record, dict) or not isinstance(record.get("prompt"), str):
            raise ExplorerError(f"Line {number} of {path} is not an object with a text field `prompt`.")
        prompts.append(record["prompt"])
    if not prompts:
        raise ExplorerError(f"The prompts file {path} is empty.")
    return prompts


def _given(prompts: list[str], number: int, rows: int) -> list[str]:
    return prompts[number * rows : (number + 1) * rows]


def _excluded(paths: Sequence[Path]) -> set[str]:
    return {prompt_key(prompt) for path in paths for prompt in read_prompts(path)}


def _keys_of(path: Path) -> set[str]:
    return {prompt_key(prompt) for prompt in read_prompts(path)} if path.exists() and path.stat().st_size else set()


def _resume(options: SynthesisOptions, sha256: str) -> Manifest:
    """The manifest of an earlier run of the same recipe, the data cut behind its last whole round; else a new one."""
    fresh = Manifest(sha256, options.recipe())
    if not options.manifest.exists():
        if options.out.exists():
            raise ExplorerError(f"{options.out} exists but has no manifest beside it; name another file.")
        return fresh
    try:
        found = json.loads(options.manifest.read_text(encoding="utf-8"))
        found.pop("answer_tokens_per_second")
        earlier = Manifest(**{**found, "dropped": Counter(found["dropped"])})
        size = options.out.stat().st_size if options.out.exists() else 0
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ExplorerError(f"The manifest {options.manifest} is damaged; delete it and the data.") from error
    if (earlier.target_sha256, earlier.recipe) != (sha256, fresh.recipe) or size < earlier.bytes:
        raise ExplorerError(f"{options.out} was made with another model or other options; name another file.")
    if size > earlier.bytes:
        with options.out.open("r+b") as file:
            file.truncate(earlier.bytes)
    return earlier


def _append(options: SynthesisOptions, manifest: Manifest, lines: Sequence[str]) -> None:
    """Add a round to the data, then say so in the manifest."""
    data = "".join(lines).encode("utf-8")
    try:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        with options.out.open("ab") as file:
            file.write(data)
    except OSError as error:
        raise ExplorerError(
            f"{options.out} cannot be written: {error.strerror or error}; all earlier rounds are kept."
        ) from error
    manifest.bytes += len(data)
    write_whole(options.manifest, (json.dumps(manifest.as_json(), indent=1) + "\n").encode(), what="The manifest")
