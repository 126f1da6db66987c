import dataclasses
import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.figures.labels import count_word, visible
from explorer.narrate import best_rejected, narrate
from explorer.payloads import PromptLookupPayload
from explorer.trace import Draft, SizeChoice
from tests.judged import (
    branch_step,
    draft_model_step,
    jacobi_steps,
    judged,
    lookup_step,
    top_k_step,
    trial,
    typical_step,
    with_own,
)
from tests.traces import (
    HOSTILE,
    big_step,
    eagle_payload,
    example_step,
    header,
    lookahead_step,
    make_comparison,
    make_step,
)


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
    assert 'its own next token was drawn from what was left, as "."' in said(drawn)
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


@pytest.mark.parametrize(
    ("step", "method", "sentence"),
    [
        (
            draft_model_step(), "draft-model",
            'The draft model wrote 3 tokens after "␣the". The target agreed with the two along "␣cat" → "␣sat", and '
            'its own next token was drawn from what was left, as "␣in": 3 tokens from one pass. The trial of "␣on" '
            "failed: it drew 0.83, not under the ratio 0.40, which left 0.35 of the target's distribution.",
        ),
        (
            lookup_step(), "prompt-lookup",
            'The newest 2 tokens, "␣the␣cat", stood there before; what followed then, 3 tokens, was proposed again. '
            'The target agreed with "␣sat", and its own next token is "!": 2 tokens from one pass. '
            'After "␣sat" the guess "␣on" was rejected: the target gives it 0.06.',
        ),
        (
            lookup_step(ngram=0), "prompt-lookup",
            "The newest tokens do not occur earlier in the context, so nothing was copied. The target "
            'read "␣cat" and its most likely next token is "␣sat" (0.88): 1 token from one pass. '
            'The runner-up "␣or" got 0.04.',
        ),
        (
            jacobi_steps()[0], "jacobi",
            "Pass 1 on this block: 1 of 4 positions settled, nothing committed yet. Of the two guesses behind, "
            "all changed.",
        ),
        (
            jacobi_steps()[-1], "jacobi",
            "Pass 4 on this block: the whole block agrees with the target after 4 passes. All of it counts now, and "
            'the target\'s next token is "d": 4 tokens from one pass.',
        ),
        (
            jacobi_steps("prefix")[-1], "jacobi",
            'Pass 4 on this block: the three guesses "a" → "b" → "c" stand, and the target puts "d" after them: '
            "4 tokens from one pass. No guess is left open.",
        ),
        (
            branch_step(), "eagle",
            'The drafter guessed 2 tokens below "␣if", and 1 token came from the context. The target agreed with "␣n", '
            'and its own next token is ".": 2 tokens from one pass. '
            'The sibling "␣x" was rejected: the target gives it 0.06.',
        ),
    ],
)  # fmt: skip
def test_sentences_of_the_other_methods(step, method, sentence):
    assert said(step, method) == sentence


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (typical_step(), 'It accepted "␣x" though it preferred "␣n": its 0.20 is over the threshold of 0.05.'),
        (top_k_step(), 'It accepted "␣or" though it preferred "␣n": the 3 best pass, and it is in place 2.'),
    ],
)
def test_lossy_rules_say_what_the_target_preferred(step, words):
    lossy = dataclasses.replace(header("medusa"), lossless=False)
    text = "".join(piece for _, piece in narrate(lossy, step))
    assert words in text
    assert "agreed" not in text


def test_a_draft_that_passed_but_lost_to_a_longer_path_is_no_loser():
    step = typical_step()
    lost = step.nodes[2].decision.model_copy(update={"accepted": True})
    step = judged(step, _1=step.nodes[1].decision, _2=lost)
    assert best_rejected(step) is None
    assert "rejected" not in said(step)


def test_under_sampling_nobody_disagrees_a_trial_fails():
    step = judged(make_step("a", [(0, "b", 0.5)], [], "c"), _1=trial(False, 0.2, 0.9, 0.8))
    text = said(with_own(step, origin="residual"), "draft-model")
    assert 'The target did not accept it; its own next token was drawn from what was left, as "c"' in text


def test_a_drafter_with_its_own_vocabulary_says_what_it_could_not_know():
    step = make_step("a", [(0, "b", 0.5)], [], "c")
    payload = eagle_payload(step).model_copy(update={"draft_vocabulary": 32_000, "covered": False})
    text = said(step.model_copy(update={"payload": payload.model_dump()}), "eagle3")
    assert text.endswith('The drafter could not have proposed "c": it is not among its 32,000 tokens.')


def sized(step, **values):
    size = {
        "nodes": 12, "depth": 3, "branch_tokens": 0, "expected_tokens": 2.5, "expected_ms": 21.0, "plain_ms": 10.0,
        "calibration": 0.9,
    }  # fmt: skip
    return step.model_copy(update={"size": SizeChoice(**(size | values))})


def test_an_auto_lane_says_what_its_size_was_expected_to_give():
    plain = said(example_step())
    assert said(sized(example_step())) == (
        f"{plain} Auto size: a step over 13 rows costs 2.1 plain passes and was expected to give 2.5 tokens."
    )
    assert " Auto size, trying out: a step" in said(sized(example_step(), probing=True))


def test_an_auto_lane_says_why_it_drafted_nothing():
    step = make_step(" if", [], [], " n")
    declined = Draft(rows=12, expected_tokens=1.4, expected_ms=21.0)
    why = "for a step over 12 rows costs 2.1 plain passes, and the drafts are worth 0.4 tokens."
    nothing = sized(step, nodes=0, depth=0, declined=declined)
    assert said(nothing).endswith(f" Auto size: nothing was drafted, {why}")
    dropped = sized(step, nodes=0, depth=2, declined=declined)
    assert said(dropped, "medusa").endswith(f" Auto size: no draft was worth verifying, {why}")
    assert said(sized(step, nodes=0, depth=0)).endswith(" Auto size: nothing was drafted.")


def test_a_match_whose_copy_did_not_pay_is_not_called_missing():
    payload = PromptLookupPayload(ngram=1, matched=(0, 1), matched_text=" if", copied=(1, 1), tokens=())
    words = said(make_step(" if", [], [], " n", payload=payload), "prompt-lookup")
    assert words.startswith("The newest tokens stood there before, but no copy was proposed. ")
