"""python -m explorer evaluate: acceptance of a drafter on a file of prompts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from explorer import fetch
from explorer.bench import pooled, read_prompts, rows_of
from explorer.cli_lanes import build_shelf, parse_lane
from explorer.cli_output import follow, note, print_table
from explorer.errors import ExplorerError
from explorer.methods import find_method
from explorer.requests import CompareRequest
from explorer.session import Studio
from explorer.trace import Trace


def evaluate(
    prompts: Annotated[Path, typer.Option(help='JSONL, a line {"category", "prompt"} each.')],
    lane: Annotated[str, typer.Option(help="NAME[:key=value,...] of a method with a trained drafter.")],
    drafter: Annotated[Path | None, typer.Option(help="Folder of the drafter; default: the one that ships.")] = None,
    model: Annotated[str, typer.Option(help="A model id of the catalogue, or a folder.")] = fetch.DEFAULT_MODEL.id,
    max_new_tokens: Annotated[int, typer.Option(help="Output tokens at most, 1 to 512.")] = 96,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    dtype: Annotated[str, typer.Option(help="auto, fastest, float32 or bfloat16.")] = "auto",
    write: Annotated[bool, typer.Option(help="Write trees and figures into the drafter's config.json.")] = True,
) -> None:
    """Tokens per target pass by category, acceptance by depth, best static trees; greedy decoding."""
    from explorer.training.judge import acceptance_by_depth, judge, write_measurement  # heavy: only this command

    request = parse_lane(lane)
    kind = find_method(request.method).needs
    if kind is None:
        raise ExplorerError(f"{request.method} has no trained drafter; name a method that has one.")
    questions = read_prompts(prompts)
    named = [] if drafter is None else [f"{kind}={drafter}"]
    studio = Studio(build_shelf(model, named, device, dtype, [request]))
    rows: list[dict[str, Any]] = []
    traces: list[Trace] = []
    for number, question in enumerate(questions, start=1):
        wanted = CompareRequest(prompt=question["prompt"], lanes=[request], max_new_tokens=max_new_tokens)
        comparison = follow(studio, wanted)
        rows += rows_of(comparison, question)
        traces += comparison.lanes
        note(f"{number}/{len(questions)} {question['category']}")
    report = judge(studio.shelf.drafter(kind), studio.shelf.target, traces)
    measured = _measured(lane, rows, max_new_tokens)
    depths = acceptance_by_depth(traces)
    measured["acceptance_by_depth"] = [round(row.rate, 4) for row in depths]
    print_table([["tokens/pass", *measured["by_category"], "all"], [lane, *_texts(measured)]])
    print_table([["depth", "steps", "accepted"], *([str(d.depth), str(d.reached), f"{d.rate:.3f}"] for d in depths)])
    print_table(
        [
            ["drafted on this text", "tokens/pass"],
            ["chain", f"{report.chain_tokens:.2f}"],
            ["best static tree of 25 nodes", f"{report.tree_tokens:.2f}"],
        ]
    )
    if write:
        folder = drafter or fetch.PROJECT / fetch.DEFAULT_MODEL.drafters[kind]
        write_measurement(folder, report, measured, prompts)
        typer.echo(f"Written to {folder / 'config.json'}.")


def _measured(lane: str, rows: list[dict[str, Any]], max_new_tokens: int) -> dict[str, Any]:
    categories = dict.fromkeys(row["category"] for row in rows)
    by_category = {name: round(pooled(row for row in rows if row["category"] == name), 3) for name in categories}
    return {
        "lane": lane,
        "max_new_tokens": max_new_tokens,
        "tokens_per_target_pass": round(pooled(rows), 3),
        "by_category": by_category,
    }


def _texts(measured: dict[str, Any]) -> list[str]:
    return [f"{value:.2f}" for value in (*measured["by_category"].values(), measured["tokens_per_target_pass"])]
