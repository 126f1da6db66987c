"""The command line: the same use cases as the page. Bad input is one line on stderr and exit code 2."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from explorer import cli_evaluate, cli_export, cli_lessons, cli_replay, cli_synthesize, cli_train, doctor, fetch
from explorer.bench import read_prompts, run_bench, table, write_rows
from explorer.cli_lanes import build_shelf, check_out, parse_lane, parse_params, split_names
from explorer.cli_output import follow, note, print_comparison, print_methods, print_table, write_csv
from explorer.csv_tables import csv_text
from explorer.errors import ExplorerError
from explorer.methods import catalogue
from explorer.requests import CompareRequest, LaneRequest
from explorer.session import Studio
from explorer.trace import Comparison
from explorer.trace_io import read_comparison, write

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Watch a language model decode, step by step, under several methods.",
)
app.add_typer(cli_train.app, name="train")
app.command("export")(cli_export.export)
app.command("replay")(cli_replay.replay)
app.command("lessons")(cli_lessons.lessons)
app.command("synthesize")(cli_synthesize.synthesize)
app.command("evaluate")(cli_evaluate.evaluate)

Prompt = Annotated[str, typer.Argument(help="The prompt; - reads it from standard input.")]
MaxNewTokens = Annotated[int, typer.Option(help="Output tokens at most, 1 to 512.")]
Temperature = Annotated[float, typer.Option(help="0 is greedy.")]
TopK = Annotated[int, typer.Option(help="Sampling: keep the k most probable tokens; 0 keeps all.")]
TopP = Annotated[float, typer.Option(help="Sampling: keep the smallest set with this probability.")]
MinP = Annotated[float, typer.Option(help="Sampling: keep tokens with this share of the best one's probability.")]
RepetitionPenalty = Annotated[float, typer.Option(help="Above 1: tokens that were there become less likely.")]
Seed = Annotated[int, typer.Option(help="Same seed, same trace.")]
Model = Annotated[
    str, typer.Option(help="A model id of the catalogue, toy, a folder, or owner/name[@revision] of the hub.")
]
Drafter = Annotated[list[str], typer.Option(help="KIND=FOLDER or KIND=owner/name of a drafter; again for more.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, or spread over all of them and the disk.")]
Dtype = Annotated[str, typer.Option(help="auto, fastest, float32 or bfloat16.")]
Execution = Annotated[str, typer.Option(help="How passes run: auto, eager, static (padded), graphs (CUDA).")]
Raw = Annotated[bool, typer.Option("--raw", help="Feed the prompt without the chat template.")]
Methods = Annotated[str, typer.Option(help="Method names, separated by commas.")]
Lane = Annotated[list[str], typer.Option(help="NAME[:key=value,...]; may be given again.")]
DEFAULT_MODEL_ID = fetch.DEFAULT_MODEL.id


@app.command()
def run(
    prompt: Prompt,
    method: Annotated[str, typer.Option(help="Method name; see the command methods.")],
    out: Annotated[Path, typer.Option(help="Where to write the trace (JSON).")],
    param: Annotated[list[str], typer.Option(help="key=value of the method; may be given again.")] = [],  # noqa: B006
    max_new_tokens: MaxNewTokens = 96,
    temperature: Temperature = 0.0,
    top_k: TopK = 0,
    top_p: TopP = 1.0,
    min_p: MinP = 0.0,
    repetition_penalty: RepetitionPenalty = 1.0,
    seed: Seed = 0,
    model: Model = DEFAULT_MODEL_ID,
    drafter: Drafter = [],  # noqa: B006
    device: Device = "auto",
    dtype: Dtype = "auto",
    execution: Execution = "auto",
    raw: Raw = False,
) -> None:
    """Decode one prompt with one method and write its trace."""
    check_out(out)
    lanes = [LaneRequest(method=method, params=parse_params(param))]
    request = CompareRequest(
        prompt=_read(prompt),
        lanes=lanes,
        max_new_tokens=max_new_tokens,
        raw=raw,
        seed=seed,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
    )
    comparison = _compare(request, build_shelf(model, drafter, device, dtype, lanes, execution))
    write(comparison.lanes[0], out)
    print_comparison(comparison)


@app.command()
def compare(
    prompt: Prompt,
    out: Annotated[Path, typer.Option(help="Where to write the comparison (JSON).")],
    methods: Methods = "",
    lane: Lane = [],  # noqa: B006
    max_new_tokens: MaxNewTokens = 96,
    temperature: Temperature = 0.0,
    top_k: TopK = 0,
    top_p: TopP = 1.0,
    min_p: MinP = 0.0,
    repetition_penalty: RepetitionPenalty = 1.0,
    seed: Seed = 0,
    model: Model = DEFAULT_MODEL_ID,
    drafter: Drafter = [],  # noqa: B006
    device: Device = "auto",
    dtype: Dtype = "auto",
    execution: Execution = "auto",
    raw: Raw = False,
) -> None:
    """Run several lanes on one prompt, print a table and write a comparison file."""
    check_out(out)
    lanes = _lanes(methods, lane)
    request = CompareRequest(
        prompt=_read(prompt),
        lanes=lanes,
        max_new_tokens=max_new_tokens,
        raw=raw,
        seed=seed,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
    )
    comparison = _compare(request, build_shelf(model, drafter, device, dtype, lanes, execution))
    write(comparison, out)
    print_comparison(comparison)


@app.command()
def bench(
    prompts: Annotated[Path, typer.Option(help='JSONL, a line {"category", "prompt"} each.')],
    out: Annotated[Path, typer.Option(help="Where to write the rows (JSON).")],
    methods: Methods = "",
    lane: Lane = [],  # noqa: B006
    max_new_tokens: MaxNewTokens = 96,
    temperature: Temperature = 0.0,
    top_k: TopK = 0,
    top_p: TopP = 1.0,
    min_p: MinP = 0.0,
    repetition_penalty: RepetitionPenalty = 1.0,
    seed: Seed = 0,
    model: Model = DEFAULT_MODEL_ID,
    drafter: Drafter = [],  # noqa: B006
    device: Device = "auto",
    dtype: Dtype = "auto",
    execution: Execution = "auto",
    raw: Raw = False,
) -> None:
    """Run lanes over a file of prompts: pooled tokens per target pass and time, by lane and category."""
    check_out(out)
    lanes = _lanes(methods, lane)
    questions = read_prompts(prompts)
    settings: dict[str, Any] = {"max_new_tokens": max_new_tokens, "raw": raw, "seed": seed}
    settings |= {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    settings |= {"min_p": min_p, "repetition_penalty": repetition_penalty}
    studio = Studio(build_shelf(model, drafter, device, dtype, lanes, execution))
    rows = run_bench(studio, questions, lanes, settings, note)
    write_rows(rows, out)
    print_table(table(rows))


@app.command()
def methods(as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False) -> None:
    """List the methods with their parameters."""
    rows = catalogue()
    if as_json:
        typer.echo(json.dumps(rows, ensure_ascii=False, indent=2))
    else:
        print_methods(rows)


@app.command()
def inspect(
    file: Annotated[Path, typer.Argument(help="A trace or comparison file.")],
    csv: Annotated[str, typer.Option(help="Print CSV instead: lanes (a row a lane) or steps (a row a step).")] = "",
) -> None:
    """Check a recorded file and print its table."""
    comparison = read_comparison(file)
    if csv:
        write_csv(csv_text(comparison, csv))
    else:
        print_comparison(comparison)


@app.command("fetch")
def fetch_model() -> None:
    """Get the default model, unless it is there."""
    folder = fetch.ensure_default_model(fetch.printer(sys.stderr.write))
    typer.echo(str(folder))


@app.command("doctor")
def check_machine(
    network: Annotated[bool, typer.Option("--network", help="Also try what can be reached.")] = False,
) -> None:
    """Say what this machine has: versions, device, memory, model files."""
    for line in doctor.lines(doctor.report(network=network)):
        typer.echo(line)


def _lanes(methods: str, lanes: list[str]) -> list[LaneRequest]:
    wanted = [LaneRequest(method=name) for name in split_names(methods)]
    wanted += [parse_lane(text) for text in lanes]
    if not wanted:
        raise ExplorerError("No lanes were asked for; name some with --methods a,b or --lane NAME.")
    return wanted


def _compare(request: CompareRequest, shelf: Any) -> Comparison:
    return follow(Studio(shelf), request)


def _read(prompt: str) -> str:
    if prompt != "-":
        return prompt
    return sys.stdin.buffer.read().decode("utf-8", "replace")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        result = app(args=given or ["--help"], standalone_mode=False, prog_name="python -m explorer")
    except ExplorerError as error:
        return _complain(str(error))
    except typer.Abort:
        return _complain("Interrupted.", 130)
    except KeyboardInterrupt:
        return _complain("Interrupted.", 130)
    except Exception as error:
        message = getattr(error, "format_message", None)  # what typer raises for wrong options
        if message is None:
            raise
        return _complain(" ".join(str(message()).split()) or "Say --help for the commands.")
    if result == 130:  # typer has caught a KeyboardInterrupt
        return _complain("Interrupted.", 130)
    return result if isinstance(result, int) else 0


def _complain(sentence: str, code: int = 2) -> int:
    print(sentence, file=sys.stderr)
    return code
