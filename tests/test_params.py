"""Parameters describe themselves, and every wrong value gets one sentence that says what is allowed."""

from __future__ import annotations

import json
import math
import re
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from explorer.errors import ExplorerError, brief
from explorer.methods import METHODS, find_method
from explorer.params import Params, allowed_values, describe, parse

FIELDS = [(method, field) for method in METHODS for field in describe(method.Params)]
NUMBERS = [(method, field) for method, field in FIELDS if field["type"] == "int"]


def name_of(value: Any) -> str:
    return value.name if isinstance(value, type) else value["name"]


def assert_one_sentence(error: ExplorerError) -> None:
    text = str(error)
    assert "\n" not in text
    assert len(text) < 400
    assert text.endswith(".")


@pytest.mark.parametrize(("method", "field"), FIELDS, ids=name_of)
def test_every_parameter_is_described_and_bounded(method: Any, field: dict[str, Any]) -> None:
    assert field["description"].endswith(".")
    assert field["title"]
    assert field["type"] in ("int", "float", "bool", "choice")
    if field["type"] in ("int", "float"):
        assert field["minimum"] <= field["default"] <= field["maximum"]
    if field["type"] == "choice":
        assert field["default"] in field["choices"]
    assert parse(method.Params, {field["name"]: field["default"]}, method.title) == method.Params()
    json.dumps(field, allow_nan=False)


@pytest.mark.parametrize(("method", "field"), NUMBERS, ids=name_of)
def test_bounds_are_met_from_both_sides(method: Any, field: dict[str, Any]) -> None:
    name = field["name"]
    for value in (field["minimum"], field["maximum"]):
        assert getattr(parse(method.Params, {name: value}, method.title), name) == value
        assert getattr(parse(method.Params, {name: str(value)}, method.title), name) == value
    for value in (field["minimum"] - 1, field["maximum"] + 1, str(field["maximum"] + 1), -(10**30)):
        with pytest.raises(ExplorerError, match=re.escape(f"{method.title}: {field['title']} is ")) as caught:
            parse(method.Params, {name: value}, method.title)
        assert f"must be {allowed_values(field)}" in str(caught.value)
        assert_one_sentence(caught.value)


BAD = [
    None,
    [],
    [3],
    {},
    {"a": 1},
    "",
    "x",
    "NaN",
    "1e3",
    math.nan,
    math.inf,
    -math.inf,
    2.5,
    b"\xff",
    object(),
    "9" * 5000,
]


@pytest.mark.parametrize(("method", "field"), NUMBERS, ids=name_of)
def test_values_of_a_wrong_kind_get_one_sentence(method: Any, field: dict[str, Any]) -> None:
    for value in BAD:
        with pytest.raises(ExplorerError) as caught:
            parse(method.Params, {field["name"]: value}, method.title)
        assert_one_sentence(caught.value)


def test_a_huge_number_and_a_huge_text_get_a_short_sentence() -> None:
    """A number of more than 4,300 digits cannot even be printed by Python."""
    for value in (10**5000, "z" * 100_000, ["z"] * 50_000):
        with pytest.raises(ExplorerError) as caught:
            parse(find_method("medusa").Params, {"nodes": value}, "Medusa")
        assert_one_sentence(caught.value)


@pytest.mark.parametrize("name", ["nods", "", "__class__", "model_config", "Nodes", "x" * 5000], ids=brief)
def test_an_unknown_name_is_told_which_names_there_are(name: str) -> None:
    with pytest.raises(
        ExplorerError,
        match=r"EAGLE has no parameter .* it has: tree, nodes, depth, top_k, size, context_branch, rule, ",
    ) as caught:
        parse(find_method("eagle").Params, {name: 3}, "EAGLE")
    assert "\n" not in str(caught.value)


def test_a_method_without_parameters_says_none() -> None:
    with pytest.raises(ExplorerError, match=r"Autoregressive has no parameter 'x'; it has: none\."):
        parse(find_method("autoregressive").Params, {"x": 1}, "Autoregressive")


