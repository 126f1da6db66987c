"""Pieces of an output joined are its decoded text, whatever bytes the tokens hold."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from explorer.texts import UNFINISHED, PieceStream, TokenTexts
from explorer.toy import toy_tokenizer

TOKENIZER = toy_tokenizer()
TEXTS = TokenTexts(TOKENIZER)
SMILE = TOKENIZER("🙂")["input_ids"]
LONE = TOKENIZER("é")["input_ids"][1:]
tokens = st.lists(st.integers(0, len(TOKENIZER) - 1), max_size=40)


def pieces(texts: TokenTexts, token_ids: list[int]) -> list[str]:
    stream = PieceStream(texts)
    return [stream.push(token, place == len(token_ids) - 1) for place, token in enumerate(token_ids)]


@given(tokens)
@example(SMILE[:-1])
@example([*SMILE[:2], *TOKENIZER("the")["input_ids"], *SMILE[2:]])
@example(LONE * 9)
@example([*LONE, *SMILE, *LONE])
@example([*SMILE[:3], *SMILE, 0, 1])
@example(TOKENIZER("\ufffd")["input_ids"] * 3)
def test_joined_pieces_are_the_decoded_output(token_ids: list[int]) -> None:
    assert "".join(pieces(TEXTS, token_ids)) == TEXTS.decode(token_ids)


@given(st.text(max_size=60))
@example("e\u0301\u0301")
@example("שלום \u202eevil\u202c")
@example("\x00\x1b[31m\r\n")
@example("👩\u200d👩\u200d👧 🏳️\u200d🌈")
def test_any_text_comes_back_and_no_piece_is_half_a_character(text: str) -> None:
    token_ids = TOKENIZER(text)["input_ids"]
    cut = pieces(TEXTS, token_ids)
    assert "".join(cut) == text
    assert UNFINISHED in text or all(UNFINISHED not in piece for piece in cut)


@given(tokens)
def test_a_started_stream_holds_back_only_an_unfinished_end(token_ids: list[int]) -> None:
    stream = PieceStream(TEXTS)
    shown = "".join(stream.push(token) for token in token_ids)
    rest = TEXTS.decode(token_ids)
    assert rest.startswith(shown)
    assert UNFINISHED in rest[len(shown) :] or rest == shown


def test_a_split_character_belongs_to_the_token_that_completes_it() -> None:
    token_ids = [*TOKENIZER("a")["input_ids"], *SMILE, *TOKENIZER("b")["input_ids"]]
    assert pieces(TEXTS, token_ids) == ["a", "", "", "", "🙂", "b"]


def test_a_tokenizer_that_treats_the_first_token_otherwise() -> None:
    """Metaspace drops the space before the first word of whatever it decodes."""
    words = ["▁a", "▁b", "c", "▁"]
    inner = Tokenizer(WordLevel({word: place for place, word in enumerate(words)}, unk_token="c"))
    inner.pre_tokenizer = pre_tokenizers.Metaspace()
    inner.decoder = decoders.Metaspace()
    texts = TokenTexts(PreTrainedTokenizerFast(tokenizer_object=inner))
    for token_ids in ([0, 1, 2, 1], [3, 3, 0], [2, 0, 0], [1]):
        assert "".join(pieces(texts, token_ids)) == texts.decode(token_ids)


@pytest.mark.parametrize(
    ("token_id", "shown"),
    [(SMILE[0], "<F0>"), (SMILE[2], "<99>"), (TOKENIZER("the")["input_ids"][0], "th"), (0, "<|end|>")],
)
def test_a_token_by_itself(token_id: int, shown: str) -> None:
    assert TEXTS.show(token_id) == shown
    assert TEXTS.show(token_id) == shown  # the second time from memory


def test_every_token_of_the_vocabulary_can_be_shown() -> None:
    shown = [TEXTS.show(token) for token in range(len(TOKENIZER))]
    assert all(shown)
    assert not any(UNFINISHED in text for text in shown)
    assert len(set(shown)) == len(shown)


def test_an_id_outside_the_vocabulary_does_no_harm() -> None:
    assert TEXTS.show(len(TOKENIZER) + 50) == ""
