"""The methods, in the order in which they are shown. A new one is a file here and a line in METHODS."""

from __future__ import annotations

from typing import Any

from explorer.errors import ExplorerError, brief
from explorer.events import CodeLine
from explorer.methods.autoregressive import Autoregressive
from explorer.methods.base import Method
from explorer.methods.draft_model import DraftModelMethod
from explorer.methods.eagle import Eagle
from explorer.methods.eagle3 import Eagle3
from explorer.methods.jacobi import Jacobi
from explorer.methods.lookahead import Lookahead
from explorer.methods.medusa import Medusa
from explorer.methods.prompt_lookup import PromptLookup
from explorer.params import describe

METHODS: tuple[type[Method], ...] = (
    Autoregressive,
    DraftModelMethod,
    PromptLookup,
    Jacobi,
    Lookahead,
    Medusa,
    Eagle,
    Eagle3,
)


def find_method(name: str) -> type[Method]:
    """The method of that registry name. ExplorerError lists the names that exist."""
    for method in METHODS:
        if method.name == name:
            return method
    names = ", ".join(method.name for method in METHODS)
    raise ExplorerError(f"There is no method {brief(name)}; there is {names}.")


def code_of(name: str, params: dict[str, Any]) -> tuple[CodeLine, ...]:
    """The pseudocode of a method with the parameters that a trace holds; none where it is not known here."""
    return next((method.code(params) for method in METHODS if method.name == name), ())


def catalogue() -> list[dict[str, Any]]:
    """Every method described as plain data: what page and command line draw from."""
    return [
        {
            "name": method.name,
            "title": method.title,
            "paper": method.paper,
            "summary": method.summary,
            "lossless": method.rule(method.Params()).lossless(1.0),
            "needs": method.needs,
            "parameters": describe(method.Params),
        }
        for method in METHODS
    ]
