"""The report of a training run: loss, accuracy by depth, acceptance on held-out text, as one page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import plotly

from explorer.figures.base import CONFIG, Json
from explorer.figures.theme import SANS, THEMES, Theme

PLOTLY_NAME = "plotly.min.js"
SMOOTH_STEPS = 50
MOST_POINTS = 600


def plotly_script() -> bytes:
    """plotly.js, to lie next to the page under PLOTLY_NAME: the page needs no network."""
    return (Path(plotly.__file__).parent / "package_data" / PLOTLY_NAME).read_bytes()


def training_page(history: Mapping[str, Any]) -> str:
    """A page for the browser from the history that a run writes; it loads itself again while that goes on."""
    theme, points = THEMES["light"], list(history["points"])
    figures = [_loss(history["stages"], theme), _accuracy(points, theme), _acceptance(points, theme)]
    blocks = "".join(f'<div id="figure-{place}"></div>' for place in range(len(figures)))
    drawn = "".join(
        f"Plotly.newPlot('figure-{place}', {_script(figure['data'])}, {_script(figure['layout'])}, "
        f"{_script(dict(CONFIG))});"
        for place, figure in enumerate(figures)
    )
    title = escape(str(history["title"]))
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="30">'
        f'<title>{title}: training</title><script src="{PLOTLY_NAME}"></script>'
        f"<style>body{{font-family:{SANS};color:{theme.ink};max-width:60rem;margin:2rem auto}}</style></head>"
        f"<body><h1>{title}</h1>{_summary(points)}{blocks}<script>{drawn}</script></body></html>\n"
    )


def _summary(points: Sequence[Mapping[str, Any]]) -> str:
    if not points:
        return "<p>No checkpoint yet.</p>"
    last = points[-1]
    return (
        f"<p>After {last['train_tokens']:,} training tokens: a chain of five guesses brings "
        f"{last['chain_tokens']:.2f} tokens per target pass on held-out text, the best static tree of 25 nodes "
        f"{last['tree_tokens']:.2f}.</p>"
    )


def _loss(stages: Sequence[Mapping[str, Any]], theme: Theme) -> Json:
    """Mean loss of the last steps, by step; stages follow one another."""
    traces, start = [], 0
    for place, stage in enumerate(stages):
        losses = list(stage["losses"])
        every = max(1, len(losses) // MOST_POINTS)
        steps = list(range(0, len(losses), every))
        means = [_mean(losses[max(0, step - SMOOTH_STEPS + 1) : step + 1]) for step in steps]
        traces.append(_line([start + step for step in steps], means, str(stage["name"]), place, theme, mode="lines"))
        start += len(losses)
    return {"data": traces, "layout": _layout(f"Loss, mean of the last {SMOOTH_STEPS} steps", "step", "loss", theme)}


def _accuracy(points: Sequence[Mapping[str, Any]], theme: Theme) -> Json:
    """Top-1 accuracy of each head or depth by training tokens."""
    tokens = [point["train_tokens"] for point in points]
    depths = len(points[-1]["top1"]) if points else 0
    traces = [
        _line(tokens, [point["top1"][depth] for point in points], f"guess {depth + 1}", depth, theme)
        for depth in range(depths)
    ]
    title = "First choice right, held-out text, by depth of the guess"
    return {"data": traces, "layout": _layout(title, "training tokens", "share of positions", theme)}


def _acceptance(points: Sequence[Mapping[str, Any]], theme: Theme) -> Json:
    """Tokens per target pass by training tokens."""
    tokens = [point["train_tokens"] for point in points]
    named = (("tree_tokens", "best static tree of 25 nodes"), ("chain_tokens", "chain of five"))
    traces = [
        _line(tokens, [point[key] for point in points], words, place + 1, theme)
        for place, (key, words) in enumerate(named)
    ]
    title = "Tokens per target pass, held-out text"
    return {"data": traces, "layout": _layout(title, "training tokens", "tokens per target pass", theme)}


def _line(
    x: Sequence[float], y: Sequence[float], name: str, place: int, theme: Theme, mode: str = "lines+markers"
) -> Json:
    style = theme.lanes[place % len(theme.lanes)]
    return {
        "type": "scatter",
        "mode": mode,
        "x": list(x),
        "y": list(y),
        "name": name,
        "line": {"color": style.colour, "dash": style.dash},
    }


def _layout(title: str, x: str, y: str, theme: Theme) -> Json:
    axis = {"gridcolor": theme.grid, "zeroline": False}
    return {
        "title": {"text": title},
        "font": {"family": SANS, "color": theme.ink},
        "xaxis": {"title": {"text": x}, **axis},
        "yaxis": {"title": {"text": y}, **axis},
        "paper_bgcolor": theme.card,
        "plot_bgcolor": theme.card,
        "height": 360,
        "showlegend": True,
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _script(value: Any) -> str:
    """JSON that may stand inside a script element."""
    return json.dumps(value).replace("</", "<\\/")
