"""What holds for every figure, whichever view made it."""

from __future__ import annotations

import json
import math
from typing import Any

import plotly.graph_objects as go

from explorer.figures.base import View
from explorer.figures.theme import THEMES, Theme
from explorer.trace import Step
from tests.traces import header

LIGHT = THEMES["light"]


def merged(common: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """As the player merges a step's layout over the common one."""
    return common | {
        key: common.get(key, {}) | value if isinstance(value, dict) else value for key, value in own.items()
    }


def assert_plain_json(value: Any) -> None:
    """Nothing but JSON: no NaN, no numpy, no tuple that a browser would not get."""
    assert json.loads(json.dumps(value, allow_nan=False)) == value


def build(view: View, step: Step, theme: Theme = LIGHT, method: str = "eagle") -> dict[str, Any]:
    """A view of a step, checked."""
    assert view.applies(step)
    built = view.build(header(method), step, theme)
    assert_plain_json(built)
    assert built["alt"]
    if view.kind == "plotly":
        common = view.layout(theme)
        assert_plain_json(common)
        go.Figure({"data": built["data"], "layout": merged(common, built["layout"])})
        assert built["min_width"] > 0
        assert built["layout"]["height"] > 0
        check_numbers(built["data"])
    elif view.kind == "table":
        check_rows(view, step, built, method)
    elif view.kind == "text":
        check_lines(built)
    else:
        assert view.place == "aside"
        assert_plain_json(view.common(header(method), [step]))
    return built


def check_lines(built: dict[str, Any]) -> None:
    """Pieces are readable text with a role and a node where there are any."""
    for line in built["lines"]:
        assert line["name"]
        for piece in line["pieces"]:
            assert piece["t"]
            assert piece.keys() <= {"t", "k", "node"}


def check_numbers(data: list[dict[str, Any]]) -> None:
    """x and y of a trace are as long as each other and finite."""
    for trace in data:
        if trace["type"] == "scatter":
            assert len(trace["x"]) == len(trace["y"])
            assert all(value is None or math.isfinite(value) for value in (*trace["x"], *trace["y"]))


def check_rows(view: View, step: Step, built: dict[str, Any], method: str) -> None:
    """Rows are as wide as the header, and cells hold what the player reads."""
    columns = view.columns(header(method), [step])
    for row in built["rows"]:
        assert len(row) == len(columns)
        for cell in row:
            assert isinstance(cell["t"], str)
            assert cell.keys() <= {"t", "k", "n", "bar", "node", "title", "m", "lit"}
            assert 0 <= cell.get("bar", 0) <= 1


def nodes_trace(built: dict[str, Any]) -> list[dict[str, Any]]:
    """The traces whose points are nodes."""
    return [trace for trace in built["data"] if trace.get("meta") == "nodes"]


def drawn_texts(built: dict[str, Any]) -> list[str]:
    """All texts that Plotly will parse."""
    found: list[str] = []
    for trace in built["data"]:
        for name in ("text", "hovertext", "name", "hovertemplate"):
            value = trace.get(name, [])
            for item in [value] if isinstance(value, str) else value:
                found += item if isinstance(item, list) else [item]
    return found


def assert_harmless(texts: list[str]) -> None:
    """Only our own tags: nothing that a token brought along."""
    for text in texts:
        bare = text.replace("<b>", "").replace("</b>", "").replace("<br>", "").replace("<extra></extra>", "")
        assert "<" not in bare, text
        assert "%{" not in bare.replace("%{customdata[", "").replace("%{x}", "").replace("%{y}", ""), text
