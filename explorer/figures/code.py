"""The method's pseudocode beside each step: which lines ran, and what each phase took."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from explorer.events import LaneHeader
from explorer.figures.base import Json, View, path_end, payload_as, step_name
from explorer.figures.reasons import branch_role
from explorer.figures.theme import Theme
from explorer.payloads import JacobiPayload
from explorer.trace import Step

NOT, PAYLOAD = "not ", "payload."

RUNS: Mapping[str, Callable[[Step], bool]] = MappingProxyType(
    {
        "": lambda step: True,
        "drafts": lambda step: len(step.nodes) > 1,
        "judged": lambda step: any(node.decision is not None for node in step.nodes),
        "accepted": lambda step: bool(step.accepted),
        "stopped": lambda step: any(node.parent == path_end(step) for node in step.nodes[1:]),
        "dropped": lambda step: any(node.status in ("rejected", "unreached") for node in step.nodes),
        "failed": lambda step: any(
            node.decision is not None and node.decision.residual_mass is not None for node in step.nodes
        ),
        "copied": lambda step: any(branch_role(step, node) is not None for node in step.nodes),
        "committed": lambda step: bool(step.committed),
        "old guesses": lambda step: _old_guesses(step),
    }
)
"""When a line runs: `CodeLine.runs` is one of these, or "payload.NAME" where the step's payload has that entry and it
is neither zero nor empty; "not " before it turns it round."""


def _old_guesses(step: Step) -> bool:
    """Were some of a block's guesses there before?"""
    payload = payload_as(step, JacobiPayload)
    return payload is not None and len(payload.block) - 1 > payload.random


def runs(condition: str, step: Step) -> bool:
    """Does a line with this condition run in the step? One that is not known is never said to have run."""
    if condition.startswith(NOT):
        return not runs(condition.removeprefix(NOT), step)
    if condition.startswith(PAYLOAD):
        return bool((step.payload or {}).get(condition.removeprefix(PAYLOAD)))
    known = RUNS.get(condition)
    return known is not None and known(step)


def phase_ms(step: Step) -> dict[str, float]:
    """Milliseconds by phase, in the order in which they ran."""
    took: dict[str, float] = {}
    for span in step.spans:
        took[span.phase] = took.get(span.phase, 0.0) + span.duration_ms
    return took


def build(header: LaneHeader, step: Step, theme: Theme) -> Json:
    """Phases with their milliseconds, and the places of the lines that ran."""
    phases = phase_ms(step)
    ran = [place for place, line in enumerate(header.code) if line.phase in phases and runs(line.runs, step)]
    times = ", ".join(f"{phase} {took:.2f} ms" for phase, took in phases.items())
    return {
        "phases": [[phase, round(took, 4)] for phase, took in phases.items()],
        "ran": ran,
        "alt": f"Phases of {step_name(step)}: {times}.",
    }


def common(header: LaneHeader, lane: Sequence[Step]) -> Json:
    """The lines, each with its phase, and what their letters mean."""
    used = " ".join(line.text for line in header.code)
    drafter = ", q the drafter's" if re.search(r"\bq\b", used) else ""
    note = f"p is the target's distribution of the next token{drafter}" if re.search(r"\bp\b", used) else ""
    return {"lines": [[line.phase, line.text] for line in header.code], "note": note}


CODE = View(
    name="code",
    title="Algorithm",
    label="The method in a few lines; those that ran in this step are marked, with what their phases took.",
    kind="code",
    applies=lambda step: True,
    build=build,
    place="aside",
    common=common,
)
