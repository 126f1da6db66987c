"""Tokens as text: the exact pieces of an output, and how a single token is shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

UNFINISHED = "\ufffd"


class TokenTexts:
    """Texts of one tokenizer's tokens. A piece may be empty: its character is completed by a later token."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._shown: dict[int, str] = {}

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of a token sequence, special tokens included, nothing tidied up."""
        return str(
            self._tokenizer.decode(list(token_ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        )

    def show(self, token_id: int) -> str:
        """A token by itself. One that holds only part of a character is shown as its bytes, like <E2 9F>."""
        if token_id not in self._shown:
            text = self.decode([token_id])
            self._shown[token_id] = self._bytes(token_id) if UNFINISHED in text else text
        return self._shown[token_id]

    def _bytes(self, token_id: int) -> str:
        piece = self._tokenizer.convert_ids_to_tokens(token_id) or ""
        table = _byte_level_alphabet()
        if not all(character in table for character in piece):
            return self.decode([token_id])
        return "<" + " ".join(f"{table[character]:02X}" for character in piece) + ">"


class PieceStream:
    """Cuts a growing output into pieces, one a token, that joined give the decoded output exactly."""

    def __init__(self, texts: TokenTexts) -> None:
        self._texts = texts
        self._pending: list[int] = []
        """Tokens since the last point where text and tokens ended together."""
        self._anchor: list[int] = []
        """The tokens before, decoded along with them, since a tokenizer may treat a first token otherwise."""

    def push(self, token_id: int, last: bool = False) -> str:
        """The piece of the next token. `last` gives out an unfinished character as it is."""
        self._pending.append(token_id)
        before = self._texts.decode(self._anchor)
        text = self._texts.decode(self._anchor + self._pending)[len(before) :]
        if text.endswith(UNFINISHED) and not last:
            return ""
        self._anchor, self._pending = self._pending, []
        return text


def _byte_level_alphabet() -> dict[str, int]:
    """The printable stand-ins that byte-level BPE uses for the 256 bytes (GPT-2's mapping)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(byte): byte for byte in printable}
    others = [byte for byte in range(256) if byte not in printable]
    return table | {chr(256 + place): byte for place, byte in enumerate(others)}
