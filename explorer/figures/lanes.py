"""How the lanes differ: what a method needs and does, what was counted here, and, apart from it, what was timed here.

Counts follow from the trace alone; milliseconds are those of the machine that ran it. What is said of
a method in general has its source in `WORDS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from explorer.figures.base import Json, Overview
from explorer.figures.labels import plural
from explorer.figures.tables import Cell, cell
from explorer.figures.theme import Theme
from explorer.metrics import (
    BASELINE,
    acceptance_length,
    accepted_of_depth,
    accepted_of_tested,
    drafts_kept,
    ms_per_token,
)
from explorer.runs import LaneRecord, Run
from explorer.trace import Step


@dataclass(frozen=True)
class Words:
    """What is true of a method in every run."""

    training: str
    drafts: str
    """How drafts depend on one another."""
    suits: str
    source: str
    """Where `suits` was measured."""


WORDS: Mapping[str, Words] = MappingProxyType(
    {
        "autoregressive": Words("none", "no drafts", "any text; the same speed on all", "the definition"),
        "draft-model": Words(
            "a small model of the same tokenizer",
            "chain: each draft is conditioned on those before it",
            "what the small model says as well: maths, lists and code best",
            "this project's 18 benchmark prompts; method: Leviathan et al., arXiv 2211.17192",
        ),
        "prompt-lookup": Words(
            "none",
            "chain: copied in one piece from the context",
            "text that repeats its prompt or itself: summaries, edits; nothing where every word is new",
            "Spec-Bench (Xia et al., arXiv 2401.07851); method: Saxena 2023",
        ),
        "jacobi": Words(
            "none (consistency training would help)",
            "window: all positions at once, each from the guesses before it",
            "little on a model that was not trained for it",
            "Lookahead decoding (arXiv 2402.02057, section 2); method: Santilli et al., arXiv 2305.10427",
        ),
        "lookahead": Words(
            "none",
            "n-grams seen in the window of Jacobi guesses",
            "text with many repeated n-grams: maths and code; least on translation",
            "this project's 18 benchmark prompts; Spec-Bench (arXiv 2401.07851)",
        ),
        "medusa": Words(
            "one head a position, target frozen",
            "tree of independent heads: no head sees what another chose",
            "maths and code best, translation worst",
            "this project's 18 benchmark prompts; method: Cai et al., arXiv 2401.10774",
        ),
        "eagle": Words(
            "one decoder layer, target frozen",
            "tree: each draft is conditioned on its path and on features",
            "maths and code best, translation worst",
            "this project's 18 benchmark prompts; method: Li et al., arXiv 2401.15077 and 2406.16858",
        ),
        "eagle3": Words(
            "one decoder layer and a fusion of three layers, target frozen",
            "tree: each draft is conditioned on its path and on features",
            "maths best, then code and chat; translation worst",
            "this project's 18 benchmark prompts; method: Li et al., arXiv 2503.01840",
        ),
    }
)
UNKNOWN = Words("–", "–", "–", "this method is not described here")

COLUMNS = [
    "lane",
    "training needed",
    "how drafts depend on one another",
    "output",
    "what text it suits",
    "extra parameters",
    "extra MB",
    "count: draft passes a step",
    "count: drafts a step",
    "count: tokens a target pass",
    "count: mean acceptance length",
    "count: accepted of tested",
    "count: accepted of depth",
    "count: accepted of drafted",
    "measured: ms a token",
    "measured: speed-up",
]
CAPTION = (
    "Columns marked count do not depend on the machine; columns marked measured are times of the machine that ran it."
)
DEFINITIONS = (
    ("training needed", "what has to be learnt before the method drafts at all; the target itself is never changed."),
    ("output", "does the acceptance rule keep the target's own output, or exactly its distribution when sampled?"),
    (
        "extra parameters",
        "of the trained drafter, on top of the target's; what it borrows from the target is not extra.",
    ),
    ("extra MB", "of the drafter's tensors as stored."),
    ("count: draft passes a step", "passes of the drafter over steps; known when the lane has ended."),
    ("count: drafts a step", "drafted nodes over target passes."),
    ("count: tokens a target pass", "tokens that the steps gave over target passes; the prefill's are not counted."),
    ("count: mean acceptance length", "1 + accepted drafts over target passes, as vLLM and llama.cpp report it."),
    (
        "count: accepted of tested",
        "of the depths where a draft was tested (its parent was accepted), those where one was accepted.",
    ),
    ("count: accepted of depth", "accepted drafts over the summed depths of the trees."),
    (
        "count: accepted of drafted",
        "accepted drafts over drafted nodes; siblings exclude each other, so in a tree most lose.",
    ),
    (
        "measured: ms a token",
        "milliseconds of the steps over their tokens, prefill left out, on its machine.",
    ),
    ("measured: speed-up", "milliseconds a token of the autoregressive lane over this lane's."),
)


def build(run: Run, theme: Theme, horizontal: str) -> Json:
    """A table: a row a lane."""
    records = list(run.lanes.values())
    reference = next((record for record in records if record.header.method == BASELINE), None)
    slow = ms_per_token(list(reference.steps)) if reference else None
    return {
        "kind": "table",
        "columns": list(COLUMNS),
        "rows": [_row(record, None if record.header.apart else slow) for record in records],
        "caption": CAPTION,
        "definitions": [list(pair) for pair in DEFINITIONS],
        "alt": describe(records, slow),
        "data": [],
        "layout": {},
        "cursor": {},
        "min_width": 320,
    }


def _row(record: LaneRecord, slow: float | None) -> list[Cell]:
    header, steps = record.header, list(record.steps)
    words = WORDS.get(header.method, UNKNOWN)
    title = " · ".join(part for part in (header.title, header.subtitle) if part)
    output = "lossless" if header.lossless else "not lossless"
    return [
        cell(header.title, title=title[:200]),
        cell(words.training + _barely(record)),
        cell(words.drafts),
        cell("the baseline" if header.method == BASELINE and header.branch is None else output, title=_rule(record)),
        cell(words.suits, title=f"Source: {words.source}."),
        *_sizes(record),
        *_counts(record, steps),
        *_times(steps, slow),
    ]


def _barely(record: LaneRecord) -> str:
    """Lanes whose drafter had little of its training."""
    return "; this lane's drafter had barely any" if record.header.params.get("training") == "barely" else ""


def _rule(record: LaneRecord) -> str:
    if record.header.lossless:
        return "The acceptance rule keeps the target's own output, or exactly its distribution when sampled."
    return "The acceptance rule also takes drafts that the target would not have chosen."


def _sizes(record: LaneRecord) -> list[Cell]:
    """Of the trained drafter; none without one."""
    drafter = record.header.drafter
    if drafter is None:
        return [cell("0", n=True, title="Nothing is loaded besides the target."), cell("0", n=True)]
    share = drafter.parameters / record.header.model.parameters if record.header.model.parameters else 0.0
    about = f"{drafter.parameters:,}, {share:.1%} of the target's"
    return [
        cell(_short(drafter.parameters), n=True, title=about),
        cell(f"{drafter.bytes / 1e6:.1f}", n=True, title=f"The drafter's file: {drafter.bytes:,} bytes."),
    ]


def _short(count: int) -> str:
    """A large count in at most five characters."""
    for size, letter in ((10**9, "B"), (10**6, "M"), (10**3, "k")):
        if count >= size:
            return f"{count / size:.3g} {letter}"
    return str(count)


def draft_passes_per_step(record: LaneRecord) -> float | None:
    """Passes of the drafter over the lane's steps; known when the lane has ended."""
    if record.trace is None or not record.trace.steps:
        return None
    return record.trace.totals.draft_passes / len(record.trace.steps)


