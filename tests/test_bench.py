"""Rows over a file of prompts: counts are pooled as defined, times are ratios, bad files get one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from explorer.bench import Question, pooled, read_prompts, rows_of, run_bench, table, write_rows
from explorer.errors import ExplorerError, brief
from explorer.metrics import pooled_tokens_per_pass
from explorer.requests import LaneRequest
from explorer.session import Studio
from tests.traces import make_comparison

QUESTIONS = [
    Question(category="loops", prompt="one two one two"),
    Question(category="loops", prompt="a b a b"),
    Question(category="rain", prompt="the rain"),
]
LANES = [LaneRequest(method="autoregressive"), LaneRequest(method="medusa")]


@pytest.fixture(scope="module")
def rows(studio: Studio) -> list[dict[str, Any]]:
    told: list[str] = []
    made = run_bench(studio, QUESTIONS, LANES, {"max_new_tokens": 16, "raw": True}, told.append)
    assert told == ["1/3 loops", "2/3 loops", "3/3 rain"]
    return made


def test_a_row_a_lane_and_prompt(rows: list[dict[str, Any]]) -> None:
    assert [(row["lane"], row["prompt"]) for row in rows] == [
        (lane.method, question["prompt"]) for question in QUESTIONS for lane in LANES
    ]
    for row in rows:
        assert set(row) == {
            "lane", "category", "prompt", "tokens", "target_passes", "last_step_tokens", "decode_ms",
            "equal_to_autoregressive",
        }  # fmt: skip
        assert row["tokens"] == 16
        assert row["equal_to_autoregressive"] is True
        assert row["decode_ms"] > 0
    assert all(row["target_passes"] == 15 and row["last_step_tokens"] == 1 for row in rows[::2])


def test_plain_decoding_pools_to_exactly_one(rows: list[dict[str, Any]]) -> None:
    assert pooled(row for row in rows if row["lane"] == "autoregressive") == 1.0
    assert pooled(row for row in rows if row["lane"] == "medusa") > 1.0


def test_pooling_rows_is_pooling_traces() -> None:
    comparison = make_comparison()
    for trace in comparison.lanes:
        own = [row for row in rows_of(comparison, QUESTIONS[0]) if row["lane"] == trace.lane]
        assert pooled(own) == pytest.approx(pooled_tokens_per_pass([trace]))


def test_runs_of_no_or_one_pass_pool_to_nothing() -> None:
    row = {"tokens": 1, "target_passes": 0, "last_step_tokens": 0}
    assert (
        pooled([row]) == pooled([row | {"tokens": 3, "target_passes": 1, "last_step_tokens": 2}]) == pooled([]) == 0.0
    )


def test_sampled_lanes_are_not_called_equal(studio: Studio) -> None:
    settings = {"max_new_tokens": 6, "temperature": 1.0}
    made = run_bench(studio, QUESTIONS[:1], LANES, settings)
    assert [row["equal_to_autoregressive"] for row in made] == [True, None]


def test_the_table_has_a_column_a_category(rows: list[dict[str, Any]]) -> None:
    head, *lines = table(rows)
    assert head == ["tokens/pass", "loops", "rain", "all", "speed vs autoregressive"]
    assert [line[0] for line in lines] == ["autoregressive", "medusa"]
    assert lines[0][1:] == ["1.00", "1.00", "1.00", "1.00x"]
    assert all(len(line) == 5 for line in lines)


def test_a_prompt_that_is_refused_ends_the_bench(studio: Studio) -> None:
    with pytest.raises(ExplorerError, match="The prompt is empty"):
        run_bench(studio, [Question(category="x", prompt=" ")], LANES, {})


def test_rows_are_written_as_json(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    write_rows(rows, tmp_path / "bench.json")
    assert json.loads((tmp_path / "bench.json").read_text(encoding="utf-8")) == {"rows": rows}
    with pytest.raises(ExplorerError, match="cannot be written"):
        write_rows(rows, tmp_path / "missing" / "bench.json")


def test_prompts_are_read_with_blank_lines_between(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(
        '{"category": "a", "prompt": "é🙂", "more": 1}\n\n  \n{"category": "b", "prompt": "x"}\n', encoding="utf-8"
    )
    assert read_prompts(path) == [{"category": "a", "prompt": "é🙂"}, {"category": "b", "prompt": "x"}]


def test_a_line_separator_inside_a_prompt_does_not_end_the_line(tmp_path: Path) -> None:
    """JSON may hold U+2028 or U+0085 as they are; only a line feed ends a line of JSONL."""
    path = tmp_path / "p.jsonl"
    text = "one\u2028two\x85three"
    path.write_text(json.dumps({"category": "a", "prompt": text}, ensure_ascii=False) + "\n", encoding="utf-8")
    assert read_prompts(path) == [{"category": "a", "prompt": text}]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "holds no prompts"),
        (b"\n \n", "holds no prompts"),
        (b"nonsense\n", "line 1: a JSON object"),
        (b'{"category": "a", "prompt": "x"}\n{"category": "a"}\n', "line 2: a JSON object"),
        (b'["a", "b"]\n', "line 1: a JSON object"),
        (b"3\n", "line 1: a JSON object"),
        (b"null\n", "line 1: a JSON object"),
        (b"\xff\xfe", "cannot be read"),
        (b"[" * 100_000 + b"\n", "line 1: a JSON object"),
        (b'{"category": "a", "prompt": ' + b"9" * 5000 + b"}\n", "line 1: a JSON object"),
        (b'{"category": "a", "prompt": null}\n', "line 1: a JSON object"),
        (b'{"category": "a", "prompt": ["x"]}\n', "line 1: a JSON object"),
    ],
    ids=brief,
)
def test_bad_prompt_files_are_refused(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_bytes(content)
    with pytest.raises(ExplorerError, match=message) as caught:
        read_prompts(path)
    assert "\n" not in str(caught.value)


def test_a_missing_prompt_file_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.jsonl", tmp_path):
        with pytest.raises(ExplorerError, match="cannot be read"):
            read_prompts(path)
