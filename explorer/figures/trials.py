"""What decided: for every draft that a rule weighed, the probabilities and the number that it was held against.

Left the drafter's and the target's probability as the rule saw them; right the trial: the drawn number against
the ratio (speculative sampling), or the target's probability against a threshold (typical acceptance). Top-k
match has no second number but a place, which stands in words at the right.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log10

from explorer.events import LaneHeader
from explorer.figures.base import Json, View, path_end, step_name
from explorer.figures.labels import drawn_token, plotly_text, plural, prob, prob_fine, quoted
from explorer.figures.reasons import place_of, role_of
from explorer.figures.theme import MONO, Theme, axis, base_layout
from explorer.trace import Decision, Node, Step

MOST = 24
"""Rows shown."""
ROW = 40
"""Pixels per row."""
LEFT, RIGHT = 104, 104
"""Pixels for token and verdict."""
HALF = 0.48
"""Where the left panel ends, as a share of the width."""
GAP = "\u00a0\u00a0"
"""Between the right panel and the verdicts."""
FLOOR = 1e-4
"""Target probabilities below are drawn here: a logarithm needs a floor."""


@dataclass(frozen=True)
class Trial:
    """A judged draft and what decided."""

    node: Node
    decision: Decision
    accepted: bool
    """What the rule said of this draft alone: it need not be on the longest path."""


def trials_of(step: Step) -> list[Trial]:
    """The drafts that were weighed by number, in the order of the tree."""
    found = []
    for node in step.nodes[1:]:
        decision = node.decision
        if decision is None or (decision.draw is None and decision.threshold is None and decision.top_k is None):
            continue
        accepted = decision.accepted if decision.accepted is not None else node.status == "accepted"
        found.append(Trial(node, decision, accepted))
    return found


def build(header: LaneHeader, step: Step, theme: Theme) -> Json:
    """One row a trial."""
    trials = trials_of(step)
    shown = trials[:MOST]
    drawn = any(trial.decision.draw is not None for trial in shown)
    held = any(trial.decision.threshold is not None for trial in shown)
    data = [_bars(step, shown, "draft", theme), _bars(step, shown, "verify", theme)]
    if drawn:
        data += [_zones(shown, theme), *_marks(shown, [_draw(trial) for trial in shown], theme)]
    elif held:
        data += [_thresholds(shown, theme), *_marks(shown, [_height(trial) for trial in shown], theme)]
    data.append(_verdicts(step, shown, theme))
    layout = _layout(step, shown, drawn, held, theme)
    return {"data": data, "layout": layout, "alt": describe(step, trials), "min_width": 430 if drawn or held else 330}


def _layout(step: Step, trials: list[Trial], drawn: bool, held: bool, theme: Theme) -> Json:
    """Axes of both panels; the right one only where there is something to hold against."""
    names = [f"+{trial.node.depth} {drawn_token(trial.node.text, 8)}" for trial in trials]
    layout: Json = {
        "height": 58 + ROW * max(len(trials), 1),
        "xaxis": {"domain": [0, HALF if drawn or held else 0.98]},
        "yaxis": {
            "range": [len(trials) - 0.5, -0.5],
            "tickvals": list(range(len(trials))),
            "ticktext": names,
        },
        "xaxis2": {"visible": False, "anchor": "y", "domain": [0.98, 1], "range": [0, 1.02]},
    }
    if drawn:
        layout["xaxis2"] = _second(theme, "drawn number", [0, 1.02], tickvals=[0, 0.5, 1])
    elif held:
        ticks = [1.0, 0.1, 0.01, 0.001]
        layout["xaxis2"] = _second(
            theme, "target against threshold", [log10(FLOOR) - 0.1, 0.1], type="log", tickvals=ticks,
            ticktext=[f"{tick:g}" for tick in ticks],
        )  # fmt: skip
    return layout


def _second(theme: Theme, title: str, span: list[float], **more: object) -> Json:
    return axis(theme, title, side="top", domain=[HALF + 0.04, 1], anchor="y", range=span, visible=True, **more)


def _bars(step: Step, trials: list[Trial], role: str, theme: Theme) -> Json:
    """The drafter's probabilities above the target's, hatched: colour is not all that tells them apart."""
    style, above = theme.roles[role], role == "draft"
    values = [_seen(trial)[0 if above else 1] for trial in trials]
    marker: Json = {"color": style.line, "line": {"width": 0}}
    if above:
        marker["pattern"] = {"shape": "/", "fillmode": "overlay", "fgcolor": theme.card, "size": 5, "solidity": 0.3}
    return {
        "type": "bar",
        "orientation": "h",
        "name": style.words,
        "x": [0.0 if value is None else min(value, 1.0) for value in values],
        "y": list(range(len(trials))),
        "offset": -0.34 if above else 0.02,
        "width": 0.32,
        "marker": marker,
        "text": [plotly_text(prob(value)) for value in values],
        "textposition": "outside",
        "cliponaxis": False,
        "constraintext": "none",
        "textfont": {"family": MONO, "size": 11, "color": theme.soft},
        "hovertext": [_about(step, trial, theme) for trial in trials],
        "hoverinfo": "text",
    } | ({} if above else {"meta": "nodes", "customdata": [[trial.node.id] for trial in trials]})


def _seen(trial: Trial) -> tuple[float | None, float | None]:
    """Both probabilities as the rule saw them; where it did not look at the drafter's, what the drafter said."""
    decision, node = trial.decision, trial.node
    draft = node.draft_prob if decision.draft_prob is None else decision.draft_prob
    return draft, node.target_prob if decision.target_prob is None else decision.target_prob


