"""The command line: the same use cases; bad input is one line on stderr and exit code 2, never a traceback."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from explorer.cli import main
from explorer.methods import catalogue
from explorer.trace_io import read_comparison

DATA = Path(__file__).parent / "data"
TOY = ["--model", "toy", "--device", "cpu", "--dtype", "float32"]


def run_ok(*arguments: str) -> None:
    assert main(list(arguments)) == 0


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line that bad input gets."""
    capsys.readouterr()
    assert main(list(arguments)) == 2
    progress = ("Loading the model.", "Loading the drafters.", "Warming up.")
    lines = [line for line in capsys.readouterr().err.splitlines() if line not in progress]
    assert len(lines) == 1
    assert "Traceback" not in lines[0]
    assert 10 < len(lines[0]) < 600
    return lines[0]


def test_run_writes_one_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "t.json"
    run_ok("run", "the rain", "--method", "eagle", "--param", "nodes=7", "--param", "depth=2", *TOY,
           "--max-new-tokens", "9", "--seed", "3", "--temperature", "0.8", "--top-k", "9", "--top-p", "0.9", "--raw",
           "--out", str(out))  # fmt: skip
    data = json.loads(out.read_text(encoding="utf-8"))
    assert data["schema_version"] == 1
    assert (data["method"], data["prompt"]["text"], data["prompt"]["template_applied"]) == ("eagle", "the rain", False)
    assert {"nodes": 7, "depth": 2, "seed": 3, "temperature": 0.8, "top_p": 0.9}.items() <= data["params"].items()
    assert data["params"]["sampling"]["top_k"] == 9
    assert len(data["tokens"]) <= 9
    assert "eagle" in capsys.readouterr().out


def test_compare_writes_a_comparison_and_prints_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "c.json"
    run_ok("compare", "the rain", "--methods", "autoregressive, medusa", "--lane", "lookahead:window=3,ngram=3",
           "--lane", "medusa:nodes=4", *TOY, "--max-new-tokens", "8", "--out", str(out))  # fmt: skip
    comparison = read_comparison(out)
    names = ["autoregressive", "medusa", "lookahead", "medusa-2"]
    assert [trace.lane for trace in comparison.lanes] == names
    assert comparison.lanes[2].params["window"] == 3
    assert all(check.equal for check in comparison.lossless.values())
    table = capsys.readouterr().out.splitlines()
    assert table[0].split()[:2] == ["lane", "tokens"]
    assert [line.split()[0] for line in table[1:]] == names
    assert [line.rstrip().endswith(("baseline", "same tokens")) for line in table[1:]] == [True] * 4


def test_a_single_lane_is_its_own_trace_file(tmp_path: Path) -> None:
    out = tmp_path / "t.json"
    run_ok("run", "x", "--method", "autoregressive", *TOY, "--max-new-tokens", "1", "--out", str(out))
    comparison = read_comparison(out)
    assert [(trace.lane, trace.steps) for trace in comparison.lanes] == [("autoregressive", ())]


def test_methods_as_json_is_the_catalogue(capsys: pytest.CaptureFixture[str]) -> None:
    run_ok("methods", "--json")
    rows = json.loads(capsys.readouterr().out)
    assert rows == json.loads(json.dumps(catalogue()))
    for row in rows:
        assert {"name", "title", "paper", "lossless", "needs", "parameters"} <= set(row)
    run_ok("methods")
    text = capsys.readouterr().out
    for row in rows:
        assert f"{row['name']}: " in text
        assert all(f"{field['name']}={field['default']}" in text for field in row["parameters"])


def test_inspect_prints_the_table_of_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    run_ok("inspect", str(DATA / "comparison_v1.json"))
    table = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in table[1:]] == ["autoregressive", "medusa", "eagle", "lookahead"]


def test_bench_writes_rows_and_prints_pooled_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompts, out = tmp_path / "p.jsonl", tmp_path / "b.json"
    prompts.write_text('{"category": "a", "prompt": "x y"}\n{"category": "b", "prompt": "z"}\n', encoding="utf-8")
    run_ok("bench", "--prompts", str(prompts), "--methods", "autoregressive,eagle", *TOY,
           "--max-new-tokens", "5", "--out", str(out))  # fmt: skip
    rows = json.loads(out.read_text(encoding="utf-8"))["rows"]
    assert [(row["lane"], row["category"]) for row in rows] == [
        ("autoregressive", "a"), ("eagle", "a"), ("autoregressive", "b"), ("eagle", "b"),
    ]  # fmt: skip
    captured = capsys.readouterr()
    assert captured.out.splitlines()[0].split()[:3] == ["tokens/pass", "a", "b"]
    assert captured.err == "", "progress is for a terminal"


