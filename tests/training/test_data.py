"""Training text: what is read, what is refused, a split that stays."""

import gzip
import json

import pytest

from explorer.errors import ExplorerError
from explorer.training.data import Codec, build_examples, frequent_tokens, is_held_out, read_pairs

CODEC = Codec(
    encode_prompt=lambda text: [1, *(ord(c) % 50 for c in text), 2],
    encode_answer=lambda text: [ord(c) % 50 for c in text],
)


def write(path, *records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def build(pairs, *, vocab_size=64, max_length=100, max_tokens=None):
    return build_examples(pairs, CODEC, vocab_size=vocab_size, max_length=max_length, max_tokens=max_tokens)


def many(tmp_path, count):
    return read_pairs(write(tmp_path / "d.jsonl", *({"prompt": f"p{n}", "ids": [5, 6, 7, 8]} for n in range(count))))


def test_ids_and_text_answers_are_read_and_looping_ones_left_out(tmp_path):
    records = (
        {"prompt": "a", "ids": [4, 5, 6], "temperature": 0.7},
        {"prompt": "b", "response": "xyz"},
        {"prompt": "c", "ids": [9, 9, 9], "loops": True},
        {"prompt": "d", "ids": []},
    )
    pairs = read_pairs(write(tmp_path / "d.jsonl", *records))
    assert [(pair.prompt, pair.temperature) for pair in pairs] == [("a", 0.7), ("b", 0.0)]
    answers = {example.ids[example.prompt_length :] for example in build(pairs)}
    assert answers == {(4, 5, 6), tuple(ord(c) % 50 for c in "xyz")}


def test_gzipped_data_equal_plain_data(tmp_path):
    plain = write(tmp_path / "d.jsonl", {"prompt": "a", "ids": [4, 5, 6]})
    (tmp_path / "d.jsonl.gz").write_bytes(gzip.compress(plain.read_bytes()))
    assert read_pairs(tmp_path / "d.jsonl.gz") == read_pairs(plain)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", r"Line 2 of .* is not valid JSON"),
        ("[1]", "not an object with a text field `prompt`"),
        ('{"prompt": 3, "ids": [1]}', "not an object with a text field `prompt`"),
        ('{"prompt": "a"}', "neither `ids` nor a text field `response`"),
        ('{"prompt": "a", "ids": [1, -2]}', "`ids` must be a list of token ids"),
        ('{"prompt": "a", "ids": [1, true]}', "`ids` must be a list of token ids"),
        ('{"prompt": "a", "ids": [1], "temperature": "hot"}', "`temperature` must be a number"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, message):
    (tmp_path / "d.jsonl").write_text('{"prompt": "a", "ids": [1, 2, 3]}\n' + line + "\n")
    with pytest.raises(ExplorerError, match=message):
        read_pairs(tmp_path / "d.jsonl")


def test_missing_empty_and_damaged_files_are_refused(tmp_path):
    with pytest.raises(ExplorerError, match="does not exist"):
        read_pairs(tmp_path / "none.jsonl")
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(ExplorerError, match="no usable pair"):
        read_pairs(tmp_path / "empty.jsonl")
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(b'{"prompt": "a", "ids": [1]}\n' * 99)[:-9])
    with pytest.raises(ExplorerError, match="cannot be read"):
        read_pairs(tmp_path / "cut.jsonl.gz")


def test_the_split_stays_when_data_grow(tmp_path):
    small, large = build(many(tmp_path, 200)), build(many(tmp_path, 400))
    held_out = {example.ids for example in small if example.held_out}
    assert 0 < len(held_out) < 40
    assert held_out <= {example.ids for example in large if example.held_out}
    assert is_held_out("p3") == is_held_out("p3")


def test_fewer_tokens_are_a_prefix_of_more(tmp_path):
    pairs = many(tmp_path, 100)
    everything, some = build(pairs), build(pairs, max_tokens=200)
    assert some == everything[: len(some)]
    assert sum(map(len, some)) <= 200 < sum(map(len, some)) + 9


def test_long_text_is_cut_and_too_short_text_left_out(tmp_path):
    pairs = read_pairs(write(tmp_path / "d.jsonl", *({"prompt": f"p{n}", "ids": [5] * 50} for n in range(20))))
    assert {len(example) for example in build(pairs, max_length=20)} == {20}
    with pytest.raises(ExplorerError, match="No training example is left"):
        build(pairs, max_length=6)


def test_tokens_of_another_model_are_refused(tmp_path):
    with pytest.raises(ExplorerError, match="token id 52, but the target's vocabulary ends at 51"):
        build(read_pairs(write(tmp_path / "d.jsonl", {"prompt": "a", "ids": [52, 1, 1]})), vocab_size=52)


def test_the_draft_vocabulary_is_the_most_frequent_answer_tokens(tmp_path):
    train = next(f"q{n}" for n in range(99) if not is_held_out(f"q{n}"))
    held = next(f"q{n}" for n in range(9999) if is_held_out(f"q{n}"))
    records = ({"prompt": train, "ids": [9, 9, 9, 7, 7, 8]}, {"prompt": held, "ids": [30] * 9})
    examples = build(read_pairs(write(tmp_path / "d.jsonl", *records)))
    assert frequent_tokens(examples, 2) == [7, 9]
    assert frequent_tokens(examples, 5) == [0, 1, 7, 8, 9]  # filled up from the lowest id
