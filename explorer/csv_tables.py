"""The numbers of a comparison as CSV: a row a lane, or a row a step. docs/trace.md says what the columns mean.

For spreadsheets, which run what looks like a formula: such a text gets an apostrophe in front.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable
from typing import Any

from explorer.errors import ExplorerError, brief
from explorer.methods import METHODS
from explorer.metrics import baseline_of, drafts_kept, speedup, step_ms
from explorer.trace import Branch, Comparison, Step, Trace

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""What a spreadsheet reads as the start of a formula; the wide forms are read like the plain ones in some."""

SETTINGS = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed")
OF_THE_RUN = frozenset({*SETTINGS, "sampling", "acceptance_rule", "max_new_tokens", "costs"})

BYTE_ORDER_MARK = "\ufeff"
"""In front of a file that is downloaded: without it Excel takes the file for the machine's own old encoding."""

Row = dict[str, Any]


def csv_text(comparison: Comparison, what: str) -> str:
    """The table called `what`, lanes or steps, as the text of a file. ExplorerError where there is no such table."""
    build = TABLES.get(what)
    if build is None:
        raise ExplorerError(f"There is no table {brief(what)}; there are {' and '.join(TABLES)}.")
    rows = list(build(comparison))
    columns = list(dict.fromkeys(name for row in rows for name in row))
    out = io.StringIO()
    writer = csv.writer(out)  # its own line ends: with others it leaves a lone carriage return unquoted
    writer.writerow(map(_cell, columns))
    writer.writerows([_cell(row.get(name)) for name in columns] for row in rows)
    return out.getvalue()


def _cell(value: Any) -> Any:
    """Numbers as they are, truth in lower case, nothing where nothing is known, and texts that no program runs."""
    if value is None or isinstance(value, bool):
        return "" if value is None else str(value).lower()
    if isinstance(value, int | float):
        return round(value, 6)
    text = "".join(_printable(char) for char in str(value))
    return f"'{text}" if text.startswith(FORMULA) else text


def _printable(char: str) -> str:
    """A NUL ends a text in some readers, and half of a surrogate pair has no UTF-8 form."""
    return "\ufffd" if char == "\0" or "\ud800" <= char <= "\udfff" else char


def lane_rows(comparison: Comparison) -> Iterable[Row]:
    """What was asked of each lane, and its totals."""
    reference = baseline_of(comparison.lanes)
    for trace in comparison.lanes:
        check = comparison.lossless.get(trace.lane)
        yield {
            "lane": trace.lane,
            "method": trace.method,
            **_asked(trace),
            **(_branch(trace.branch) if trace.branch else {}),
            "stop_reason": trace.stop_reason,
            **trace.totals.model_dump(include=set(type(trace.totals).model_fields)),
            "speedup": speedup(reference, trace) if reference else None,
            "same_tokens": check.equal if check else None,
            "first_difference": check.first_difference if check else None,
            "margin_there": check.margin if check else None,
        }


def _branch(branch: Branch) -> Row:
    step = None if branch.step is None else branch.step + 1
    return {"branch": branch.kind, "branch_of": branch.lane, "branch_step": step}


def _asked(trace: Trace) -> Row:
    sampling = trace.params.get("sampling")
    settings = {**trace.params, **(sampling if isinstance(sampling, dict) else {})}
    method = next((each for each in METHODS if each.name == trace.method), None)
    # a method may have a parameter of the same name as a setting, as EAGLE has a top_k
    names = [*method.Params.model_fields] if method else [name for name in trace.params if name not in OF_THE_RUN]
    return {
        "params": " ".join(f"{name}={trace.params[name]}" for name in names if name in trace.params),
        "acceptance_rule": trace.params.get("acceptance_rule"),
        "max_new_tokens": trace.params.get("max_new_tokens"),
        **{name: settings.get(name) for name in SETTINGS},
        "prompt_tokens": len(trace.prompt.token_ids),
        "model": trace.model.id.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1],
        "dtype": trace.model.dtype,
        "device": trace.model.device,
    }


def step_rows(comparison: Comparison) -> Iterable[Row]:
    """One row a step of each lane, in the order of the lanes."""
    phases = list(
        dict.fromkeys(span.phase for trace in comparison.lanes for step in trace.steps for span in step.spans)
    )
    for trace in comparison.lanes:
        texts: dict[int | None, str] = {}
        for token in trace.tokens:
            texts[token.step] = texts.get(token.step, "") + token.text
        total = sum(token.step is None for token in trace.tokens)
        for step in trace.steps:
            total += len(step.committed)
            yield _step_row(trace, step, total, texts.get(step.index, ""), phases)


def _step_row(trace: Trace, step: Step, total: int, text: str, phases: Iterable[str]) -> Row:
    row = {
        "lane": trace.lane,
        "method": trace.method,
        "step": step.index + 1,
        "drafted_nodes": len(step.nodes) - 1,
        "draft_depth": max(node.depth for node in step.nodes),
        "accepted_drafts": drafts_kept(step),
        "committed_tokens": len(step.committed),
        "output_tokens": total,
        "cache_length": step.cache_length,
        "next_token_probability": step.next_token.probability,
        "next_token_margin": step.next_token.margin,
        "clock_ms": max((span.start_ms + span.duration_ms for span in step.spans), default=None),
        "step_ms": step_ms(step),
    }
    for phase in phases:
        row.setdefault(f"{phase.replace('-', '_')}_ms", sum(s.duration_ms for s in step.spans if s.phase == phase))
    return {**row, "text": text}


TABLES: dict[str, Callable[[Comparison], Iterable[Row]]] = {"lanes": lane_rows, "steps": step_rows}
"""By name, for page and command line."""
