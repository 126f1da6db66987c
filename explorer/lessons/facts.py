"""What a lesson may say of a recorded step and its lane, by name. Counts and tokens only: milliseconds are measured
on whatever machine made the recording, so no lesson rests on them."""

from __future__ import annotations

from typing import Any

from explorer.figures.labels import quoted
from explorer.figures.reasons import taken_after
from explorer.metrics import drafts_kept
from explorer.narrate import best_rejected
from explorer.passes import kept_nodes, window_rows
from explorer.trace import Comparison, Step, Trace


class Quoted(str):
    """A token, or several, as people read them."""


Facts = dict[str, int | float | str]


def step_facts(step: Step) -> Facts:
    """Of one step."""
    accepted, drafted = drafts_kept(step), len(step.nodes) - 1
    statuses = [node.status for node in step.nodes]
    rows, kept = len(step.nodes) + window_rows(step), len(kept_nodes(step))
    facts: Facts = {
        "index": step.index,
        "drafted": drafted,
        "accepted": accepted,
        "committed": len(step.committed),
        "own_added": int(len(step.committed) > accepted),
        "rejected": statuses.count("rejected"),
        "unreached": statuses.count("unreached"),
        "dropped": drafted - len(step.accepted),
        "unfavoured": sum((step.nodes[node].rank or 0) > 0 for node in step.accepted),
        "rows": rows,
        "kept": kept,
        "root": Quoted(quoted(step.nodes[0].text)),
        "own": Quoted(quoted(step.next_token.text)),
        "own_share": step.next_token.probability,
        "path": Quoted(" → ".join(quoted(step.nodes[node].text) for node in step.accepted)),
    }
    return facts | _lost(step) | _payload(step)


def _lost(step: Step) -> Facts:
    """Of the rejected draft that the drafter believed in most."""
    node = best_rejected(step)
    if node is None:
        return {}
    facts: Facts = {"lost": Quoted(quoted(node.text))}
    instead = taken_after(step, node.parent or 0)
    facts |= {"instead": Quoted(quoted(instead))} if instead is not None else {}
    facts |= {"lost_draft": node.draft_prob} if node.draft_prob is not None else {}
    return facts | ({"lost_target": node.target_prob} if node.target_prob is not None else {})


def _payload(step: Step) -> Facts:
    """What the method recorded: its numbers, its texts as tokens, how long its lists are."""
    facts: Facts = {}
    for name, value in (step.payload or {}).items():
        if isinstance(value, bool | int | float):
            facts[f"payload.{name}"] = int(value) if isinstance(value, bool) else value
        elif isinstance(value, str):
            facts[f"payload.{name}"] = Quoted(quoted(value))
        elif isinstance(value, list | tuple):
            facts[f"payload.{name}"] = len(value)
    return facts


def lane_facts(comparison: Comparison, trace: Trace) -> Facts:
    """Of the step's lane as `lane.*`, of each lane under its id, and of the comparison as `run.*`."""
    facts: Facts = {"run.lanes": len(comparison.lanes)}
    facts["run.compared"] = len(comparison.lossless)
    facts["run.equal"] = sum(check.equal for check in comparison.lossless.values())
    facts["model.parameters"] = trace.model.parameters
    if trace.drafter is not None:
        facts |= {"drafter.parameters": trace.drafter.parameters, "drafter.bytes": trace.drafter.bytes}
    for prefix, each in [("lane", trace), *((other.lane, other) for other in comparison.lanes)]:
        facts |= {f"{prefix}.{name}": value for name, value in _numbers(each).items()}
    return facts


def _numbers(trace: Trace) -> Facts:
    totals = trace.totals
    title: Any = getattr(trace, "title", None)
    return {
        "title": title if isinstance(title, str) else trace.method,
        "tokens": totals.output_tokens,
        "passes": totals.target_passes,
        "per_pass": totals.tokens_per_target_pass,
        "drafted": totals.drafted_nodes,
        "accepted": totals.accepted_drafts,
        "acceptance": totals.accepted_drafts / totals.drafted_nodes if totals.drafted_nodes else 0.0,
        "draft_passes": totals.draft_passes,
    }
