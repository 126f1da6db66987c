"""Text for pictures: tokens and numbers as people read them, safe for whatever draws them.

Two steps that must not be mixed up. `visible` makes a token readable as plain text (for `textContent`);
`plotly_text` then escapes it for Plotly, which parses a subset of HTML in texts and hover labels.
"""

from __future__ import annotations

import re
import unicodedata

ISOLATE, POP = "\u2068", "\u2069"
"""First strong isolate and its end: right-to-left text stays inside its own box."""

EMPTY = "◌"
"""Shown for a piece without text of its own, such as the first bytes of an emoji."""

SHOWN = {" ": "␣", "\n": "↵", "\t": "⇥", "\r": "␍", "\x7f": "␡", "\u00a0": "⍽", "\u200d": "‧", "\ufeff": "⍽"}

_RUNS = re.compile(r"([ \n\t])\1{3,}")
"""Long runs of whitespace, as in indented code."""

_RIGHT_TO_LEFT = frozenset({"R", "AL", "AN", "RLE", "RLO", "RLI", "LRE", "LRO", "LRI", "FSI", "PDF", "PDI"})


def visible(text: str, limit: int | None = None) -> str:
    """The token with its whitespace and control characters drawn; cut to `limit` characters with an ellipsis."""
    if not text:
        return EMPTY
    isolate = False
    pieces: list[str] = []
    for char in _RUNS.sub(_counted, text[: None if limit is None else 8 * limit]):
        if char in SHOWN:
            pieces.append(SHOWN[char])
        elif " " < char < "\x7f" or char == "×":
            pieces.append(char)
        else:
            pieces.append(_drawn(char, first=not pieces))
            isolate = isolate or unicodedata.bidirectional(char) in _RIGHT_TO_LEFT
            isolate = isolate or unicodedata.combining(char) > 0
    if limit is not None and len(pieces) > limit:
        pieces[limit - 1 :] = ["…"]
    shown = "".join(pieces)
    return f"{ISOLATE}{shown}{POP}" if isolate else shown


def _counted(run: re.Match[str]) -> str:
    """A run of one whitespace character, counted: seven spaces are one and a number."""
    return f"{run.group(1)}×{len(run.group(0))}"


def _drawn(char: str, first: bool) -> str:
    """One character outside printable ASCII: a picture for what cannot be seen, a base for a lone combining mark."""
    code = ord(char)
    if code < 0x20:
        return chr(0x2400 + code)
    category = unicodedata.category(char)
    if category.startswith("M") and first:
        return EMPTY + char
    if category in ("Cc", "Cf", "Cs", "Zl", "Zp", "Cn"):
        return f"⟨{code:X}⟩"
    return "␣" if category == "Zs" else char


def quoted(text: str, limit: int = 24) -> str:
    """The token in double quotes, for sentences."""
    return f'"{visible(text, limit)}"'


def plotly_text(text: str) -> str:
    """Escaped for Plotly: no tag, no entity and no template in `text` comes alive."""
    return (
        text.replace("&", "&amp;")
        .replace("<", "&lt;")
        .replace(">", "&gt;")
        .replace("%{", "%\u200b{")
        .replace("$", "&#36;")
    )


def drawn_token(text: str, limit: int | None = None) -> str:
    """A token for a Plotly figure: visible and escaped."""
    return plotly_text(visible(text, limit))


def prob(value: float | None) -> str:
    """A probability in at most five characters; a dash where there is none. Not escaped."""
    if value is None:
        return "–"
    if 0.0 < value < 0.005:
        return "<0.01"
    return f"{min(value, 1.0):.2f}"


def prob_fine(value: float | None) -> str:
    """A probability with three significant digits, for hover labels."""
    return "–" if value is None else f"{value:.3g}"


def logits(value: float) -> str:
    """A difference of logits, wherever it is shown."""
    return f"{value:.3g}"


def plural(count: int, one: str, many: str | None = None) -> str:
    """The count and its noun: `1 token`, `3 tokens`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


_WORDS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def count_word(count: int) -> str:
    """Small counts as words, as in running text."""
    return _WORDS[count] if 0 <= count < len(_WORDS) else f"{count:,}"
