"""Colours and line styles, light and dark. A role never differs by colour alone: dash, width and words differ too.

Base palette: Okabe-Ito, darkened or lightened until text has a contrast of 4.5 and marks of 3 on their ground
(tests/figures/test_theme.py measures it). The page's CSS uses the same values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

SANS = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


@dataclass(frozen=True)
class Role:
    """How one kind of node or mark looks."""

    words: str
    """What the legend and the hover label say."""
    line: str
    fill: str
    text: str
    dash: str
    width: float
    """Line width in pixels."""
    symbol: str = "circle"
    """Marker, where the role is drawn as one."""


class LaneStyle(NamedTuple):
    """How a lane's line looks in overviews: no two are alike in colour, nor in dash and symbol."""

    colour: str
    dash: str
    symbol: str


@dataclass(frozen=True)
class Theme:
    """All colours of one theme."""

    name: str
    card: str
    """The ground that figures stand on (they are transparent themselves)."""
    ink: str
    soft: str
    """Secondary text."""
    grid: str
    roles: Mapping[str, Role]
    phases: Mapping[str, tuple[str, str]]
    """Colour and pattern per phase of the timeline; accept and commit are told apart by their place."""
    lanes: tuple[LaneStyle, ...]
    """Per lane, in lane order."""
    ramp: tuple[str, ...]
    """Ground of the Jacobi window by iteration, oldest first; ink is legible on each."""


DASHES = ("dot", "solid", "dash", "dashdot", "longdash", "longdashdot", "10px,3px,2px,3px,2px,3px", "3px,2px")
SYMBOLS = ("circle", "diamond", "square", "triangle-up", "x", "star", "triangle-down", "cross")


def _lanes(*colours: str) -> tuple[LaneStyle, ...]:
    """Colours with their dashes and symbols."""
    return tuple(map(LaneStyle, colours, DASHES, SYMBOLS))


def _roles(ink: str, card: str, soft: str, idle: str, pairs: dict[str, tuple[str, str, str]]) -> dict[str, Role]:
    """Roles from (line, fill, text) per hue; shapes are the same in both themes."""
    blue, green, red, purple = (pairs[hue] for hue in ("blue", "green", "red", "purple"))
    return {
        "root": Role("root: decided in the step before", ink, card, ink, "solid", 1.5, "circle"),
        "accepted": Role("accepted draft", *blue, "solid", 2.5, "diamond"),
        "bonus": Role("target's own token", *green, "solid", 3.0, "star"),
        "rejected": Role("rejected", red[0], card, red[2], "5px,3px", 1.5, "x"),
        "unreached": Role("not reached", idle, card, soft, "2px,3px", 1.3, "circle-open-dot"),
        "cut": Role("not added to the output", idle, card, soft, "8px,3px,2px,3px", 1.5, "line-ew"),
        "kept": Role("kept by the re-ranking", purple[0], purple[0], purple[2], "solid", 1.5, "square"),
        "dropped": Role("not in the tree", idle, card, soft, "dot", 1.3, "circle-open"),
        "expanded": Role("expanded: drafted further", soft, card, ink, "solid", 1.3, "circle-open"),
        "hit": Role("the n-gram pool", *purple, "solid", 2.0, "square"),
        "copied": Role("copied from the context", *purple, "solid", 1.5, "square"),
        "copy": Role("copied from there", *purple, "solid", 1.0, "square"),
        "both": Role("by the drafter and from the context", purple[0], card, purple[2], "solid", 1.8, "square-open"),
        "matched": Role("the newest tokens, and where they stood before", ink, card, ink, "solid", 2.0, "circle"),
        "fixed": Role("settled: never changes again", *blue, "solid", 2.5, "square"),
        "changed": Role("changed in this pass", *pairs["warm"], "solid", 1.5, "triangle-ne"),
        "open": Role("as before, may still change", idle, card, soft, "2px,3px", 1.3, "circle-open"),
        "chance": Role("random guess", idle, card, soft, "8px,3px,2px,3px", 1.5, "circle-open-dot"),
        "draft": Role("drafter's probability", purple[0], card, purple[2], "solid", 1.5, "square"),
        "verify": Role("target's probability", *blue, "solid", 1.5, "square"),
        "ratio": Role("chance of acceptance", idle, card, soft, "solid", 1.0, "square"),
        "passed": Role("accepted", *blue, "solid", 1.5, "diamond"),
        "failed": Role("rejected", red[0], card, red[2], "solid", 1.5, "x"),
        "threshold": Role("threshold", ink, card, ink, "solid", 2.5, "line-ns"),
    }


