"""Lookahead: the pool's order, the window's sight and shift, guesses, sizes of passes, and law under sampling."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from explorer.decode import Turn
from explorer.errors import ExplorerError
from explorer.methods.lookahead import MAX_ROWS, Lookahead, LookaheadParams, NGramPool, Rest, window_riders
from explorer.params import parse
from explorer.payloads import LookaheadPayload
from explorer.sampling import SamplingSettings
from explorer.target import Riders
from explorer.tree import merge_paths
from tests.lanes import Bench, make_toy
from tests.methods.laws import chance_of_worse, exact_law, sampled
from tests.methods.recordings import golden

inserts = st.lists(st.tuples(st.integers(0, 2), st.tuples(st.integers(0, 2), st.integers(0, 1))), max_size=40)


@given(inserts=inserts, limit=st.integers(0, 4))
def test_the_pool_forgets_the_oldest_of_each_key(inserts: list[tuple[int, Rest]], limit: int) -> None:
    """Against plain lists: a repeated n-gram moves to the young end, a full key loses its oldest."""
    pool, model = NGramPool(limit), {key: [] for key in range(3)}
    added, refreshed, evicted = [], [], []
    for key, rest in inserts:
        pool.insert(key, rest)
        if rest in model[key]:
            model[key].remove(rest)
            refreshed.append((key, rest))
        else:
            added.append((key, rest))
        model[key].append(rest)
        if limit and len(model[key]) > limit:
            evicted.append((key, model[key].pop(0)))
    assert {key: pool.look_up(key) for key in range(3)} == model
    assert (pool.added, pool.refreshed, pool.evicted) == (added, refreshed, evicted)
    assert pool.ngrams == sum(map(len, model.values())) == len(added) - len(evicted)
    assert pool.keys == sum(1 for rests in model.values() if rests)
    pool.forget_changes()
    assert (pool.added, pool.refreshed, pool.evicted) == ([], [], [])
    assert {key: pool.look_up(key) for key in range(3)} == model


def rows_of(window: int, ngram: int, filled: int) -> list[list[int]]:
    """A window with `filled` rows: in warm-up each row has lost its first column once a pass."""
    if filled == ngram - 1:
        return [list(range(window - 1)), *(list(range(100 * row, 100 * row + window)) for row in range(1, filled))]
    first = window + ngram - 2 - filled
    return [list(range(first)), *(list(range(100 * row, 100 * row + first + 1)) for row in range(1, filled))]


@pytest.mark.parametrize(("window", "ngram"), [(1, 3), (2, 3), (5, 5), (3, 8), (20, 3), (1, 8)])
def test_a_window_cell_sees_what_the_paper_says(window: int, ngram: int) -> None:
    """Level-0 column j sees columns 0..j; row i column j sees these and its own column in rows 1..i. Both by rule."""
    for filled in range(1, ngram):
        rows = rows_of(window, ngram, filled)
        riders = window_riders(rows)
        cells = [(0, column + 1) for column in range(len(rows[0]))]
        cells += [(row, column) for row in range(1, filled) for column in range(len(rows[row]))]
        assert riders.token_ids == [token for row in rows for token in row]
        assert riders.offsets == [row + column for row, column in cells]
        for place, (row, column) in enumerate(cells):
            seen = {(0, left) for left in range(column + 1)} | {(above, column) for above in range(1, row + 1)}
            shown = {(0, 0)} if riders.visible[place, 0] else set()
            shown |= {cells[other] for other in riders.visible[place, 1:].nonzero().flatten().tolist()}
            assert shown == seen


@pytest.mark.parametrize(("window", "ngram"), [(1, 3), (4, 5), (3, 8)])
def test_a_cells_logits_equal_a_causal_pass_over_what_it_sees(window: int, ngram: int, toy: Bench) -> None:
    """What a cell of row i, column j sees stands at positions 0..i+j after the root, one token at each."""
    prompt, root = [40, 50, 60], 70
    rows = [
        [(7 * place + row) % 200 for place in range(len(each))]
        for row, each in enumerate(rows_of(window, ngram, ngram - 1))
    ]
    tree, _ = merge_paths(root, [[90, 91], [90, 92]], "pool")
    cache = toy.target.new_cache(120)
    cache.copy_from(toy.target.prefill(prompt).cache)
    riders = window_riders(rows)
    logits = toy.target.verify(tree, cache, riders).logits[len(tree) :]
    cells = [(0, column + 1) for column in range(len(rows[0]))]
    cells += [(row, column) for row in range(1, ngram - 1) for column in range(len(rows[row]))]
    level_zero = [root, *rows[0]]
    for place, (row, column) in enumerate(cells):
        seen = [*level_zero[: column + 1], *(rows[above][column] for above in range(1, row + 1))]
        assert len(seen) == riders.offsets[place] + 1
        torch.testing.assert_close(logits[place], toy.logits([*prompt, *seen])[-1], atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("name", ["lookahead_mask_examples_L4W5G5", "lookahead_mask_examples_L5W7G7"])
def test_masks_and_positions_equal_the_recorded_ones(name: str, toy: Bench) -> None:
    """The original puts last token, window and guesses in a row; ours puts root and guesses before the window."""
    compared = 0
    recording = golden(name)
    length = recording["header"]["LEVEL"] - 1
    for step in recording["steps"]:
        if step["is_prefill"]:
            continue
        tokens, past = step["input_ids"], step["past_len"]
        sizes, guessed = step["level_sizes"], step["n_guess_tokens"]
        extra = len(tokens) - sum(sizes) - guessed  # the last token, and those before it that are not cached yet
        at, rows = extra, []
        for size in sizes:
            rows.append(tokens[at : at + size])
            at += size
        riders = window_riders(rows)
        guesses = [tokens[start : start + length] for start in range(at, len(tokens), length)]
        tree, routes = merge_paths(tokens[extra - 1], guesses, "pool")
        recorded = torch.tensor([[digit == "1" for digit in row[past:]] for row in step["rows"]])
        assert recorded[:, :extra].all()
        window = range(extra, at)
        assert torch.equal(recorded[at - len(window) : at, extra - 1 : at], riders.visible)
        assert not recorded[extra:at, at:].any()
        root = step["position_ids"][extra - 1]
        assert [position - root for position in step["position_ids"][extra:at]] == riders.offsets
        sight = tree.visibility()
        for place, node in enumerate(node for route in routes for node in route):
            row, own = at + place, place - place % length
            assert step["position_ids"][row] - root == tree.depths[node]
            assert not recorded[row, extra:at].any()
            mine = [n for n in routes[place // length] if sight[node, n]]
            assert recorded[row, at:].nonzero().flatten().tolist() == list(range(own, own + len(mine)))
        compared += 1
    assert compared >= 3


@pytest.mark.parametrize("rule", ["greedy", "speculative"])
def test_sampled_outputs_have_the_targets_distribution(rule: str) -> None:
    bench = make_toy(1, num_hidden_layers=3)
    sampling = SamplingSettings(temperature=0.9, top_k=2)
    law = exact_law(bench, bench.ids("a b"), sampling, 4)
    best = max(law, key=lambda outcome: law[outcome])
    ids = [*best, *bench.ids("a b"), *best, *best]  # n-grams that can be right
    params = {"rule": rule, "ngram": 3, "window": 1, "guesses": 0, "pool_from_prompt": True}
    counts = sampled(bench, "lookahead", params, ids, sampling, length=4, runs=250)
    assert chance_of_worse(counts, exact_law(bench, ids, sampling, 4)) > 0.001


def payloads_of(
    bench: Bench, params: dict[str, Any], ids: list[int], budget: int
) -> list[tuple[Turn, LookaheadPayload]]:
    lane = bench.lane("lookahead", params, ids=ids, budget=budget)
    found = []
    for turn in lane.turns():
        payload = lane.method.payload()
        assert isinstance(payload, LookaheadPayload)
        found.append((turn, payload))
    return found


@pytest.mark.parametrize(("window", "ngram"), [(5, 5), (1, 3), (3, 8), (2, 4)])
def test_the_window_fills_and_then_moves_one_column_a_pass(window: int, ngram: int, toy: Bench) -> None:
    recorded = payloads_of(toy, {"window": window, "ngram": ngram}, toy.ids("a b a b"), 24)
    for index, (turn, payload) in enumerate(recorded):
        assert payload.warm_up == (index < ngram - 2)
        before = [[cell.token_id for cell in row] for row in payload.window_before]
        after = [[cell.token_id for cell in row] for row in payload.window_after]
        if payload.warm_up:
            assert (payload.guesses, payload.added, len(turn.tree)) == ((), (), 1)
            assert after[:-1] == [row[1:] for row in before]
            assert len(after) == len(before) + 1
        else:
            assert list(map(len, before)) == [window - 1] + [window] * (ngram - 2)
            assert after[:-1] == [before[1][1:], *before[2:]]
            assert len(payload.added) + len(payload.refreshed) == window
        if index:
            assert payload.window_before == recorded[index - 1][1].window_after
    assert len(recorded) > ngram


def test_new_cells_are_the_argmax_of_the_newest_row(toy: Bench) -> None:
    for turn, payload in payloads_of(toy, {"window": 4, "ngram": 4}, toy.ids("a b a b"), 14):
        best = turn.output.logits.argmax(dim=-1).tolist()
        new = [cell.token_id for cell in payload.window_after[-1]]
        assert new == best[-len(new) :]


def test_guesses_are_the_pools_and_hits_are_what_the_target_agreed_with(toy: Bench) -> None:
    recorded = payloads_of(toy, {"pool_from_prompt": True, "guesses": 3}, toy.ids("a b c a b c a b c"), 40)
    assert any(payload.hit_length for _, payload in recorded)
    for turn, payload in recorded:
        assert payload.key == turn.tree.root
        assert len(payload.guesses) <= 3
        assert payload.hit_length == len(turn.verdict.accepted) == max((g.hits for g in payload.guesses), default=0)
        for guess in payload.guesses:
            assert tuple(turn.tree.token_ids[node] for node in guess.nodes) == guess.rest
            assert guess.hits == len(set(guess.nodes) & set(turn.verdict.accepted))
        for ngram in (*payload.added, *payload.refreshed):
            assert len(ngram.rest) == 4
            assert ngram.text.startswith(toy.target.texts.decode([ngram.key])) or "\ufffd" in ngram.text


def test_hits_count_what_the_target_agreed_with_also_where_the_budget_cuts() -> None:
    bench = make_toy(2)
    ids, cut = bench.ids("1 2 3 1 2 3 1 2 3"), 0
    for budget in range(5, 12):
        for turn, payload in payloads_of(bench, {"pool_from_prompt": True}, ids, budget):
            assert payload.hit_length == len(turn.verdict.accepted) == max((g.hits for g in payload.guesses), default=0)
            cut += len(turn.committed) <= len(turn.verdict.accepted)
    assert cut > 0


def test_ngrams_of_the_prompt_and_of_the_output_enter_the_pool_when_asked(toy: Bench) -> None:
    ids = toy.ids("one two three four")
    lane = toy.lane("lookahead", {"pool_from_prompt": True, "ngram": 3, "guesses": 0}, ids=ids, budget=20)
    for _ in lane.turns():
        context = [*ids, *lane.output]
        pool = lane.method._pool  # type: ignore[attr-defined]
        for end in range(3, len(context) + 1):
            assert tuple(context[end - 2 : end]) in pool.look_up(context[end - 3])


def test_the_window_begins_with_tokens_of_the_prompt(toy: Bench) -> None:
    ids = toy.ids("one two")
    _, first = payloads_of(toy, {"window": 20, "ngram": 8}, ids, 3)[0]
    assert len(first.window_before) == 1
    assert len(first.window_before[0]) == 20 + 8 - 3
    assert {cell.token_id for cell in first.window_before[0]} <= set(ids)


LARGE = [
    {},
    {"guesses": 0, "ngram": 3, "window": 20, "pool_from_prompt": True},
    {"window": 1, "ngram": 12, "guesses": 1},
    {"window": 60, "ngram": 8, "guesses": 60},
    {"window": 2, "ngram": 9, "guesses": 0, "pool_from_prompt": True},
]


@pytest.mark.parametrize("params", LARGE, ids=str)
def test_no_pass_has_more_rows_than_announced(params: dict[str, Any], toy: Bench) -> None:
    """The most is met by the window alone where there are no guesses."""
    ids = toy.ids("a b a c a d a e a f " * 12)[:200]
    most = Lookahead.max_rows(LookaheadParams(**params))
    rows = [len(turn.output.logits) - len(turn.tree) + 1 for turn, _ in payloads_of(toy, params, ids, 20)]
    passes = [len(turn.output.logits) for turn, _ in payloads_of(toy, params, ids, 20)]
    assert max(passes) <= most <= MAX_ROWS
    checked = LookaheadParams(**params)
    if checked.guesses:
        assert max(rows) == most - checked.guesses * (checked.ngram - 1)


def test_all_of_an_unlimited_pools_guesses_are_verified(toy: Bench) -> None:
    """A key that has been followed by many different tokens."""
    ids = [token for other in range(10, 90) for token in (5, other, other + 100)] + [5]
    lane = toy.lane("lookahead", {"guesses": 0, "ngram": 3, "pool_from_prompt": True}, ids=ids[:-1], budget=30)
    method = lane.method
    assert isinstance(method, Lookahead)
    turns = lane.turns()
    for _ in range(3):
        next(turns)
    assert len(method._pool.look_up(5)) >= 80
    proposal = method.propose([*ids[:-1], *lane.output, 5])
    assert len(method._shown.guesses) == len(method._pool.look_up(5))
    assert len(proposal.tree) > 2 * 80


@pytest.mark.parametrize(
    "values", [{"window": 100, "ngram": 12, "guesses": 100}, {"window": 100, "ngram": 12, "guesses": 40}]
)
def test_a_pass_of_absurd_size_is_refused_in_one_sentence(values: dict[str, int]) -> None:
    size = 100 * 11 + values["guesses"] * 11
    with pytest.raises(ExplorerError) as caught:
        parse(LookaheadParams, values, "Lookahead")
    assert str(caught.value) == (
        f"Lookahead: window 100, n-gram 12 and guesses {values['guesses']} make a pass of {size} rows; "
        "at most 1500 are allowed, so lower one of them."
    )


def test_the_originals_own_defaults_are_allowed() -> None:
    params = parse(LookaheadParams, {"window": 60, "ngram": 8, "guesses": 60}, "Lookahead")
    assert Lookahead.max_rows(params) == 60 * 7 + 60 * 7


def test_riders_of_an_empty_row_are_fine() -> None:
    """W = 1: level 0 is the root alone."""
    riders = window_riders([[], [5]])
    assert isinstance(riders, Riders)
    assert (riders.token_ids, riders.offsets, riders.visible.tolist()) == ([5], [1], [[True, True]])
