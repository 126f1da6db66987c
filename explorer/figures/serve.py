"""Answers to the browser's questions for figures. Anybody can post here: nothing in a question is trusted.

An answer is always `{ok: true, ...}` or `{ok: false, error: one sentence}`; docs/design/reel.md is the contract.
"""

from __future__ import annotations

from typing import Any

from explorer.figures import FIGURES, OVERVIEWS
from explorer.figures.base import CONFIG, Json, Overview, View, no_roles
from explorer.figures.theme import THEMES, Theme
from explorer.runs import LaneRecord, Run, RunStore
from explorer.trace import Step

MOST_STEPS = 64
"""Steps in one answer."""


class Refused(Exception):
    """The question cannot be answered; the text says why in a sentence."""


def frames(store: RunStore, question: object) -> Json:
    """Figures of some steps of one lane: {run, lane, lo, hi, views, theme} -> {ok, views: {name: view}}."""
    try:
        asked = _mapping(question)
        record = _lane(_run(store, asked), asked)
        steps = _steps(record, asked)
        views, theme = _views(asked), _theme(asked)
        return {"ok": True, "views": {view.name: _answer(view, record, steps, theme) for view in views}}
    except Refused as refusal:
        return {"ok": False, "error": str(refusal)}


def overview(store: RunStore, question: object) -> Json:
    """A picture of the whole run: {run, view, theme, axis} -> {ok, view}."""
    try:
        asked = _mapping(question)
        run, picture, theme = _run(store, asked), _overview(asked), _theme(asked)
        axis = asked.get("axis") or picture.axes[0]
        if axis not in picture.axes:
            raise Refused(f"The axis of {picture.name} must be {_listed(picture.axes)}.")
        head = {"kind": "plotly", "title": picture.title, "label": picture.label, "config": dict(CONFIG)}
        return {"ok": True, "view": head | picture.build(run, theme, str(axis))}
    except Refused as refusal:
        return {"ok": False, "error": str(refusal)}


def _answer(view: View, record: LaneRecord, steps: list[Step], theme: Theme) -> Json:
    """One view of the steps; null where a step has no such picture."""
    lane = list(record.steps)
    built = [
        view.picture(record.header, lane[: step.index + 1], theme) if view.applies(step) else None for step in steps
    ]
    answer: Json = {"kind": view.kind, "title": view.title, "label": view.label, "steps": built}
    answer["legend"] = [[role, theme.roles[role].words] for role in _legend(view, lane)]
    if view.kind == "table":
        return answer | {"columns": view.columns(record.header, steps)}
    if view.kind == "text":
        return answer
    if view.place == "aside":
        return answer | view.common(record.header, lane)
    widest = max((step.get("min_width", 0) for step in built if step), default=0)
    return answer | {"layout": view.layout(theme), "config": dict(CONFIG), "min_width": widest}


def _legend(view: View, lane: list[Step]) -> list[str]:
    """The roles that every such picture has, then those that this lane has."""
    if view.rare is no_roles:  # `applies` may read a payload, and a lane may be long
        return list(view.legend)
    rare = {role: None for step in lane if view.applies(step) for role in view.rare(step)}
    return [*view.legend, *(role for role in rare if role not in view.legend)]


def _mapping(question: object) -> dict[str, Any]:
    if not isinstance(question, dict):
        raise Refused("The question must be an object with named fields.")
    return question


def _run(store: RunStore, asked: dict[str, Any]) -> Run:
    run = store.get(asked.get("run"))
    if run is None:
        raise Refused("No such run is held here; it may have been dropped to make room. Run the prompt again.")
    return run


def _lane(run: Run, asked: dict[str, Any]) -> LaneRecord:
    lane = asked.get("lane")
    record = run.lanes.get(lane) if isinstance(lane, str) else None
    if record is None:
        raise Refused(f"The run has no such lane; it has {_listed(run.lanes)}.")
    return record


def _steps(record: LaneRecord, asked: dict[str, Any]) -> list[Step]:
    """The steps asked for that have been recorded."""
    lo, hi = (_whole(asked, name) for name in ("lo", "hi"))
    if hi <= lo or hi - lo > MOST_STEPS:
        raise Refused(f"The range must hold 1 to {MOST_STEPS} steps; from {lo} to {hi} is {hi - lo}.")
    count = len(record.steps)
    if lo >= count:
        raise Refused(f"The lane has recorded {count} steps; there is no step {lo}.")
    return record.steps[lo : min(hi, count)]


def _whole(asked: dict[str, Any], name: str) -> int:
    value = asked.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 10**9:
        raise Refused(f"{name} must be a whole number, not negative.")
    return value


def _views(asked: dict[str, Any]) -> list[View]:
    known = {view.name: view for view in FIGURES}
    names = asked.get("views")
    if not isinstance(names, list) or not 0 < len(names) <= len(FIGURES):
        raise Refused(f"views must be a list of 1 to {len(FIGURES)} names out of {_listed(known)}.")
    if not all(isinstance(name, str) and name in known for name in names):
        raise Refused(f"There is no such view; there are {_listed(known)}.")
    return [known[name] for name in dict.fromkeys(names)]


def _overview(asked: dict[str, Any]) -> Overview:
    known = {picture.name: picture for picture in OVERVIEWS}
    name = asked.get("view")
    picture = known.get(name) if isinstance(name, str) else None
    if picture is None:
        raise Refused(f"There is no such overview; there are {_listed(known)}.")
    return picture


def _theme(asked: dict[str, Any]) -> Theme:
    name = asked.get("theme", "light")
    theme = THEMES.get(name) if isinstance(name, str) else None
    if theme is None:
        raise Refused(f"theme must be {_listed(THEMES)}.")
    return theme


def _listed(names: Any) -> str:
    """Names in a sentence, short enough for one."""
    shown = [str(name)[:40] for name in names][:12]
    return ", ".join(shown[:-1]) + " or " + shown[-1] if len(shown) > 1 else "".join(shown) or "none"