def _counts(record: LaneRecord, steps: list[Step]) -> list[Cell]:
    passes = draft_passes_per_step(record)
    drafted, accepted = sum(len(step.nodes) - 1 for step in steps), sum(map(drafts_kept, steps))
    tokens = sum(len(step.committed) for step in steps)
    rate = f"{plural(accepted, 'accepted draft')} of {drafted:,} drafted nodes; in a tree most must lose"
    per_pass = (
        f"{plural(tokens, 'token')} of {plural(len(steps), 'target pass', 'target passes')}; the prefill's not counted"
    )
    return [
        _number(passes, "Passes of the drafter over steps; known when the lane has ended."),
        _number(drafted / len(steps) if steps else None, "Drafted nodes over target passes."),
        _number(tokens / len(steps) if steps else None, per_pass + "."),
        _number(acceptance_length(steps), "1 + accepted drafts over target passes, drafts that the end cut off too."),
        _share(accepted_of_tested(steps), "Depths where a draft was accepted, of those where one was tested."),
        _share(accepted_of_depth(steps), "Accepted drafts over the summed depths of the trees."),
        _share(accepted / drafted if drafted else None, rate + "."),
    ]


def _times(steps: list[Step], slow: float | None) -> list[Cell]:
    fast = ms_per_token(steps)
    speed = f"{slow / fast:.2f}×" if slow and fast else "–"
    return [
        _number(fast, "Decode milliseconds over tokens, prefill left out, measured on the machine that ran it."),
        cell(
            speed, n=True, title="Milliseconds a token of the autoregressive lane over this lane's, as measured here."
        ),
    ]


def _number(value: float | None, title: str) -> Cell:
    return cell("–" if value is None else f"{value:.2f}", n=True, title=title)


def _share(value: float | None, title: str) -> Cell:
    return cell("–" if value is None else f"{value:.0%}", n=True, title=title)


def describe(records: list[LaneRecord], slow: float | None) -> str:
    """The table's core in words."""
    parts = []
    for record in records:
        steps = list(record.steps)
        if steps:
            tokens = sum(len(step.committed) for step in steps) / len(steps)
            fast = ms_per_token(steps)
            speed = (
                f", {slow / fast:.2f} times as fast as measured here"
                if slow and fast and not record.header.apart
                else ""
            )
            parts.append(f"{record.header.title} {tokens:.2f} tokens a target pass{speed}")
    return f"How the lanes differ: {'; '.join(parts)}." if parts else "No lane has run yet."


LANES = Overview(
    name="lanes",
    title="How the lanes differ",
    label="What each method needs, what it did here by count, and what it took here by the clock.",
    axes=("all",),
    build=build,
)