@pytest.mark.parametrize("value", ["true", "True", "1", "yes", True, "on"])
def test_switches_take_the_usual_words(value: Any) -> None:
    parsed = parse(find_method("lookahead").Params, {"pool_from_prompt": value}, "Lookahead")
    assert parsed.model_dump()["pool_from_prompt"] is True


@pytest.mark.parametrize("value", ["maybe", 2, None, [True]])
def test_switches_refuse_the_rest(value: Any) -> None:
    with pytest.raises(ExplorerError, match=r"pool from prompt is .*, but must be true or false\."):
        parse(find_method("lookahead").Params, {"pool_from_prompt": value}, "Lookahead")


def test_choices_are_named() -> None:
    with pytest.raises(ExplorerError, match=r"tree is 'oak', but must be one of auto, mc_sim_7b_63, .*\."):
        parse(find_method("medusa").Params, {"tree": "oak"}, "Medusa")


def test_parsed_parameters_cannot_be_changed() -> None:
    parsed = parse(find_method("medusa").Params, {"nodes": 3}, "Medusa")
    with pytest.raises(ValueError, match="frozen"):
        parsed.nodes = 4  # type: ignore[attr-defined]


class Every(Params):
    """One field of each kind."""

    count: int = Field(2, ge=1, le=9, title="n", description="A count.")
    share: float = Field(0.5, ge=0.0, le=1.0, description="A share.")
    switch: bool = Field(False, description="A switch.")
    choice: Literal["a", "b"] = Field("a", description="A choice.")


def test_each_kind_is_described() -> None:
    count, share, switch, choice = describe(Every)
    assert (count["type"], count["title"], count["minimum"], count["maximum"]) == ("int", "n", 1, 9)
    assert (share["type"], share["title"], share["minimum"], share["maximum"]) == ("float", "share", 0.0, 1.0)
    assert (switch["type"], switch["choices"], switch["minimum"]) == ("bool", None, None)
    assert (choice["type"], choice["choices"]) == ("choice", ["a", "b"])
    assert allowed_values(share) == "a number from 0.0 to 1.0"


@given(
    st.dictionaries(
        st.text(max_size=8), st.one_of(st.none(), st.integers(), st.floats(), st.text(max_size=9)), min_size=1
    )
)
def test_whatever_comes_in_is_parsed_or_refused_in_one_sentence(values: dict[str, Any]) -> None:
    try:
        parsed, refused = parse(Every, values, "Every"), None
    except ExplorerError as error:
        parsed, refused = Every(), error
    assert 1 <= parsed.model_dump()["count"] <= 9
    if refused is None:
        assert set(values) <= set(Every.model_fields)
    else:
        assert_one_sentence(refused)


class Rules(Params):
    """Shared fields, one of which matters only beside a value of another."""

    rule: Literal["a", "b"] = Field("a", description="A.", json_schema_extra={"group": "rules", "notes": {"a": "good"}})
    limit: int = Field(2, ge=1, le=9, description="B.", json_schema_extra={"group": "rules", "when": {"rule": "b"}})


def test_groups_conditions_and_notes_are_described() -> None:
    rule, limit = describe(Rules)
    assert (rule["group"], rule["when"], rule["notes"]) == ("rules", None, {"a": "good"})
    assert (limit["group"], limit["when"], limit["notes"]) == ("rules", {"rule": "b"}, None)


@pytest.mark.parametrize(("method", "field"), FIELDS, ids=name_of)
def test_what_a_field_depends_on_is_a_choice_of_its_own_method(method: Any, field: dict[str, Any]) -> None:
    others = {each["name"]: each for each in describe(method.Params)}
    for name, value in (field["when"] or {}).items():
        assert value in others[name]["choices"]
    assert set(field["notes"] or ()) <= set(field["choices"] or ())
