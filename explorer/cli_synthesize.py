"""python -m explorer synthesize: training text that the target writes itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from explorer import fetch
from explorer.cli_lanes import parse_params
from explorer.errors import ExplorerError


def synthesize(
    out: Annotated[Path, typer.Option(help="JSONL file that receives the pairs; OUT.manifest.json lies beside it.")],
    tokens: Annotated[int, typer.Option(help="Answer tokens wanted, looping answers not counted.")] = 1_000_000,
    model: Annotated[Path | None, typer.Option(help="Folder of the target; the default model when left out.")] = None,
    prompts: Annotated[Path | None, typer.Option(help="JSONL of user turns; default: the target writes them.")] = None,
    exclude: Annotated[list[Path], typer.Option(help="JSONL whose prompts stay out; may be given again.")] = [],  # noqa: B006
    threads: Annotated[int, typer.Option(help="CPU threads.")] = 1,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    other: Annotated[
        list[str],
        typer.Option(
            "--set",
            help="key=value of another option: rows, max_prompt_tokens, max_new_tokens, greedy_share, temperature, "
            "prompt_temperature, device, dtype; may be given again.",
        ),
    ] = [],  # noqa: B006
) -> None:
    """Let the target write user turns and answer them; a run that was stopped goes on where it was."""
    from explorer.training.synthesize import SynthesisOptions
    from explorer.training.synthesize import synthesize as run  # heavy: only this command needs it

    values: dict[str, Any] = {"out": out, "tokens": tokens, "prompts": prompts, "threads": threads, "seed": seed}
    if model is None:
        model = fetch.ensure_default_model(fetch.printer(lambda text: typer.echo(text, err=True, nl=False)))
    if model.resolve() == fetch.converted_path().resolve():
        values["target_sha256"] = fetch.DEFAULT_MODEL.file.sha256  # the file that it was converted from
    # Prompts that drafters are judged on must never be trained on.
    shipped = (fetch.PROJECT / "assets" / "prompts" / "bench.jsonl",)
    values |= {"model": model, "exclude": (*exclude, *(path for path in shipped if path.is_file()))}
    try:
        options = SynthesisOptions(**{**values, **parse_params(other)})
    except ValidationError as error:
        first = error.errors()[0]
        raise ExplorerError(f"{first['loc'][0]}: {first['msg']}.") from None
    told = run(options)
    typer.echo(
        f"{told.pairs:,} pairs with {told.answer_tokens:,} answer tokens in {out}, "
        f"{told.useful_tokens:,} of them in answers that do not loop."
    )
