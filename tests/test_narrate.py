import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.figures.labels import count_word, visible
from explorer.narrate import best_rejected, narrate
from tests.traces import HOSTILE, big_step, example_step, header, lookahead_step, make_comparison, make_step


def said(step, method="eagle", params=None) -> str:
    return "".join(text for _, text in narrate(header(method, params), step))


def test_the_drawings_sentence():
    assert said(example_step()) == (
        'The drafter guessed 12 tokens below "␣<=". The target agreed with the three along "␣" → "0" → ":", '
        'and its own next token is "↵": 4 tokens from one pass. '
        'The sibling "1" was rejected: the target gives it 0.06.'
    )


@pytest.mark.parametrize(
    ("step", "method", "sentence"),
    [
        (
            make_step(" if", [], [], " n"), "autoregressive",
            'The target read "␣if" and its most likely next token is "␣n" (0.88): 1 token from one pass. '
            'The runner-up "␣or" got 0.04.',
        ),
        (
            make_step(" if", [(0, " n", 0.6), (0, " x", 0.2)], [], " return"), "medusa",
            'The heads guessed 2 tokens below "␣if". The target agreed with none of them; its own next token is '
            '"␣return": 1 token from one pass. '
            'The guess "␣n" was rejected: the drafter gave it 0.60, the target gives it 0.06.',
        ),
        (
            make_step(" if", [(0, " n", 0.4)], [], " return"), "eagle",
            'The drafter guessed 1 token below "␣if". The target did not agree with it; its own next token is '
            '"␣return": 1 token from one pass. The guess "␣n" was rejected: the target gives it 0.06.',
        ),
        (
            make_step(" if", [(0, " n", 0.6), (1, " x", 0.2)], [1, 2], "."), "eagle",
            'The drafter guessed 2 tokens below "␣if". The target agreed with the two along "␣n" → "␣x", to the end of '
            'the branch, and its own next token is ".": 3 tokens from one pass.',
        ),
        (
            make_step(" if", [(0, " n", 0.6), (1, " x", 0.2)], [1, 2], ".", committed=1), "eagle",
            'The drafter guessed 2 tokens below "␣if". The target agreed with the two along "␣n" → "␣x", to the end of '
            'the branch, and its own next token is ".". The output ended here, with 1 token from one pass: '
            "the last two were not needed.",
        ),
        (
            make_step(" if", [(0, " n", 0.6), (1, " x", 0.2)], [1], ".", committed=1), "eagle",
            'The drafter guessed 2 tokens below "␣if". The target agreed with "␣n", and its own next token is ".". '
            'The output ended here, with 1 token from one pass: the last one was not needed. '
            'After "␣n" the guess "␣x" was rejected: the target gives it 0.06.',
        ),
        (
            make_step(" if", [], [], " n", committed=0), "jacobi",
            'This pass added nothing to the output yet: the target\'s next token would be "␣n".',
        ),
        (
            make_step(" if", [], [], " n", payload={"kind": "new"}), "new-method",
            'Nothing was drafted. The target read "␣if" and its most likely next token is "␣n" (0.88): '
            '1 token from one pass. The runner-up "␣or" got 0.04.',
        ),
        (
            lookahead_step(), "lookahead",
            'The pool knew two continuations of "␣if". The target agreed with the first two tokens of the best, '
            '"␣n" → "␣<=", and its own next token is "␣1": 3 tokens from one pass. '
            "The window gave 3 n-grams to the pool (1 known already).",
        ),
        (
            lookahead_step(hits=0), "lookahead",
            'The pool knew two continuations of "␣if". The target agreed with none of them, and its own next token is '
            '"␣n": 1 token from one pass. The window gave 3 n-grams to the pool (1 known already).',
        ),
        (
            lookahead_step(warm_up=True), "lookahead",
            "Warm-up: the window now has 2 rows of 4, and nothing is verified yet; the target's next token is "
            '"␣n": 1 token from one pass.',
        ),
    ],
)  # fmt: skip
def test_sentences(step, method, sentence):
    assert said(step, method, {"ngram": 5}) == sentence


