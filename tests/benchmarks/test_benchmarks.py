"""The benchmark's own arithmetic, and each of its parts once on the toy. No time is asserted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import categories, lanes, passes, peers
from benchmarks.common import interleave, loaded, ratios, summary, table
from benchmarks.engine import main
from explorer.session import Studio


@pytest.fixture(scope="module")
def toy_studio() -> Studio:
    return loaded("float32", device="cpu", model="toy")


def test_tasks_take_turns_after_a_round_that_does_not_count() -> None:
    told: list[str] = []
    values = interleave(
        {"a": lambda: told.append("a") or 1.0, "b": lambda: told.append("b")},  # type: ignore[func-returns-value]
        rounds=2,
    )
    assert told == ["a", "b"] * 3
    assert values["a"] == [1.0, 1.0]
    assert len(values["b"]) == 2


def test_ratios_are_of_runs_of_one_round() -> None:
    assert ratios([2.0, 9.0, 4.0], [1.0, 3.0, 4.0]) == {"median": 2.0, "least": 1.0, "most": 3.0, "runs": 3}
    assert summary([3.0]) == {"median": 3.0, "least": 3.0, "most": 3.0, "runs": 1}


def test_a_table_lines_up() -> None:
    assert table([["name", "ms"], ["x", 1.23456]]) == "name  ms  \nx     1.23"


def test_the_floor_rises_with_context_and_with_rows_that_must_be_computed(toy_studio: Studio) -> None:
    target = toy_studio.shelf.target
    read_bound = [passes.floor_seconds(target, 1, context, 1e9, 1e15) for context in (128, 900)]
    computed = [passes.floor_seconds(target, rows, 128, 1e15, 1e9) for rows in (1, 64)]
    assert read_bound[0] < read_bound[1]
    assert computed[1] > 60 * computed[0]


def test_the_same_tokens_as_generate_in_plain_and_lookup_modes(toy_studio: Studio) -> None:
    found = peers.against_generate(toy_studio.shelf, tokens=8, rounds=1)
    assert {each["mode"] for each in found} == {"plain", "prompt lookup"}
    assert all(each["same_output"] and each["tokens"]["ours"] == 8 for each in found)
    assert len(peers.rows(found)) == len(found) + 1


def test_lanes_are_priced(toy_studio: Studio) -> None:
    found = lanes.each_lane(toy_studio.shelf, tokens=6, rounds=1)
    by_name = {each["method"]: each for each in found}
    assert by_name["medusa"]["draft_pass_ms"] > 0.0 == by_name["autoregressive"]["draft_pass_ms"]
    assert all(each["recording_share"]["runs"] == 1 and each["recording_share"]["median"] > 0.0 for each in found)
    assert by_name["jacobi"]["cache_bytes"] > by_name["autoregressive"]["cache_bytes"] > 0
    assert len(lanes.rows(found)) == len(found) + 1


def row(lane: str, category: str, tokens: int, decode_ms: float) -> dict[str, Any]:
    return {
        "lane": lane, "category": category, "prompt": "", "tokens": tokens, "target_passes": tokens - 1,
        "last_step_tokens": 1, "decode_ms": decode_ms, "equal_to_autoregressive": True,
    }  # fmt: skip


def test_speed_ups_are_over_the_plain_lane_of_the_same_prompts() -> None:
    measured = [
        row("autoregressive", "code", 11, 100.0), row("eagle-auto", "code", 11, 50.0),
        row("autoregressive", "chat", 11, 100.0), row("eagle-auto", "chat", 11, 125.0),
    ]  # fmt: skip
    found = [categories._row(measured, "eagle-auto", category) for category in ("code", "chat", "all")]
    assert [each["speed_up"] for each in found] == pytest.approx([2.0, 0.8, 200 / 175])
    verdicts = categories.verdicts(found)
    assert verdicts["worst_auto"] == ["eagle-auto", "chat", 0.8]
    assert verdicts["median_of_best"] == pytest.approx(1.4)
    assert categories.rows(found)[1][0] == "eagle-auto"


def test_the_whole_writes_json_part_by_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "engine.json"
    asked = ["--model", "toy", "--quick", "--tokens", "6", "--only", "runs", "--out", str(out)]
    assert main(asked) == 0
    found = json.loads(out.read_text(encoding="utf-8"))
    assert {"processor", "threads", "torch", "transformers", "dtype"} <= set(found["machine"])
    assert found["runs"]["runs"] == 20
    assert "resident memory after 20 runs" in capsys.readouterr().out


def test_an_unknown_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "weather"]) == 2
    assert "there is peers, passes, lanes, categories, runs" in capsys.readouterr().err