def test_a_prompt_may_come_from_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Input:
        buffer = io.BytesIO("naïve \U0001f642".encode() + b"\xff")

    monkeypatch.setattr(sys, "stdin", Input())
    out = tmp_path / "t.json"
    run_ok("run", "-", "--method", "autoregressive", *TOY, "--max-new-tokens", "2", "--raw", "--out", str(out))
    assert read_comparison(out).lanes[0].prompt.text == "naïve 🙂\ufffd"


def run_arguments(**changes: str | None) -> list[str]:
    """A good `run` with some options changed; None leaves one out."""
    options = {"method": "medusa", "model": "toy", "device": "cpu", "out": "t.json", "max-new-tokens": "3"}
    return [part for name, value in (options | changes).items() if value is not None for part in (f"--{name}", value)]


BAD_RUNS: list[tuple[str, dict[str, str | None], str]] = [
    ("", {}, "The prompt is empty; type some text first."),
    (" \n", {}, "The prompt is empty; type some text first."),
    ("x" * 200_000, {}, "The prompt has 200,000 characters; at most 100,000 are allowed."),
    ("word " * 1500, {}, "the model's context of 1,024 takes at most 1,023"),
    ("x", {"max-new-tokens": "0"}, "Max new tokens is 0, but must be a whole number from 1 to 512."),
    ("x", {"max-new-tokens": "-5"}, "Max new tokens is -5, but must be a whole number from 1 to 512."),
    ("x", {"max-new-tokens": "513"}, "Max new tokens is 513, but must be a whole number from 1 to 512."),
    ("x", {"max-new-tokens": "many"}, "'--max-new-tokens'"),
    ("x", {"max-new-tokens": "9" * 5000}, "'--max-new-tokens'"),
    ("x", {"temperature": "nan"}, "temperature is nan, but must be from 0 to 5."),
    ("x", {"execution": "fast"}, "There is no execution 'fast'; use auto, eager, static or graphs."),
    ("x", {"execution": "graphs"}, "CUDA graphs need a CUDA device; use execution auto, eager or static."),
    ("x", {"temperature": "-1"}, "temperature is -1.0, but must be from 0 to 5."),
    ("x", {"top-k": "-1"}, "top_k is -1, but must be from 0 to 1000."),
    ("x", {"top-p": "0"}, "top_p is 0.0, but must be above 0, at most 1."),
    ("x", {"seed": "-1"}, "seed is -1, but must be from 0 to 2147483647."),
    (
        "x",
        {"method": "hydra"},
        "There is no method 'hydra'; there is autoregressive, draft-model, prompt-lookup, jacobi, lookahead, medusa, ",
    ),
    ("x", {"param": "nodes=0"}, "Medusa: nodes is '0', but must be a whole number from 1 to 63."),
    ("x", {"param": "nodes=x"}, "Medusa: nodes is 'x', but must be a whole number from 1 to 63."),
    (
        "x",
        {"param": "leaves=3"},
        "Medusa has no parameter 'leaves'; it has: tree, nodes, ",
    ),
    ("x", {"param": "nodes"}, "'nodes' is not a parameter; write key=value."),
    ("x", {"param": "=3"}, "'=3' is not a parameter; write key=value."),
    ("x", {"param": "tree=oak"}, "Medusa: tree is 'oak', but must be one of auto, mc_sim_7b_63, vicuna_7b_stage2, "),
    ("x", {"model": "gpt-9"}, "There is no model 'gpt-9'; on offer: smollm2-135m-instruct"),
    ("x", {"device": "abacus"}, "auto, cpu, cuda or spread"),
    ("x", {"dtype": "int3"}, "use auto, fastest, float32 or bfloat16"),
    ("x", {"drafter": "medusa=nowhere"}, "There is no drafter folder nowhere."),
    ("x", {"out": None}, "Missing option '--out'"),
    ("x", {"method": None}, "Missing option '--method'"),
    ("x", {"colour": "red"}, "No such option"),
]


