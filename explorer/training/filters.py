"""What is left out of training text: loops, fragments, prompts that do not look like one."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

NGRAM = 4
LOOP_SHARE = 0.4
SHORTEST_ANSWER_TOKENS = 8
SHORTEST_PROMPT, LONGEST_PROMPT = 8, 600
"""Characters."""


def repeated_share(token_ids: Sequence[int], size: int = NGRAM) -> float:
    """Share of n-grams that occurred before in the same text; 0 for texts shorter than one."""
    grams = [tuple(token_ids[start : start + size]) for start in range(len(token_ids) - size + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def loops(token_ids: Sequence[int]) -> bool:
    """A small model falls into repetition; a drafter would learn little else from such answers."""
    return repeated_share(token_ids) > LOOP_SHARE


def prompt_key(text: str) -> str:
    """What makes two prompts the same: case, spaces and Unicode forms do not count."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def why_not_prompt(text: str, special: Sequence[str]) -> str | None:
    """Why this text is no user turn to train on, in two words; None if it is one."""
    if not SHORTEST_PROMPT <= len(text) <= LONGEST_PROMPT:
        return "prompt length"
    if any(mark and mark in text for mark in special) or "\ufffd" in text:
        return "prompt marks"
    words = text.split()
    if sum(character.isalpha() for character in text) < len(text) / 3 or loops([hash(word) for word in words]):
        return "prompt noise"
    return None


def why_not_answer(token_ids: Sequence[int]) -> str | None:
    """Why this answer is not kept at all; looping ones are kept and marked."""
    return "answer length" if len(token_ids) < SHORTEST_ANSWER_TOKENS else None
