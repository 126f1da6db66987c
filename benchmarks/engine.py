"""Everything about speed, in one process: interleaved runs, medians and ratios with their spread.

python -m benchmarks.engine [--quick] [--dtype float32] [--tokens 96] [--rounds 5] [--only peers,passes]
                            [--out out/engine.json]

The parts: peers (against `generate`), passes (against the floor), lanes (recording, memory, draft passes),
categories (tokens per pass and speed-up), runs (a hundred in a row). A machine that does other work meanwhile makes
ratios noisy and times wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks import categories, lanes, passes, peers
from benchmarks.common import Json, loaded, machine, table
from explorer.errors import ExplorerError
from explorer.session import Studio

PARTS = ("peers", "passes", "lanes", "categories", "runs")


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, write. 2 where something is missing, said in one sentence."""
    asked = _parser().parse_args(arguments)
    wanted = asked.only.split(",") if asked.only else list(PARTS)
    if strange := [part for part in wanted if part not in PARTS]:
        print(f"There is no part {strange[0]!r}; there is {', '.join(PARTS)}.", file=sys.stderr)
        return 2
    try:
        studio = loaded(asked.dtype, model=asked.model)
    except ExplorerError as error:
        print(error, file=sys.stderr)
        return 2
    result: Json = {"machine": machine(studio.shelf), "quick": asked.quick}
    for part in wanted:
        result[part] = _measures(studio, asked)[part]()
        asked.out.parent.mkdir(parents=True, exist_ok=True)
        asked.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--model", default=None, help="the default model, or toy for a trial")
    parser.add_argument("--only", default="", help=", ".join(PARTS))
    parser.add_argument("--quick", action="store_true", help="fewer rounds, prompts and runs: a look, not a result")
    parser.add_argument("--out", type=Path, default=Path("out/engine.json"))
    return parser


def _measures(studio: Studio, asked: argparse.Namespace) -> dict[str, Callable[[], object]]:
    """The parts, each of which prints its table and gives its data."""
    shelf, quick = studio.shelf, asked.quick
    rounds, tokens = (2, min(asked.tokens, 48)) if quick else (asked.rounds, asked.tokens)

    def measure_peers() -> object:
        found = peers.against_generate(shelf, tokens, rounds)
        _show(peers.rows(found))
        return found

    def measure_passes() -> object:
        found = passes.passes(shelf, rounds + 2)
        print(
            f"memory {found['bytes_per_second'] / 1e9:.1f} GB/s, "
            f"products {found['operations_per_second'] / 1e9:.0f} Gop/s"
        )
        _show(passes.rows(found))
        return found

    def measure_lanes() -> object:
        found = lanes.each_lane(shelf, tokens, rounds)
        _show(lanes.rows(found))
        return found

    def measure_categories() -> object:
        found = categories.by_category(studio, tokens, quick=quick, tell=lambda text: print(text, file=sys.stderr))
        _show(categories.rows(found))
        verdicts = categories.verdicts(found)
        print(json.dumps(verdicts))
        return {"rows": found, "verdicts": verdicts}

    def measure_runs() -> object:
        found = lanes.many_runs(studio, 16, 20 if quick else lanes.MANY_RUNS)
        print(f"resident memory after {found['runs']} runs: {found['growth']:+.1%} since the tenth")
        return found

    return dict(
        zip(PARTS, (measure_peers, measure_passes, measure_lanes, measure_categories, measure_runs), strict=True)
    )


def _show(lines: list[list[object]]) -> None:
    print(table(lines), end="\n\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())
