"""Prompt lookup as text: the two places, the copied tokens, and what became of them."""

import pytest

from explorer.figures.base import NEXT
from explorer.figures.lookup import LOOKUP
from tests.figures.checks import build
from tests.judged import lookup_step
from tests.traces import example_step


def texts(line: dict, role: str) -> list[str]:
    return [piece["t"] for piece in line["pieces"] if piece.get("k") == role]


def test_the_earlier_place_shows_match_and_copy():
    before, _ = build(LOOKUP, lookup_step(), method="prompt-lookup")["lines"]
    assert before["name"] == "before, tokens 5 to 6"
    assert texts(before, "matched") == ["␣the␣cat"]
    assert texts(before, "copy") == ["␣sat", "␣on", "␣it"]
    assert texts(before, "soft") == ["Once", " and"]


@pytest.mark.parametrize(
    ("accepted", "roles"),
    [
        (0, ["soft", "matched", "bonus", "rejected", "unreached", "unreached"]),
        (1, ["soft", "matched", "accepted", "bonus", "rejected", "unreached"]),
        (3, ["soft", "matched", "accepted", "accepted", "accepted", "bonus"]),
    ],
)
def test_the_newest_place_shows_what_was_accepted(accepted, roles):
    now = build(LOOKUP, lookup_step(accepted=accepted), method="prompt-lookup")["lines"][1]
    assert [piece.get("k") for piece in now["pieces"]] == roles
    linked = [piece["node"] for piece in now["pieces"] if "node" in piece]
    assert sorted(map(str, linked)) == ["0", "1", "2", "3", NEXT]


def test_no_match_is_told():
    built = build(LOOKUP, lookup_step(ngram=0), method="prompt-lookup")
    assert [line["name"] for line in built["lines"]] == ["now"]
    assert built["caption"] == "The newest tokens do not occur earlier in the context: nothing was copied."


def test_caption_counts():
    caption = build(LOOKUP, lookup_step(accepted=2), method="prompt-lookup")["caption"]
    assert "tokens 5 to 6 of prompt and output" in caption
    assert caption.endswith("3 tokens copied from behind, 2 accepted.")


def test_other_steps_have_no_lookup():
    assert not LOOKUP.applies(example_step())