def _zones(trials: list[Trial], theme: Theme) -> Json:
    """Where a drawn number means acceptance: from 0 to the ratio."""
    style = theme.roles["ratio"]
    return {
        "type": "bar",
        "orientation": "h",
        "name": style.words,
        "xaxis": "x2",
        "x": [trial.decision.ratio or 0.0 for trial in trials],
        "y": list(range(len(trials))),
        "offset": -0.28,
        "width": 0.56,
        "marker": {"color": theme.grid, "line": {"width": 1, "color": style.line}},
        "hoverinfo": "skip",
    }


def _thresholds(trials: list[Trial], theme: Theme) -> Json:
    """An upright stroke where the threshold lies."""
    style = theme.roles["threshold"]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": style.words,
        "xaxis": "x2",
        "x": [max(trial.decision.threshold or 0.0, FLOOR) for trial in trials],
        "y": list(range(len(trials))),
        "marker": {"symbol": "line-ns", "size": 24, "line": {"width": style.width, "color": style.line}},
        "hoverinfo": "skip",
    }


def _draw(trial: Trial) -> float:
    return trial.decision.draw if trial.decision.draw is not None else 0.0


def _height(trial: Trial) -> float:
    return max(_seen(trial)[1] or 0.0, FLOOR)


def _marks(trials: list[Trial], places: list[float], theme: Theme) -> list[Json]:
    """A diamond where the draft passed, a cross where it did not."""
    traces: list[Json] = []
    for role, passed in (("accepted", True), ("rejected", False)):
        rows = [row for row, trial in enumerate(trials) if trial.accepted is passed]
        if rows:
            traces.append(
                {"type": "scatter", "mode": "markers", "name": role, "xaxis": "x2", "cliponaxis": False,
                 "x": [places[row] for row in rows], "y": rows, "hoverinfo": "skip",
                 "marker": {"symbol": theme.roles[role].symbol, "size": 11, "color": theme.roles[role].line}}
            )  # fmt: skip
    return traces


def _verdicts(step: Step, trials: list[Trial], theme: Theme) -> Json:
    """In words, right of the panels."""
    return {
        "type": "scatter",
        "mode": "text",
        "xaxis": "x2",
        "x": [1.02] * len(trials),
        "y": list(range(len(trials))),
        "text": ["<br>".join(GAP + plotly_text(line) for line in verdict(step, trial)) for trial in trials],
        "textposition": "middle right",
        "cliponaxis": False,
        "hoverinfo": "skip",
        "textfont": {
            "size": 11.5,
            "color": [theme.roles["accepted" if trial.accepted else "rejected"].text for trial in trials],
        },
    }


