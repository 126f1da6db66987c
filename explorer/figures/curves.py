"""What training bought: tokens per target pass, or accuracy, of each lane's drafter along its training.

The curves lie in the folders of the drafters that ship with this project (`curve.json`); a lane names its drafter, and
a recording from elsewhere may name one that is not here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from explorer.events import LaneHeader
from explorer.figures.base import Json, Overview
from explorer.figures.labels import drawn_token, plotly_text
from explorer.figures.theme import LaneStyle, Theme, axis, base_layout, legend_above
from explorer.runs import Run

DRAFTERS = Path(__file__).resolve().parents[2] / "assets" / "drafters"
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,80}")
"""A folder's name and nothing else: ids come from recordings, which anybody can write."""
LINE = 15
"""Pixels of height per drafter under the picture."""
VALUES = {
    "tokens": "tokens per target pass, tree of 25",
    "accuracy": "first guess right",
}


@dataclass(frozen=True)
class Curve:
    """One drafter's checkpoints, and the lanes that it drafts for."""

    drafter: str
    lanes: tuple[LaneHeader, ...]
    points: tuple[Mapping[str, Any], ...]
    note: str


@lru_cache(maxsize=32)
def read_curve(drafter: str) -> tuple[tuple[Mapping[str, Any], ...], str] | None:
    """Checkpoints by training tokens, and what they are; None where no such drafter ships with its curve."""
    if not NAME.fullmatch(drafter):
        return None
    try:
        held = json.loads((DRAFTERS / drafter / "curve.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return tuple(sorted(held["points"], key=lambda point: int(point["train_tokens"]))), str(held["note"])


def curves_of(run: Run) -> list[Curve]:
    """One a drafter, in the order of the lanes."""
    lanes: dict[str, list[LaneHeader]] = {}
    for record in run.lanes.values():
        if record.header.drafter is not None:
            lanes.setdefault(record.header.drafter.id, []).append(record.header)
    read = ((drafter, tuple(those), read_curve(drafter)) for drafter, those in lanes.items())
    return [Curve(drafter, those, *found) for drafter, those, found in read if found is not None]


def build(run: Run, theme: Theme, shown: str) -> Json:
    """One line a drafter, in the style of its first lane; no data where no lane has a drafter with a curve."""
    curves = curves_of(run)
    if not curves:
        return {"data": [], "layout": {}, "cursor": {}, "alt": describe(curves, shown), "absent": True}
    styles = dict(zip(run.lanes, theme.lanes * len(run.lanes), strict=False))
    least = min(int(curve.points[0]["train_tokens"]) for curve in curves)
    most = max(int(curve.points[-1]["train_tokens"]) for curve in curves)
    ticks = [tick for tick in (10**4, 3 * 10**4, 10**5, 3 * 10**5, 10**6, 3 * 10**6) if least / 2 <= tick <= most * 2]
    ticked = {"tickvals": ticks, "ticktext": [_short(tick) for tick in ticks], "tickangle": 0}
    layout = base_layout(theme) | {
        "height": 342 + LINE * len(curves),
        "showlegend": True,
        "legend": legend_above(theme.ink),
        "margin": {"l": 52, "r": 16, "t": 30, "b": 70 + LINE * len(curves)},
        "xaxis": axis(theme, "tokens trained on", type="log", **ticked),
        "yaxis": axis(
            theme, VALUES[shown], rangemode="tozero", **({"tickformat": ".0%"} if shown == "accuracy" else {})
        ),
        "annotations": [_source(curves, theme)],
    }
    data = [_line(curve, styles[curve.lanes[0].lane], shown) for curve in curves]
    return {"data": data, "layout": layout, "cursor": {}, "alt": describe(curves, shown), "min_width": 320}


def _short(count: int) -> str:
    """A tick's name: long ones would be turned on a narrow screen, and push the axis title into the note."""
    return f"{count // 1000}k" if count < 10**6 else f"{count // 10**6}M"


def _line(curve: Curve, style: LaneStyle, shown: str) -> Json:
    name = drawn_token(curve.lanes[0].title, 22).replace("␣", " ")
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": [point["train_tokens"] for point in curve.points],
        "y": [_value(point, shown) for point in curve.points],
        "line": {"color": style.colour, "dash": style.dash, "width": 2.2},
        "marker": {"symbol": style.symbol, "size": 8, "color": style.colour},
        "customdata": [[None, curve.lanes[0].lane] for _ in curve.points],
        "hovertext": [_about(name, curve, point) for point in curve.points],
        "hoverinfo": "text",
    }


def _value(point: Mapping[str, Any], shown: str) -> float:
    return float(point["top1"][0] if shown == "accuracy" else point["tree_tokens"])


def _about(name: str, curve: Curve, point: Mapping[str, Any]) -> str:
    depths = ", ".join(f"{share:.0%}" for share in point["top1"])
    return (
        f"<b>{name}</b>, {point['train_tokens']:,} tokens trained on ({plotly_text(str(point['stage']))})"
        f"<br>tokens per target pass: {point['tree_tokens']:.2f} with the best tree of 25 nodes, "
        f"{point['chain_tokens']:.2f} with a chain of five"
        f"<br>first guess right, by depth: {depths}<br>{point['positions']:,} held-out positions"
    )


def _source(curves: Sequence[Curve], theme: Theme) -> Json:
    """Under the picture: where the numbers are from."""
    places = [f"{curve.drafter}/curve.json" for curve in curves]
    words = "<br>".join(["held-out text, measured along the training; from", *places])
    place = {"x": 0, "xref": "paper", "xanchor": "left", "y": 0, "yref": "paper", "yanchor": "top", "yshift": -38}
    font = {"size": 11, "color": theme.soft}
    return place | {"text": words, "showarrow": False, "align": "left", "font": font}


def describe(curves: Sequence[Curve], shown: str) -> str:
    """The picture in words."""
    if not curves:
        return "No lane has a drafter that ships with its training curve."
    parts = []
    for curve in curves:
        first, last = curve.points[0], curve.points[-1]
        before, after = (_value(point, shown) for point in (first, last))
        numbers = f"{before:.0%} to {after:.0%}" if shown == "accuracy" else f"{before:.2f} to {after:.2f}"
        parts.append(
            f"{curve.lanes[0].title} from {numbers}, from {first['train_tokens']:,} to {last['train_tokens']:,} tokens"
        )
    return f"What training bought, {VALUES[shown]} on held-out text: {'; '.join(parts)}."


CURVES = Overview(
    name="curves",
    title="What training bought",
    label="Tokens per target pass and accuracy of each lane's drafter along its training, on held-out text.",
    axes=("tokens", "accuracy"),
    build=build,
)
