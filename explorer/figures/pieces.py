"""Tokens that hold only a part of a character: its bytes, and which nodes beside them complete it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from explorer.figures.base import NEXT, path_end
from explorer.trace import Step

_BYTES = re.compile(r"<([0-9A-F]{2}(?: [0-9A-F]{2})*)>")

LONGEST = 4
"""Bytes of a character, and so tokens of it, at most."""


@dataclass(frozen=True)
class Piece:
    """The bytes of one token, and the character that it is a part of."""

    shown: str
    """As hexadecimal numbers."""
    text: str | None
    """Of the fewest pieces around it that make whole characters; None where they do not."""
    nodes: tuple[int | str, ...]
    """The tokens that hold them, this one among them, in order."""


def bytes_of(text: str) -> bytes | None:
    """The bytes of a token that is a part of a character, as explorer/texts.py shows them; None for whole text."""
    found = _BYTES.fullmatch(text)
    data = bytes.fromhex(found.group(1)) if found else None
    return None if data is None or _decoded(data) is not None else data


def piece_of(step: Step, node: int | str) -> Piece | None:
    """The piece that a node is, with those around it: up its path, and down where the output or a branch goes on."""
    data = bytes_of(_text(step, node))
    if data is None:
        return None
    before, after = [node], [node]
    while len(before) < LONGEST and (up := _above(step, before[0])) is not None and _part(step, up):
        before.insert(0, up)
    while len(after) < LONGEST and (down := _below(step, after[-1])) is not None and _part(step, down):
        after.append(down)
    chain, at = [*before[:-1], *after], len(before) - 1
    spans = [(first, last) for first in range(at + 1) for last in range(at + 1, len(chain) + 1)]
    for first, last in sorted(spans, key=lambda span: span[1] - span[0]):
        whole = _decoded(b"".join(_part(step, each) or b"" for each in chain[first:last]))
        if whole is not None:
            return Piece(data.hex(" ").upper(), whole, tuple(chain[first:last]))
    return Piece(data.hex(" ").upper(), None, tuple(chain))


def _part(step: Step, node: int | str) -> bytes | None:
    return bytes_of(_text(step, node))


def _decoded(data: bytes) -> str | None:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _text(step: Step, node: int | str) -> str:
    return step.next_token.text if isinstance(node, str) else step.nodes[node].text


def _above(step: Step, node: int | str) -> int | None:
    return path_end(step) if isinstance(node, str) else step.nodes[node].parent


def _below(step: Step, node: int | str) -> int | str | None:
    """What follows: the accepted draft or the target's token where the output goes on, else the first such draft."""
    if isinstance(node, str):
        return None
    path = (0, *step.accepted)
    if node in path:
        place = path.index(node) + 1
        return path[place] if place < len(path) else NEXT
    below = [each.id for each in step.nodes if each.parent == node and bytes_of(each.text) is not None]
    return below[0] if below else None
