"""python -m explorer export KIND_OR_FOLDER --out FOLDER."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from explorer.catalogue import DEFAULT_MODEL
from explorer.errors import ExplorerError

Drafter = Annotated[str, typer.Argument(help="A kind of drafter that comes with the model, a folder, or a hub id.")]
Out = Annotated[Path, typer.Option(help="Folder to write to.")]
Layout = Annotated[
    str,
    typer.Option(
        help="medusa: v2, v0.1 or vllm; eagle: eagle or vllm; other kinds have one. The first is the default."
    ),
]
Model = Annotated[str, typer.Option(help="The target: a model id of the catalogue, toy, a folder, or a hub id.")]


def export(drafter: Drafter, out: Out, layout: Layout = "", model: Model = DEFAULT_MODEL.id) -> None:
    """Write a drafter in a layout that other tools read."""
    from explorer.drafters.checkpoint import Checkpoint
    from explorer.drafters.loading import load
    from explorer.export import export as write
    from explorer.stock import check_model, read_target
    from explorer.toy import TOY_ID, toy_drafter

    if out.exists() and not out.is_dir():
        raise ExplorerError(f"{out} is a file; name a folder.")
    check_model(model)
    folder = _folder(drafter, model)
    target = read_target(model, "cpu", "float32", _tell)  # nothing is rounded on the way
    source: dict[str, Any] = {}
    if folder is None and model == TOY_ID:
        loaded: Any = toy_drafter(drafter, target)
    elif folder is None:
        raise ExplorerError(f"There is no {drafter} drafter for {model}; name its folder.")
    else:
        source, loaded = Checkpoint(folder).config, load(None, folder, target)
    for note in write(loaded, target, out, layout, source):
        typer.echo(note)
    typer.echo(str(out))


def _folder(drafter: str, model: str) -> Path | None:
    """Where the drafter lies, got first where it is a repository; None for a kind that the model has no folder of."""
    from explorer.drafters.detect import KINDS
    from explorer.stock import drafter_folder, drafter_places

    place = drafter_places(model).get(drafter) if drafter in KINDS else drafter
    return None if place is None else drafter_folder(place, _tell)


def _tell(text: str, share: float | None) -> None:
    """What takes a while, on stderr."""
    typer.echo(text, err=True)
