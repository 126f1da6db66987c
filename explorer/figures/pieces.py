"""Tokens that hold only a part of a character: its bytes, and which nodes beside them complete it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from explorer.figures.base import NEXT, path_end
from explorer.trace import Step

_BYTES = re.compile(r"<([0-9A-F]{2}(?: [0-9A-F]{2})*)>")


@dataclass(frozen=True)
class Piece:
    """The bytes of one token, and the character that it is a part of."""

    shown: str
    """As hexadecimal numbers."""
    text: str | None
    """Of all pieces together; None where they do not make whole characters."""
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
    chain = [node]
    while (above := _above(step, chain[0])) is not None and bytes_of(_text(step, above)) is not None:
        chain.insert(0, above)
    while (below := _below(step, chain[-1])) is not None and bytes_of(_text(step, below)) is not None:
        chain.append(below)
    whole = b"".join(bytes_of(_text(step, each)) or b"" for each in chain)
    return Piece(data.hex(" ").upper(), _decoded(whole), tuple(chain))


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