@pytest.mark.parametrize(("prompt", "changes", "message"), BAD_RUNS, ids=range(len(BAD_RUNS)))
def test_bad_input_is_one_line_and_code_two(
    prompt: str, changes: dict[str, str | None], message: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert message in complaint(capsys, "run", prompt, *run_arguments(**changes))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("methods", ["", ",", " , ,"])
def test_no_lanes_are_refused(methods: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = complaint(capsys, "compare", "x", "--methods", methods, *TOY, "--out", "c.json")
    assert said == "No lanes were asked for; name some with --methods a,b or --lane NAME."


@pytest.mark.parametrize(
    ("lane", "message"),
    [
        ("medusa:nodes", "'nodes' is not a parameter"),
        ("medusa:nodes=0", "must be a whole number from 1 to 63"),
        ("medusa:nodes=3,nodes=4", "'nodes' is given twice"),
        (":nodes=3", "There is no method ''"),
        ("lookahead:window=3;ngram=4", "window W is '3;ngram=4'"),
    ],
)
def test_bad_lanes_are_refused(lane: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in complaint(capsys, "compare", "x", "--lane", lane, *TOY, "--out", "c.json")


def test_too_many_lanes_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    names = ",".join(["autoregressive"] * 9)
    assert "choose 1 to 8" in complaint(capsys, "compare", "x", "--methods", names, *TOY, "--out", "c.json")


def test_a_result_that_cannot_be_written_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "missing" / "t.json"
    capsys.readouterr()
    assert main(["run", "x", *run_arguments(out=str(out))]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1, "told before anything ran"
    assert lines[0].endswith("cannot be written: name a file in a folder that exists.")


def broken_files() -> list[tuple[str, bytes, str]]:
    whole = (DATA / "trace_v1.json").read_bytes()
    later = json.loads(whole) | {"schema_version": 2}
    return [
        ("truncated", whole[: len(whole) // 2], "is not valid JSON; was the download cut short?"),
        ("no trace", b'{"name": "x"}', "it has no schema_version"),
        ("other version", json.dumps(later).encode(), "has schema version 2; this program reads version 1."),
        ("oversized", b" " * (32 * 2**20 + 1), "a trace file may have 32 at most."),
        ("binary", b"\x89PNG\r\n\x1a\n" * 9, "is not valid JSON"),
    ]


@pytest.mark.parametrize(
    ("kind", "content", "message"), broken_files(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_broken_files_are_one_line(
    kind: str, content: bytes, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"{kind}.json"
    path.write_bytes(content)
    assert message in complaint(capsys, "inspect", str(path))


def test_a_missing_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "No such file" in complaint(capsys, "inspect", str(tmp_path / "missing.json"))
    arguments = ["--prompts", str(tmp_path / "missing.jsonl"), "--methods", "eagle", *TOY, "--out", "b.json"]
    assert "cannot be read" in complaint(capsys, "bench", *arguments)


def test_an_unknown_command_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert "nonsense" in complaint(capsys, "nonsense")


def test_a_missing_argument_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Missing argument" in complaint(capsys, "run", "--method", "eagle", "--out", "t.json")


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["train", "--help"]])
def test_help_is_no_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    assert "Usage: python -m explorer" in capsys.readouterr().out


def test_a_model_folder_without_a_model_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = complaint(capsys, "run", "x", *run_arguments(model=str(tmp_path), method="autoregressive"))
    assert said == f"{tmp_path} holds no model: config.json is missing."


def test_a_drafter_of_a_kind_that_must_be_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--methods", "medusa,eagle", "--drafter", str(tmp_path), *TOY, "--out", "c.json"]
    assert complaint(capsys, "compare", "x", *arguments).startswith("Say which kind of drafter")


def test_the_program_itself_exits_with_two_and_without_a_traceback() -> None:
    command = [sys.executable, "-m", "explorer", "inspect", "missing.json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent.parent, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == "missing.json cannot be read: No such file or directory.\n"


def test_an_interrupt_ends_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("explorer.cli.read_comparison", interrupted)
    assert main(["inspect", "x.json"]) == 130
    assert capsys.readouterr().err == "Interrupted.\n"
