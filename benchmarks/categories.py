"""Tokens per pass and wall-clock speed-up over our own autoregressive lane, by category of prompts."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.common import Json, missing
from explorer.bench import pooled, read_prompts, run_bench
from explorer.requests import LaneRequest
from explorer.session import Studio

PROMPTS = Path(__file__).resolve().parent.parent / "assets" / "prompts" / "bench.jsonl"
BRANCH = {"context_branch": 10}
AUTO = {"size": "auto"}
LANES: tuple[tuple[str, str, Json], ...] = (
    ("draft-model", "draft-model", {}),
    ("prompt-lookup", "prompt-lookup", {}),
    ("jacobi", "jacobi", {}),
    ("lookahead", "lookahead", {}),
    ("medusa", "medusa", {}),
    ("eagle", "eagle", {}),
    ("eagle3", "eagle3", {}),
    ("eagle-branch", "eagle", BRANCH),
    ("eagle3-branch", "eagle3", BRANCH),
    ("draft-model-auto", "draft-model", AUTO),
    ("prompt-lookup-auto", "prompt-lookup", AUTO),
    ("medusa-auto", "medusa", AUTO | BRANCH),
    ("eagle-auto", "eagle", AUTO | BRANCH),
    ("eagle3-auto", "eagle3", AUTO | BRANCH),
)
"""Id, method, parameters. "auto" lanes of drafters have a context branch."""
LANES_AT_ONCE = 7
"""Beside autoregressive, which runs with each group."""


def by_category(
    studio: Studio, tokens: int, *, quick: bool, tell: Callable[[str], None] = lambda text: None
) -> list[Json]:
    """A row a lane and category, and one for all prompts together. quick: one prompt a category."""
    questions = read_prompts(PROMPTS)
    if quick:
        questions = list({question["category"]: question for question in reversed(questions)}.values())
    lanes = [LaneRequest(method=name, params=params, id=lane) for lane, name, params in LANES
             if missing(studio.shelf, name) is None]  # fmt: skip
    results: list[Json] = []
    for start in range(0, len(lanes), LANES_AT_ONCE):
        group = [LaneRequest(method="autoregressive"), *lanes[start : start + LANES_AT_ONCE]]
        measured = run_bench(studio, questions, group, {"max_new_tokens": tokens}, tell)
        results += [
            _row(measured, lane.id or lane.method, category)
            for lane in group[1:]
            for category in [*dict.fromkeys(question["category"] for question in questions), "all"]
        ]
    return results


def _row(measured: Sequence[Json], lane: str, category: str) -> Json:
    chosen = [row for row in measured if category in ("all", row["category"])]
    own = [row for row in chosen if row["lane"] == lane]
    plain = [row for row in chosen if row["lane"] == "autoregressive"]
    each = [_ms_per_token(base) / _ms_per_token(row) for base, row in zip(plain, own, strict=True)]
    return {
        "lane": lane,
        "category": category,
        "tokens_per_pass": pooled(own),
        "speed_up": sum(map(_ms, plain)) / sum(map(_tokens, plain)) / (sum(map(_ms, own)) / sum(map(_tokens, own))),
        "least": min(each),
        "most": max(each),
        "equal": all(row["equal_to_autoregressive"] for row in own),
    }


def _ms(row: Json) -> float:
    return float(row["decode_ms"])


def _tokens(row: Json) -> int:
    return max(int(row["tokens"]) - 1, 1)


def _ms_per_token(row: Json) -> float:
    return max(_ms(row), 1e-6) / _tokens(row)


def verdicts(results: Sequence[Json]) -> Json:
    """The best lane of each category, their median, and the worst of the auto lanes."""
    categories = [name for name in dict.fromkeys(row["category"] for row in results) if name != "all"]
    best = {name: max((row for row in results if row["category"] == name), key=lambda row: row["speed_up"])
            for name in categories}  # fmt: skip
    auto = [row for row in results if row["lane"].endswith("-auto") and row["category"] in categories]
    worst = min(auto, key=lambda row: row["speed_up"], default=None)
    return {
        "best": {name: [row["lane"], row["speed_up"]] for name, row in best.items()},
        "median_of_best": statistics.median(row["speed_up"] for row in best.values()),
        "worst_auto": None if worst is None else [worst["lane"], worst["category"], worst["speed_up"]],
    }


def rows(results: Sequence[Json]) -> list[list[object]]:
    """For the screen: tokens per pass and speed-up in each cell."""
    categories = list(dict.fromkeys(row["category"] for row in results))
    lines: list[list[object]] = [["tokens/pass, speed-up", *categories, "equal"]]
    for lane in dict.fromkeys(row["lane"] for row in results):
        own = {row["category"]: row for row in results if row["lane"] == lane}
        cells = [f"{own[name]['tokens_per_pass']:.2f} {own[name]['speed_up']:.2f}x" for name in categories]
        lines.append([lane, *cells, all(row["equal"] for row in own.values())])
    return lines
