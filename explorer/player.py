"""The player's files, which the page and the replay file share: its code, its styles, plotly.js."""

from __future__ import annotations

from pathlib import Path

import plotly

ASSETS = Path(__file__).resolve().parent.parent / "assets"
PLAYER = (
    "dom",
    "hooks",
    "lanes",
    "frames",
    "figures",
    "links",
    "tables",
    "zoom",
    "brief",
    "overviews",
    "costmodel",
    "reach",
    "details",
    "code",
    "speed",
    "deck",
    "layout",
    "share",
    "trace",
    "picture",
    "main",
)
"""Files of the code, in the order in which they are joined."""
PLAYER_STYLES = ("theme", "player", "costmodel", "asides", "share")
PLOTLY_JS = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"


def script(*names: str) -> str:
    """One function body from several files."""
    return "\n".join((ASSETS / f"{name}.js").read_text(encoding="utf-8") for name in names)


def player_script() -> str:
    """The player as one function body; docs/design/reel.md says which four names it expects around it."""
    return script(*(f"player/{name}" for name in PLAYER))


def styles(names: tuple[str, ...], container: str) -> str:
    """The named files as one style sheet. The first holds the colours; the others are nested under a selector."""
    colours, *rest = ((ASSETS / f"{name}.css").read_text(encoding="utf-8") for name in names)
    nested = "\n".join(rest)
    return f"{colours}\n{container} {{\n{nested}\n}}"
