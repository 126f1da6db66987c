"""CSV says what the records say, and no spreadsheet runs any of it."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.cli import main
from explorer.csv_tables import FORMULA, TABLES, csv_text
from explorer.errors import ExplorerError
from explorer.metrics import drafts_kept, step_ms
from explorer.trace import Comparison, Trace
from explorer.trace_io import read_comparison
from tests.traces import make_comparison

DATA = Path(__file__).parent / "data"
DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "trace.md"


def rows(comparison: Comparison, what: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(csv_text(comparison, what), newline="")))


def with_texts(text: str) -> Comparison:
    """A comparison whose every text is this one."""
    made = make_comparison()
    lanes = []
    for number, trace in enumerate(made.lanes):
        values = trace.model_dump()
        values |= {"lane": f"{text}{number}", "method": text, "params": {text or "x": text, "acceptance_rule": text}}
        values["model"] |= {"id": text, "dtype": text, "device": text}
        for token in values["tokens"]:
            token["text"] = text
        for step in values["steps"]:
            for span in step["spans"]:
                span["phase"] = text + span["phase"]
        lanes.append(Trace.model_validate(values))
    return Comparison(lanes=tuple(lanes))


def test_a_row_a_lane_with_its_totals() -> None:
    comparison = read_comparison(DATA / "comparison_v1.json")
    table = rows(comparison, "lanes")
    assert [row["lane"] for row in table] == [trace.lane for trace in comparison.lanes]
    for row, trace in zip(table, comparison.lanes, strict=True):
        assert int(row["output_tokens"]) == trace.totals.output_tokens
        assert float(row["decode_ms"]) == pytest.approx(trace.totals.decode_ms)
        assert float(row["tokens_per_target_pass"]) == pytest.approx(trace.totals.tokens_per_target_pass, abs=1e-6)
        check = comparison.lossless.get(trace.lane)
        assert row["same_tokens"] == ("" if check is None else str(check.equal).lower())


def test_a_row_a_step_that_adds_up_to_the_lane() -> None:
    comparison = make_comparison()
    table = rows(comparison, "steps")
    for trace in comparison.lanes:
        mine = [row for row in table if row["lane"] == trace.lane]
        assert [int(row["step"]) for row in mine] == [step.index + 1 for step in trace.steps]
        assert [int(row["accepted_drafts"]) for row in mine] == [drafts_kept(step) for step in trace.steps]
        assert [float(row["step_ms"]) for row in mine] == [pytest.approx(step_ms(step)) for step in trace.steps]
        assert int(mine[-1]["output_tokens"]) == len(trace.tokens)
        assert sum(int(row["committed_tokens"]) for row in mine) == sum(len(step.committed) for step in trace.steps)
        phases = [name for name in mine[0] if name.endswith("_ms") and name not in ("clock_ms", "step_ms")]
        for row in mine:
            assert sum(float(row[name]) for name in phases) == pytest.approx(float(row["step_ms"]), abs=1e-3)


@pytest.mark.parametrize("what", TABLES)
@given(text=st.text(max_size=12) | st.sampled_from(["=1+1", "+1", "-1", "@A1", "\t=1", "\r", '"', ",", "\n", "a\nb"]))
def test_no_cell_is_a_formula_and_none_moves_another(what: str, text: str) -> None:
    comparison = with_texts(text)
    written = csv_text(comparison, what)
    written.encode()
    table = list(csv.reader(io.StringIO(written, newline="")))
    assert len({len(row) for row in table}) == 1
    for cell in (cell for row in table for cell in row):
        assert "\0" not in cell
        if cell.startswith(FORMULA):
            float(cell)  # a negative number is one


@given(st.text(max_size=20))
def test_any_other_name_of_a_table_is_refused(what: str) -> None:
    if what not in TABLES:
        with pytest.raises(ExplorerError, match="there are lanes and steps"):
            csv_text(make_comparison(), what)


@pytest.mark.parametrize("what", TABLES)
def test_the_columns_are_documented(what: str) -> None:
    document = DOCUMENT.read_text(encoding="utf-8")
    for column in rows(read_comparison(DATA / "comparison_v1.json"), what)[0]:
        known = column.removesuffix("_ms") in ("draft", "verify", "accept", "commit", "drafter_prefill")
        assert known or f"`{column}`" in document, column


@pytest.mark.parametrize("what", TABLES)
def test_the_command_line_prints_the_same(capfdbinary: Any, what: str) -> None:
    path = DATA / "comparison_v1.json"
    assert main(["inspect", str(path), "--csv", what]) == 0
    assert capfdbinary.readouterr().out.decode() == csv_text(read_comparison(path), what)
    assert main(["inspect", str(path), "--csv", "all"]) == 2
