"""What a viewer asks for is checked before anything runs; each refusal is one sentence with what is allowed."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.errors import ExplorerError, brief
from explorer.methods import METHODS
from explorer.requests import MAX_LANES, MAX_NEW_TOKENS, MAX_PROMPT_CHARACTERS, CompareRequest, LaneRequest, plan

LANE = LaneRequest(method="autoregressive")


def request(prompt: str = "hello", lanes: list[LaneRequest] | None = None, **values: Any) -> CompareRequest:
    return CompareRequest(prompt=prompt, lanes=[LANE] if lanes is None else lanes, **values)


def refusal(asked: CompareRequest) -> str:
    """The sentence of the refusal."""
    with pytest.raises(ExplorerError) as caught:
        plan(asked)
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 400
    assert text.endswith(".")
    return text


@pytest.mark.parametrize("prompt", ["", " ", "\n\t \r\n", "\u2003\u3000"])
def test_an_empty_prompt_is_refused(prompt: str) -> None:
    assert refusal(request(prompt)) == "The prompt is empty; type some text first."


def test_a_prompt_of_two_hundred_thousand_characters_is_refused() -> None:
    assert refusal(request("x" * 200_000)) == ("The prompt has 200,000 characters; at most 100,000 are allowed.")
    assert len(plan(request("x" * MAX_PROMPT_CHARACTERS)).prompt) == MAX_PROMPT_CHARACTERS


@pytest.mark.parametrize(
    "prompt",
    [
        "\x00",
        "a\x00b",
        "\x1b[31mred",
        "<script>alert(1)</script>",
        "${x}",
        "\u202eevil",
        "e\u0301\u0301",
        "🙂" * 9,
        "\ufeffx",
    ],
)
def test_odd_prompts_are_taken_as_they_are(prompt: str) -> None:
    assert plan(request(prompt)).prompt == prompt


@given(st.text(st.characters(), min_size=1, max_size=30))
def test_every_accepted_prompt_can_be_encoded(prompt: str) -> None:
    """Lone surrogates included: halves of a pair become the replacement character, whole pairs one character."""
    try:
        whole = plan(request(prompt)).prompt
    except ExplorerError:
        assert not prompt.strip()
    else:
        assert whole.encode("utf-8").decode("utf-8") == whole
        assert whole == prompt


@pytest.mark.parametrize(
    ("prompt", "kept"),
    [("a\ud800b", "a\ufffdb"), ("\udc00", "\ufffd"), ("\ud83d\ude42", "🙂"), ("x\ud83d", "x\ufffd")],
)
def test_lone_surrogates_become_replacement_characters(prompt: str, kept: str) -> None:
    assert plan(request().model_copy(update={"prompt": prompt})).prompt == kept


@pytest.mark.parametrize("tokens", [0, -1, MAX_NEW_TOKENS + 1, 10**9, -(10**30), 10**5000], ids=brief)
def test_budgets_out_of_bounds_are_refused(tokens: int) -> None:
    asked = request().model_copy(update={"max_new_tokens": tokens})
    assert "must be a whole number from 1 to 512" in refusal(asked)


@pytest.mark.parametrize("tokens", [1, MAX_NEW_TOKENS])
def test_budgets_at_the_bounds_are_taken(tokens: int) -> None:
    assert plan(request(max_new_tokens=tokens)).max_new_tokens == tokens


@pytest.mark.parametrize("count", [0, MAX_LANES + 1, 500])
def test_too_few_and_too_many_lanes_are_refused(count: int) -> None:
    assert refusal(request(lanes=[LANE] * count)) == f"{count} lanes were asked for; choose 1 to {MAX_LANES}."


def test_lanes_of_one_method_get_ids_of_their_own() -> None:
    lanes = [LaneRequest(method=name) for name in ("medusa", "eagle", "medusa", "medusa")]
    assert [lane.id for lane in plan(request(lanes=lanes)).lanes] == ["medusa", "eagle", "medusa-2", "medusa-3"]


def test_two_lanes_of_one_id_are_refused() -> None:
    lanes = [LaneRequest(method="medusa", id="x"), LaneRequest(method="eagle", id="x")]
    assert refusal(request(lanes=lanes)) == "Two lanes have the id 'x'; every lane needs its own."


@pytest.mark.parametrize("name", ["y" * 9000, "a b", "<b>", "../x", "\x00", "é\n"], ids=brief)
def test_an_id_that_a_page_could_not_hold_is_refused(name: str) -> None:
    assert "letters, digits and dashes" in refusal(request(lanes=[LaneRequest(method="medusa", id=name)]))


def test_an_id_of_ones_own_that_meets_a_made_one_is_refused_too() -> None:
    lanes = [LaneRequest(method="eagle", id="medusa-2"), LaneRequest(method="medusa"), LaneRequest(method="medusa")]
    assert "medusa-2" in refusal(request(lanes=lanes))


@pytest.mark.parametrize("name", ["", "Medusa", "medusa ", "../medusa", "x" * 100_000, "\x00"], ids=brief)
def test_an_unknown_method_is_told_which_there_are(name: str) -> None:
    known = ", ".join(method.name for method in METHODS)
    assert f"there is {known}." in refusal(request(lanes=[LaneRequest(method=name)]))


@pytest.mark.parametrize("params", [{"nodes": 0}, {"nodes": [1]}, {"nodes": None}, {"x": 1}, {"nodes": math.nan}])
def test_wrong_parameters_are_refused(params: dict[str, Any]) -> None:
    assert refusal(request(lanes=[LaneRequest(method="medusa", params=params)])).startswith("Medusa")


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"temperature": -1.0}, "temperature is -1.0, but must be from 0 to 5."),
        ({"temperature": math.nan}, "temperature is nan, but must be from 0 to 5."),
        ({"temperature": math.inf}, "temperature is inf, but must be from 0 to 5."),
        ({"top_k": -1}, "top_k is -1, but must be from 0 to 1000."),
        ({"top_k": 5000}, "top_k is 5000, but must be from 0 to 1000."),
        ({"top_p": 0.0}, "top_p is 0.0, but must be above 0, at most 1."),
        ({"top_p": 1.5}, "top_p is 1.5, but must be above 0, at most 1."),
        ({"seed": -1}, "seed is -1, but must be from 0 to 2147483647."),
        ({"seed": 2**31}, "seed is 2147483648, but must be from 0 to 2147483647."),
    ],
)
def test_sampling_out_of_bounds_is_refused(values: dict[str, Any], sentence: str) -> None:
    assert refusal(request(**values)) == sentence


def test_the_plan_holds_what_was_asked_for() -> None:
    lanes = [LaneRequest(method="eagle", params={"nodes": "9"}), LaneRequest(method="lookahead", id="mine")]
    made = plan(request(lanes=lanes, temperature=0.5, seed=4, raw=True, max_new_tokens=7))
    assert made.lanes[0].params.model_dump()["nodes"] == 9
    assert made.lanes[1].id == "mine"
    assert made.summary == "7 tokens · temperature 0.5 · raw prompt · seed 4"
    assert plan(request()).summary.endswith("greedy · chat template · seed 0")
    spiced = plan(request(temperature=1.0, top_k=5, min_p=0.1, repetition_penalty=1.2))
    assert "temperature 1 · top k 5 · min p 0.1 · repetition penalty 1.2 · " in spiced.summary
