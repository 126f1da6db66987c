"""The Jacobi block: rows are the passes so far, settled tokens stay, what changed is marked."""

import itertools

import pytest

from explorer.figures.base import payload_as
from explorer.figures.jacobi import JACOBI, MOST, block_of, cells_of, settled
from explorer.payloads import JacobiPayload
from tests.figures.checks import LIGHT, assert_harmless, assert_plain_json, build, drawn_texts
from tests.judged import TRUTH, jacobi_steps, words
from tests.traces import HOSTILE, example_step, header

STEPS = jacobi_steps()


def passes_of(steps) -> list[JacobiPayload]:
    return [payload for step in steps if (payload := payload_as(step, JacobiPayload)) is not None]


def test_rows_are_the_first_guesses_and_the_outputs_of_every_pass_of_the_block():
    built = JACOBI.picture(header("jacobi"), STEPS, LIGHT)
    assert_plain_json(built)
    grid = built["data"][0]["text"]
    assert grid[0] == ["root", "x", "y", "z", ""]
    for row, payload in enumerate(passes_of(STEPS), start=1):
        assert grid[row] == ["root", *(token.text for token in payload.outputs)]
    assert built["layout"]["yaxis"]["ticktext"] == ["guesses", "pass 1", "pass 2", "pass 3", "pass 4"]


def test_a_new_block_starts_a_new_picture():
    twice = [*STEPS, *jacobi_steps()]
    assert len(block_of(twice[: len(STEPS) + 1])) == 1
    assert len(block_of(twice)) == len(STEPS)
    assert block_of([*STEPS, example_step()]) == []


def test_only_the_latest_passes_are_shown():
    payload = passes_of(STEPS)[0]
    long = [
        STEPS[0].model_copy(update={"payload": payload.model_copy(update={"iteration": n}).model_dump()})
        for n in range(MOST + 5)
    ]
    shown = block_of(long)
    assert len(shown) == MOST
    assert [payload.iteration for payload in shown] == list(range(5, MOST + 5))
    assert JACOBI.picture(header("jacobi"), long, LIGHT)["layout"]["yaxis"]["ticktext"][0] == "pass 5"


def test_settled_tokens_are_right_and_never_change():
    passes = passes_of(STEPS)
    cells = cells_of(passes)
    for row in range(1, len(passes) + 1):
        kept = {cell.place: cell.text for cell in cells if cell.row == row and cell.role in ("fixed", "bonus")}
        assert kept == {11 + place: TRUTH[place] for place in range(settled(passes[row - 1]))}
    counts = [settled(payload) for payload in passes]
    assert all(before < after for before, after in itertools.pairwise(counts))


def test_changed_cells_are_those_whose_token_differs_from_the_guess():
    for row, payload in enumerate(passes_of(STEPS), start=1):
        pairs = zip(payload.block[1:], payload.outputs, strict=False)
        changed = {10 + place for place, (a, b) in enumerate(pairs, start=1) if a.token_id != b.token_id}
        drawn = {cell.place for cell in cells_of(passes_of(STEPS)) if cell.row == row and cell.before is not None}
        assert drawn == changed


def test_the_frontier_is_a_staircase_right_of_the_settled_tokens():
    built = JACOBI.picture(header("jacobi"), STEPS, LIGHT)
    stairs = next(trace for trace in built["data"] if trace.get("mode") == "lines")
    assert stairs["x"][::2] == [settled(payload) + 0.5 for payload in passes_of(STEPS)]
    assert stairs["x"] == sorted(stairs["x"])


def test_a_block_that_slides_keeps_its_positions():
    first = passes_of(STEPS)[0].model_copy(update={"verification": "prefix", "committed": 1})
    second = first.model_copy(
        update={"iteration": 1, "position": 11, "block": words("a", "b0", "c0", "new"), "random": 1, "fixed": 1}
    )
    steps = [STEPS[0].model_copy(update={"payload": payload.model_dump()}) for payload in (first, second)]
    roots = [(cell.row, cell.place) for cell in cells_of(block_of(steps)) if cell.role == "root"]
    assert roots == [(0, 10), (1, 10), (2, 11)]


def test_words():
    assert JACOBI.picture(header("jacobi"), STEPS[:2], LIGHT)["alt"] == (
        "Jacobi block of step 2, pass 2: two of 4 positions settled, nothing committed yet."
    )
    assert JACOBI.picture(header("jacobi"), STEPS, LIGHT)["alt"].endswith(
        "four of 4 positions settled, 4 tokens committed."
    )


@pytest.mark.parametrize("step", STEPS)
def test_a_step_by_itself_has_a_picture_too(step):
    assert build(JACOBI, step, method="jacobi")["data"]


def test_hostile_tokens_stay_text():
    payload = passes_of(STEPS)[0].model_copy(update={"block": words(*HOSTILE), "outputs": words(*HOSTILE)})
    built = build(JACOBI, STEPS[0].model_copy(update={"payload": payload.model_dump()}), method="jacobi")
    assert_harmless(drawn_texts(built))