def verdict(step: Step, trial: Trial) -> list[str]:
    """One or two short lines: accepted or not, and the number that matters next."""
    decision = trial.decision
    word = "accepted" if trial.accepted else "rejected"
    if trial.accepted and role_of(step, trial.node) in ("rejected", "unreached"):
        word = "passed"  # by itself, but another path was longer
    if decision.residual_mass is not None:
        return [word, f"residual {prob(decision.residual_mass)}"]
    if decision.entropy is not None:
        return [word, f"entropy {decision.entropy:.2f}"]
    if decision.top_k is not None:
        place = place_of(step, trial.node)
        return [word, f"{'place unknown' if place is None else f'place {place}'} of {decision.top_k}"]
    return [word]


def _about(step: Step, trial: Trial, theme: Theme) -> str:
    """The hover label: every number that decided."""
    decision = trial.decision
    draft, target = _seen(trial)
    lines = [f"<b>{drawn_token(trial.node.text, 60)}</b>", plotly_text(", ".join(verdict(step, trial)))]
    lines.append(f"drafter {prob_fine(draft)} · target {prob_fine(target)}")
    named = [
        ("ratio", decision.ratio), ("draw", decision.draw), ("residual mass", decision.residual_mass),
        ("threshold", decision.threshold), ("entropy", decision.entropy),
    ]  # fmt: skip
    known = [f"{name} {prob_fine(value)}" for name, value in named if value is not None]
    return "<br>".join([*lines, *([" · ".join(known)] if known else []), *_left(step, trial)])


def _left(step: Step, trial: Trial) -> list[str]:
    """After the last rejection: the likeliest tokens of what it left, which the target's own token was drawn from."""
    tried = [each.node.id for each in trials_of(step) if each.node.parent == path_end(step)]
    if trial.accepted or step.next_token.residual is None or [trial.node.id] != tried[-1:]:
        return []
    best = ", ".join(f"{drawn_token(top.text, 12)} {prob_fine(top.prob)}" for top in step.next_token.residual)
    return [f"left to draw from: {best}"]


def describe(step: Step, trials: list[Trial]) -> str:
    """The picture in words."""
    passed = sum(trial.accepted for trial in trials)
    lost = next((trial for trial in trials if not trial.accepted), None)
    end = f"; the first to fail is {quoted(lost.node.text)}" if lost else ""
    more = f"; {MOST} of them are drawn" if len(trials) > MOST else ""
    return f"Trials of {step_name(step)}: {plural(len(trials), 'draft')} weighed, {passed} passed{end}{more}."


def layout(theme: Theme) -> Json:
    """Tokens at the left, verdicts at the right, axes above."""
    return base_layout(theme) | {
        "margin": {"l": LEFT, "r": RIGHT, "t": 46, "b": 8},
        "barmode": "overlay",
        "xaxis": axis(theme, "probability", side="top", range=[0, 1.28], tickvals=[0, 0.5, 1]),
        "yaxis": axis(
            theme, showgrid=False, anchor="x", tickfont={"family": MONO, "size": 12, "color": theme.ink}
        ),
    }  # fmt: skip


def roles_of(step: Step) -> list[str]:
    """What the right panel shows depends on the rule."""
    decisions = [trial.decision for trial in trials_of(step)]
    drawn = any(decision.draw is not None for decision in decisions)
    held = any(decision.threshold is not None for decision in decisions)
    return [
        *(["ratio"] if drawn else []),
        *(["threshold"] if held else []),
        *(["passed", "failed"] if drawn or held else []),
    ]


TRIALS = View(
    name="trials",
    title="Trials",
    label="For every draft that was weighed: both probabilities, and the number that it was held against.",
    kind="plotly",
    applies=lambda step: bool(trials_of(step)),
    build=build,
    layout=layout,
    legend=("draft", "verify"),
    rare=roles_of,
)
