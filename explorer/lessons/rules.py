"""Which lane, step and node a stop means, by rule.

A rule for a step is `first`, `last`, `most FACT` or `least FACT`, then perhaps `where` and conditions such as
`accepted>=2`, all of which must hold. Facts are those of facts.py.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable

from explorer.errors import ExplorerError
from explorer.lessons.facts import Facts, step_facts
from explorer.narrate import best_rejected
from explorer.trace import Comparison, Step, Trace

RULE = re.compile(r"(?:(first|last)|(most|least) (\S+))(?: where (.+))?")
CONDITION = re.compile(r"([\w.]+)(>=|<=|==)(-?\d+)")
COMPARE: dict[str, Callable[[float, float], bool]] = {">=": operator.ge, "<=": operator.le, "==": operator.eq}


def find_lane(comparison: Comparison, wanted: str) -> Trace:
    """The lane with that id, or the `best` one. ExplorerError where there is none."""
    if wanted == "best":
        return max(comparison.lanes, key=lambda trace: trace.totals.tokens_per_target_pass)
    for trace in comparison.lanes:
        if trace.lane == wanted:
            return trace
    raise ExplorerError(f"The recording has no lane {wanted}.")


def find_step(trace: Trace, rule: str) -> Step | None:
    """The step that the rule means; None where no step is like that."""
    parts = RULE.fullmatch(rule)
    if parts is None:
        raise ExplorerError(f"{rule!r} is no rule for a step.")
    end, extreme, name, conditions = parts.groups()
    known = [(step, step_facts(step)) for step in trace.steps]
    fitting = [(step, facts) for step, facts in known if _holds(facts, conditions)]
    if name is not None:
        fitting = [(step, facts) for step, facts in fitting if name in facts]
    if not fitting:
        return None
    if name is None:
        return fitting[0 if end == "first" else -1][0]
    sign = 1 if extreme == "most" else -1
    return max(fitting, key=lambda pair: (sign * _number(pair[1], name), -pair[0].index))[0]


def _holds(facts: Facts, conditions: str | None) -> bool:
    for text in (conditions or "").split():
        parts = CONDITION.fullmatch(text)
        if parts is None:
            raise ExplorerError(f"{text!r} is no condition for a step.")
        name, sign, bound = parts.groups()
        # what only some steps have, such as a payload's facts, does not hold in the others
        if name not in facts or not COMPARE[sign](_number(facts, name), float(bound)):
            return False
    return True


def _number(facts: Facts, name: str) -> float:
    value = facts[name]
    if not isinstance(value, int | float):
        raise ExplorerError(f"{name} is not a number.")
    return float(value)


def find_node(step: Step, wanted: str | None) -> str | None:
    """Id of the node to pin, as the pictures name it. ExplorerError where the step has no such node."""
    if wanted is None:
        return None
    if wanted == "own":
        return "next"
    lost = best_rejected(step)
    turns = [node for node in step.accepted if (step.nodes[node].rank or 0) > 0]
    nodes: dict[str, int | None] = {
        "root": 0,
        "first": 1 if len(step.nodes) > 1 else None,
        "first accepted": step.accepted[0] if step.accepted else None,
        "last accepted": step.accepted[-1] if step.accepted else None,
        "unfavoured": turns[0] if turns else None,
        "lost": None if lost is None else lost.id,
    }
    node = nodes.get(wanted)
    if node is None:
        raise ExplorerError(f"Step {step.index + 1} has no node that is {wanted!r}.")
    return str(node)