def test_a_token_may_be_drawn_instead_of_chosen():
    step = make_step(" if", [(0, " n", 0.6)], [1], ".")
    drawn = step.model_copy(update={"next_token": step.next_token.model_copy(update={"origin": "residual"})})
    assert 'its own next token was drawn as "."' in said(drawn)
    plain = make_step(" if", [], [], " n")
    sampled = plain.model_copy(update={"next_token": plain.next_token.model_copy(update={"origin": "sample"})})
    assert 'and drew "␣n"' in said(sampled, "autoregressive")


def test_accepted_against_the_targets_first_choice_is_not_called_agreement():
    step = make_step(" if", [(0, " n", 0.6)], [1], ".")
    root = step.nodes[0].model_copy(update={"target_top": step.nodes[0].target_top[1:]})
    lossy = step.model_copy(update={"nodes": (root, *step.nodes[1:])})
    assert 'The target accepted "␣n"' in said(lossy)


def test_an_empty_pool_and_a_single_guess():
    step = lookahead_step(hits=0)
    payload = step.payload | {"guesses": (), "added": (), "refreshed": ()}
    assert said(step.model_copy(update={"payload": payload})) == (
        'The pool knew nothing that follows "␣if"; the target\'s next token is "␣n": 1 token from one pass.'
    )
    single = step.payload | {"guesses": step.payload["guesses"][:1]}
    assert "one continuation" in said(step.model_copy(update={"payload": single}))
    assert "disagreed with its first token" in said(step.model_copy(update={"payload": single}))


def test_a_loser_with_the_text_of_an_accepted_token_is_told_apart():
    step = make_step(" <=", [(0, " ", 0.6), (0, "0", 0.3), (1, "0", 0.5)], [1, 3], ":")
    assert said(step).endswith('Beside "␣" the guess "0" was rejected: the target gives it 0.06.')


COMPARISON = make_comparison()


@pytest.mark.parametrize("trace", COMPARISON.lanes, ids=[trace.lane for trace in COMPARISON.lanes])
def test_counts_in_the_sentences_are_the_records(trace):
    for step in trace.steps:
        text = said(step, trace.method)
        assert re.search(r"(\d+) tokens? from one pass", text).group(1) == str(len(step.committed))
        drafted = re.search(r"guessed (\d+) token", text)
        assert (int(drafted.group(1)) if drafted else 0) in (len(step.nodes) - 1, 0)
        assert f'"{visible(step.next_token.text)}"' in text
        for node in step.accepted:
            assert f'"{visible(step.nodes[node].text)}"' in text


@given(st.integers(0, 14), st.integers(0, 15))
def test_numbers_agree_with_their_nouns(depth, committed):
    drafts = [(place, f"t{place}", 0.5) for place in range(depth)]
    made = min(committed, depth + 1)
    text = said(make_step("root", drafts, list(range(1, depth + 1)), "end", committed=made))
    assert not re.search(r"\b1 tokens|\b(?!1\b)\d+ token\b", text)
    if depth > 1:
        assert f"the {count_word(depth)} along" in text
    assert ("The output ended here" in text) == (0 < made < depth + 1)


def test_pieces_are_of_three_kinds_and_neighbours_differ():
    for step in (example_step(), lookahead_step(), big_step(25), make_step("a", [], [], "b")):
        kinds = [kind for kind, _ in narrate(header(), step)]
        assert set(kinds) <= {"", "strong", "token"}
        assert all(first != second for first, second in itertools.pairwise(kinds))
        assert all(text for _, text in narrate(header(), step))


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_tokens_are_shown_as_text(text):
    step = make_step(text, [(0, text, 0.5)], [1], text)
    assert "\x00" not in said(step)
    assert "\u202e" not in said(step)


def test_the_loser_is_the_drafters_favourite_among_the_judged():
    assert best_rejected(example_step()).text == "1"
    assert best_rejected(lookahead_step()).text == " 1"
    assert best_rejected(make_step("a", [], [], "b")) is None
