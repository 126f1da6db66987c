import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.figures.labels import (
    EMPTY,
    ISOLATE,
    POP,
    count_word,
    drawn_token,
    logits,
    plotly_text,
    plural,
    prob,
    prob_fine,
    quoted,
    visible,
)
from tests.traces import HOSTILE


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (" the", "␣the"),
        ("\n", "↵"),
        ("\t\r", "⇥␍"),
        ("\n       ", "↵␣×7"),
        ("   ", "␣␣␣"),
        ("\x00\x1b\x7f", "␀␛␡"),
        ("", EMPTY),
        ("\u202eevil", f"{ISOLATE}⟨202E⟩evil{POP}"),
        ("שלום", f"{ISOLATE}שלום{POP}"),
        ("\u0301", f"{ISOLATE}{EMPTY}\u0301{POP}"),
        ("\u2028", "⟨2028⟩"),
        ("é", "é"),
    ],
)
def test_what_cannot_be_seen_is_drawn(text, shown):
    assert visible(text) == shown


def test_long_tokens_are_cut_with_an_ellipsis():
    assert visible("a" * 500, 10) == "a" * 9 + "…"
    assert visible("a" * 10, 10) == "a" * 10
    assert visible("\n" + " " * 40, 8) == "↵␣×40"


@given(st.text(max_size=60), st.integers(2, 20))
def test_nothing_invisible_is_left_and_the_limit_holds(text, limit):
    shown = visible(text, limit)
    inner = shown.removeprefix(ISOLATE).removesuffix(POP)
    assert inner
    assert not any(unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp", "Zs") for char in inner)
    assert (shown != inner) == (shown.startswith(ISOLATE) and shown.endswith(POP))
    assert len(inner) <= limit * 9  # one character may be drawn as a code in brackets


@pytest.mark.parametrize("text", HOSTILE)
def test_plotly_sees_no_tag_no_entity_and_no_template(text):
    safe = drawn_token(text)
    assert "<" not in safe
    assert ">" not in safe
    assert "%{" not in safe
    assert "$" not in safe
    assert all(rest.startswith(("amp;", "lt;", "gt;", "#36;")) for rest in safe.split("&")[1:])


def test_escaping_keeps_the_text():
    assert plotly_text("a < b && c") == "a &lt; b &amp;&amp; c"


def test_quotes_hold_the_visible_token():
    assert quoted(" <=") == '"␣<="'


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0.0, "0.00"), (0.004, "<0.01"), (0.06, "0.06"), (1.0, "1.00"), (1.0000005, "1.00")],
)
def test_probabilities_are_short(value, text):
    assert prob(value) == text


def test_numbers_in_words():
    assert prob_fine(0.000123456) == "0.000123"
    assert prob_fine(None) == "–"
    assert plural(1, "token") == "1 token"
    assert plural(0, "token") == "0 tokens"
    assert plural(2, "guess", "guesses") == "2 guesses"
    assert plural(12_000, "token") == "12,000 tokens"
    assert [count_word(count) for count in (1, 3, 12, 13)] == ["one", "three", "twelve", "13"]


def test_a_lead_has_the_same_digits_wherever_it_is_told():
    assert [logits(value) for value in (1.15, 0.5, 0.0004, 12.0)] == ["1.15", "0.5", "0.0004", "12"]
