"""Parameters that describe themselves: page, command line and tests draw them from here."""

from __future__ import annotations

import inspect
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError

from explorer.errors import ExplorerError, brief


class Params(BaseModel):
    """Base of a method's parameters. Every field has a default, a description and bounds or choices."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def describe(params: type[Params]) -> list[dict[str, Any]]:
    """One dict a field: name, type (int, float, bool, choice), default, minimum, maximum, choices, description.

    The class's own fields come before those that it shares with others. For the page, from json_schema_extra:
    `group` (fields that are folded together), `when` ({other field: value}: only then does this one matter) and
    `notes` (a word per choice).
    """

    def owner(name: str) -> int:
        return next(place for place, each in enumerate(params.__mro__) if name in inspect.get_annotations(each))

    fields = sorted(params.model_fields.items(), key=lambda item: owner(item[0]))
    return [_describe_field(name, field) for name, field in fields]


def _describe_field(name: str, field: Any) -> dict[str, Any]:
    bounds = {key: getattr(rule, key) for rule in field.metadata for key in ("ge", "le") if hasattr(rule, key)}
    is_choice = get_origin(field.annotation) is Literal
    looks = field.json_schema_extra or {}
    return {
        "name": name,
        "title": field.title or name,
        "type": "choice" if is_choice else field.annotation.__name__,
        "default": field.default,
        "minimum": bounds.get("ge"),
        "maximum": bounds.get("le"),
        "choices": list(get_args(field.annotation)) if is_choice else None,
        "description": field.description,
        **{key: looks.get(key) for key in ("group", "when", "notes")},
    }


def parse(params: type[Params], values: dict[str, Any], owner: str) -> Params:
    """Validated parameters. ExplorerError names the field, the value and what is allowed."""
    try:
        return params.model_validate(values)
    except ValidationError as error:
        raise ExplorerError(_sentence(params, error, owner)) from None


def _sentence(params: type[Params], error: ValidationError, owner: str) -> str:
    first = error.errors()[0]
    if not first["loc"] and "error" in first.get("ctx", {}):
        return f"{owner}: {first['ctx']['error']}"  # from a model validator, which says it in a sentence
    name = str(first["loc"][0]) if first["loc"] else ""
    known = {field["name"]: field for field in describe(params)}
    if name not in known:
        allowed = ", ".join(known) or "none"
        return f"{owner} has no parameter {brief(name)}; it has: {allowed}."
    field, given = known[name], first["input"]
    value = "empty or no number" if given is None and field["type"] in ("int", "float") else brief(given)
    return f"{owner}: {field['title']} is {value}, but must be {allowed_values(field)}."


def allowed_values(field: dict[str, Any]) -> str:
    """What a field takes, in words."""
    if field["type"] == "choice":
        return "one of " + ", ".join(map(str, field["choices"]))
    if field["type"] == "bool":
        return "true or false"
    kind = "a whole number" if field["type"] == "int" else "a number"
    return f"{kind} from {field['minimum']} to {field['maximum']}"
