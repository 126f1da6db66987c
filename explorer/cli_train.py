"""python -m explorer train medusa | eagle | eagle3 | draft-model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from explorer import fetch
from explorer.cli_lanes import parse_params
from explorer.errors import ExplorerError

app = typer.Typer(no_args_is_help=True, help="Train a drafter for a target on its own answers.")

Data = Annotated[Path, typer.Option(help="JSONL (may be gzipped) of prompts and the target's own answers.")]
Out = Annotated[
    Path, typer.Option(help="Folder for weights, config and card; OUT-work beside it: state, checkpoints, report.")
]
Model = Annotated[Path | None, typer.Option(help="Folder of the target; the default model when left out.")]
MaxTokens = Annotated[int | None, typer.Option(help="Use at most this many tokens of text.")]
Epochs = Annotated[float | None, typer.Option(help="Passes over the data.")]
Threads = Annotated[int, typer.Option(help="CPU threads.")]
Seed = Annotated[int, typer.Option(help="Seed of everything random.")]
Other = Annotated[
    list[str],
    typer.Option(
        "--set",
        help="key=value of another training option, such as learning_rate, draft_vocab, batch_tokens, accumulate, "
        "max_length, unroll_steps, mixed_precision, device, save_every, cache, features; may be given again.",
    ),
]


@app.command()
def medusa(
    data: Data,
    out: Out,
    model: Model = None,
    max_tokens: MaxTokens = None,
    epochs: Epochs = None,
    heads: Annotated[int, typer.Option(help="Number of heads.")] = 5,
    threads: Threads = 1,
    seed: Seed = 0,
    other: Other = [],  # noqa: B006
) -> None:
    """Train Medusa heads (a frozen target, cross-entropy per head)."""
    from explorer.training.medusa import train_medusa  # heavy: only this command needs it

    values = {"data": data, "out": out, "max_tokens": max_tokens, "epochs": epochs}
    values |= {"threads": threads, "seed": seed, "heads": heads}
    _tell(train_medusa(_options(model, values, other)), out)


@app.command()
def eagle(
    data: Data,
    out: Out,
    model: Model = None,
    max_tokens: MaxTokens = None,
    epochs: Epochs = None,
    unroll_epochs: Annotated[float | None, typer.Option(help="Passes of the training-time test.")] = None,
    threads: Threads = 1,
    seed: Seed = 0,
    other: Other = [],  # noqa: B006
) -> None:
    """Train an EAGLE layer (features and tokens, then a training-time test)."""
    from explorer.training.eagle import train_eagle  # heavy: only this command needs it

    values = {"data": data, "out": out, "max_tokens": max_tokens, "epochs": epochs}
    values |= {"threads": threads, "seed": seed, "unroll_epochs": unroll_epochs}
    _tell(train_eagle(_options(model, values, other)), out)


@app.command()
def eagle3(
    data: Data,
    out: Out,
    model: Model = None,
    max_tokens: MaxTokens = None,
    epochs: Epochs = None,
    threads: Threads = 1,
    seed: Seed = 0,
    other: Other = [],  # noqa: B006
) -> None:
    """Train an EAGLE-3 layer (three fused hidden states, a training-time test, its own output matrix)."""
    from explorer.training.eagle3 import train_eagle3  # heavy: only this command needs it

    values = {"data": data, "out": out, "max_tokens": max_tokens, "epochs": epochs, "threads": threads, "seed": seed}
    _tell(train_eagle3(_options(model, values, other)), out)


@app.command("draft-model")
def draft_model(
    data: Data,
    out: Out,
    model: Model = None,
    max_tokens: MaxTokens = None,
    epochs: Epochs = None,
    threads: Threads = 1,
    seed: Seed = 0,
    other: Other = [],  # noqa: B006
) -> None:
    """Train a small draft model (a few layers of the target, distilled)."""
    from explorer.training.draft_model import train_draft_model  # heavy: only this command needs it

    values = {"data": data, "out": out, "max_tokens": max_tokens, "epochs": epochs, "threads": threads, "seed": seed}
    _tell(train_draft_model(_options(model, values, other)), out)


def _options(model: Path | None, values: dict[str, Any], other: list[str]) -> Any:
    from explorer.training.options import TrainOptions

    if model is None:
        model = fetch.ensure_default_model(fetch.printer(lambda text: typer.echo(text, err=True, nl=False)))
    if model.resolve() == fetch.converted_path().resolve():
        values["target_sha256"] = fetch.DEFAULT_MODEL.file.sha256  # the file that it was converted from
    try:
        return TrainOptions(**{**values, "model": model, **parse_params(other)})
    except ValidationError as error:
        first = error.errors()[0]
        raise ExplorerError(f"{first['loc'][0]}: {first['msg']}.") from None


def _tell(report: Any, out: Path) -> None:
    facts = ", ".join(f"{name} {_short(value)}" for name, value in report.facts().items())
    typer.echo(f"Written to {out}. On held-out answers: {facts}")


def _short(value: Any) -> str:
    if isinstance(value, list):
        return "/".join(map(_short, value))
    return f"{value:.3f}" if isinstance(value, float) else str(value)