def _light() -> Theme:
    ink, card, soft, idle = "#1b1e24", "#ffffff", "#5f6978", "#858e9b"
    pairs = {
        "blue": ("#0072b2", "#e3f0f8", "#005a8c"),
        "green": ("#00795a", "#e2f4ee", "#006b50"),
        "red": ("#b84a00", "#ffffff", "#a84300"),
        "warm": ("#b84a00", "#fdf1e7", "#a84300"),
        "purple": ("#a3487d", "#f8e8f1", "#8f3a6c"),
    }
    phases = {
        "prefill": ("#8b939f", ""),
        "drafter-prefill": ("#8b939f", "/"),
        "draft": ("#c07aa5", "\\"),
        "verify": ("#5ba3d0", ""),
        "accept": ("#b84a00", ""),
        "commit": ("#00795a", ""),
    }
    lanes = _lanes("#1b1e24", "#0072b2", "#00795a", "#a3487d", "#b84a00", "#5b4fc0", "#7a6200", "#5f6978")
    ramp = ("#f6f0fa", "#ece0f3", "#e1cfec", "#d6bee4", "#cbaddc", "#c09dd5")
    roles = MappingProxyType(_roles(ink, card, soft, idle, pairs))
    return Theme("light", card, ink, soft, "#e3e5e8", roles, MappingProxyType(phases), lanes, ramp)


def _dark() -> Theme:
    ink, card, soft, idle = "#e8eaee", "#1a1d23", "#9fa8b6", "#77808f"
    pairs = {
        "blue": ("#62b5e8", "#143248", "#8fcdf2"),
        "green": ("#3ecfa4", "#10392d", "#5fdcb6"),
        "red": ("#f08a4b", "#1a1d23", "#f29a63"),
        "warm": ("#f08a4b", "#33241a", "#f29a63"),
        "purple": ("#e08dbd", "#3c1f30", "#e9a6cc"),
    }
    phases = {
        "prefill": ("#77808f", ""),
        "drafter-prefill": ("#77808f", "/"),
        "draft": ("#c77aa8", "\\"),
        "verify": ("#3f86b4", ""),
        "accept": ("#f08a4b", ""),
        "commit": ("#3ecfa4", ""),
    }
    lanes = _lanes("#e8eaee", "#62b5e8", "#3ecfa4", "#e08dbd", "#f08a4b", "#a99bf5", "#d8bf4f", "#9fa8b6")
    ramp = ("#262130", "#30283d", "#3b304b", "#463858", "#524166", "#5e4a74")
    roles = MappingProxyType(_roles(ink, card, soft, idle, pairs))
    return Theme("dark", card, ink, soft, "#2b3038", roles, MappingProxyType(phases), lanes, ramp)


THEMES: Mapping[str, Theme] = MappingProxyType({"light": _light(), "dark": _dark()})


def legend_above(color: str) -> dict[str, Any]:
    """A legend in one row over the picture; a click on it hides nothing."""
    return {
        "orientation": "h",
        "x": 0,
        "y": 1.0,
        "yanchor": "bottom",
        "itemclick": False,
        "itemdoubleclick": False,
        "font": {"size": 12, "color": color},
    }


def base_layout(theme: Theme) -> dict[str, Any]:
    """What every figure shares: transparent, no template, the page's font and hover label."""
    return {
        "template": None,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": SANS, "size": 12, "color": theme.soft},
        "hoverlabel": {
            "bgcolor": theme.card,
            "bordercolor": theme.soft,
            "align": "left",
            "font": {"family": SANS, "size": 12.5, "color": theme.ink},
        },
        "margin": {"l": 0, "r": 0, "t": 0, "b": 0},
        "hovermode": "closest",
        "showlegend": False,
        "dragmode": False,
        "uirevision": "keep",
    }


def axis(theme: Theme, title: str = "", **more: Any) -> dict[str, Any]:
    """A quiet axis: fine grid, no zero line, zoom off so that a swipe scrolls the page."""
    settings: dict[str, Any] = {
        "gridcolor": theme.grid,
        "linecolor": theme.grid,
        "zeroline": False,
        "ticks": "",
        "fixedrange": True,
        "tickfont": {"size": 11, "color": theme.soft},
    }
    if title:
        settings["title"] = {"text": title, "font": {"size": 12, "color": theme.soft}, "standoff": 8}
    return settings | more


def hidden_axis(**more: Any) -> dict[str, Any]:
    """An axis that only gives coordinates."""
    return {"visible": False, "fixedrange": True, **more}
