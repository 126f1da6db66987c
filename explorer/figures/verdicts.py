"""Why a lane is faster or slower than plain decoding, and what `size: auto` did, in sentences from its own numbers."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from explorer.figures.labels import plural
from explorer.fitting import disturbed, together
from explorer.metrics import BASELINE, ms_per_token, phase_ms, step_ms
from explorer.passes import pass_rows
from explorer.runs import LaneRecord, Run
from explorer.trace import Draft, Step

EVEN = 0.02
"""Within so much of plain decoding's speed a lane is called as fast."""
FEW_STEPS = 3
"""A verdict on less would be one on noise."""


def verdicts(run: Run) -> list[str]:
    """A sentence a lane that drafts, slower ones first; then one a lane that chooses its size."""
    records = list(run.lanes.values())
    plain = next((list(record.steps) for record in records if record.header.method == BASELINE), [])
    drafting = [record for record in records if record.header.method != BASELINE and len(record.steps) >= FEW_STEPS]
    timed = [record for record in drafting if not record.header.apart]
    told: list[tuple[float, str]] = []
    if len(plain) >= FEW_STEPS:
        told = [each for each in (_speed(record, plain) for record in timed) if each]
    chosen = [words for words in map(size_summary, drafting) if words]
    unquiet = disturbed(together([record.trace for record in records if record.trace is not None]))
    return [*([unquiet] if unquiet else []), *(words for _, words in sorted(told)), *chosen]


def _speed(record: LaneRecord, plain: Sequence[Step]) -> tuple[float, str] | None:
    """How fast, and why: what a step costs against what it gives."""
    steps = list(record.steps)
    slow, fast = ms_per_token(plain), ms_per_token(steps)
    base = fmean(map(step_ms, plain))
    tokens = fmean(len(step.committed) for step in steps)
    if not slow or not fast or base <= 0:
        return None
    speed, cost = slow / fast, fmean(map(step_ms, steps)) / base
    if speed < 1 - EVEN:
        verdict = f"slower than plain decoding ({speed:.2f}×)"
        turn = f"gives only {tokens:.2f} tokens"
    elif speed > 1 + EVEN:
        verdict, turn = f"faster than plain decoding ({speed:.2f}×)", f"gives {tokens:.2f} tokens"
    else:
        verdict, turn = f"as fast as plain decoding ({speed:.2f}×)", f"gives {tokens:.2f} tokens"
    words = (
        f"{record.header.title} is {verdict}: a step costs {cost:.2f} plain ones ({_parts(steps, base)}) and {turn}."
    )
    return speed, words


def _parts(steps: Sequence[Step], base: float) -> str:
    """Where a step's time goes, in plain steps."""
    rows = fmean(map(pass_rows, steps))
    verify = fmean(phase_ms(step, "verify") for step in steps)
    draft = fmean(phase_ms(step, "draft") for step in steps)
    rest = fmean(map(step_ms, steps)) - verify - draft
    parts = [f"{verify / base:.2f} for the pass over {rows:.1f} rows"]
    parts += [f"{draft / base:.2f} for drafting"] if draft / base >= 0.005 else []
    parts += [f"{rest / base:.2f} for the rest"] if rest / base >= 0.005 else []
    return ", ".join(parts)


def size_summary(record: LaneRecord) -> str | None:
    """When a lane with `size: auto` drafted how much, and why it drafted nothing where it did not."""
    steps = [step for step in list(record.steps) if step.size is not None]
    if not steps:
        return None
    drafted = [step.size.nodes for step in steps if step.size is not None and step.size.nodes]
    most = max(drafted, default=0)
    how = (
        f"drafts in {len(drafted):,} of {plural(len(steps), 'step')}, {fmean(drafted):.1f} nodes on average, "
        f"{most} at most"
        if drafted
        else f"nothing drafted in {plural(len(steps), 'step')}"
    )
    probes = sum(step.size is not None and step.size.probing for step in steps)
    tried = f" {plural(probes, 'step')} tried drafting out to learn what it is worth." if probes else ""
    return f"Auto size of {record.header.title}: {how}.{_declined(steps)}{tried}"


def _declined(steps: Sequence[Step]) -> str:
    """Why nothing was drafted: the usual reason, with its numbers."""
    idle = [step.size for step in steps if step.size is not None and not step.size.nodes]
    if not idle:
        return ""
    known: list[tuple[Draft, float]] = [
        (size.declined, size.plain_ms) for size in idle if size.declined and size.plain_ms
    ]
    unmade = sum(not size.depth for size in idle)
    parts = [
        f"{plural(count, 'step')} {words}"
        for count, words in ((unmade, "drafted nothing"), (len(idle) - unmade, "drafted but had nothing verified"))
        if count
    ]
    said = f" {' and '.join(parts)}"
    if not known:
        return f"{said}: there was nothing to draft that was worth a wider pass."
    cost = fmean(draft.expected_ms / plain for draft, plain in known)
    gain = fmean(draft.expected_tokens for draft, _ in known)
    return (
        f"{said}, since the best draft would have made a step cost "
        f"{cost:.2f} plain ones for {gain:.2f} tokens expected."
    )
