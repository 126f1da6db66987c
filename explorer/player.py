"""The player's files, which the page and the replay file share: its code, its styles, plotly.js."""

from __future__ import annotations

import json
from pathlib import Path

import plotly

ASSETS = Path(__file__).resolve().parent.parent / "assets"
PLAYER = (
    "dom",
    "hooks",
    "fields",
    "lanes",
    "frames",
    "figures",
    "links",
    "tables",
    "zoom",
    "brief",
    "overviews",
    "costmodel",
    "terms",
    "reach",
    "details",
    "whatif",
    "code",
    "speed",
    "deck",
    "layout",
    "share",
    "trace",
    "picture",
    "lecture",
    "lessons",
    "tour",
    "help",
    "predict",
    "main",
)
"""Files of the code, in the order in which they are joined."""
PLAYER_STYLES = ("theme", "player", "costmodel", "terms", "asides", "whatif", "predict", "share", "lecture")
PLOTLY_JS = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"


def script(*names: str) -> str:
    """One function body from several files."""
    return "\n".join((ASSETS / f"{name}.js").read_text(encoding="utf-8") for name in names)


def player_script() -> str:
    """The player as one function body; docs/design/reel.md says which five names it expects around it."""
    return f"{_glossary()}\n{script(*(f'player/{name}' for name in PLAYER))}"


def _glossary() -> str:
    """The words that the page explains, as data for the code: in a replay file too."""
    words = json.loads((ASSETS / "player" / "glossary.json").read_text(encoding="utf-8"))
    return f"const GLOSSARY = {json.dumps(words)};"


def styles(names: tuple[str, ...], container: str) -> str:
    """The named files as one style sheet. The first holds the colours; the others are nested under a selector."""
    colours, *rest = ((ASSETS / f"{name}.css").read_text(encoding="utf-8") for name in names)
    nested = "\n".join(rest)
    return f"{colours}\n{container} {{\n{nested}\n}}"
