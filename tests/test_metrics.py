import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.metrics import compare_outputs, is_tie, ms_per_token, pooled_tokens_per_pass, speedup, totals
from explorer.trace import LosslessCheck, OutputToken, Span
from tests.traces import grouped, make_step, make_trace

PREFILL = (
    Span(phase="prefill", start_ms=0, duration_ms=10),
    Span(phase="drafter-prefill", start_ms=10, duration_ms=2.5),
)


def lane(sizes, stop="length", method="eagle", draft_ms=2.0):
    return make_trace(method, method, grouped(sizes, method, draft_ms), stop=stop)


def test_the_first_token_belongs_to_no_pass():
    trace = lane([1, 1, 1], method="root", draft_ms=0.0)
    assert trace.totals.output_tokens == 4
    assert trace.totals.target_passes == 3
    assert trace.totals.tokens_per_target_pass == 1.0


def test_totals_count_what_the_steps_did():
    steps = grouped([3, 2, 4], "eagle", 2.0)
    tokens = make_trace("eagle", "eagle", steps).tokens
    made = totals(steps, tokens, PREFILL, draft_passes=7)
    assert made.output_tokens == 10
    assert made.target_passes == 3
    assert made.draft_passes == 7
    assert made.tokens_per_target_pass == pytest.approx(3.0)
    assert made.drafted_nodes == sum(len(step.nodes) - 1 for step in steps)
    assert made.accepted_drafts == 2 + 1 + 3
    assert made.prefill_ms == pytest.approx(12.5)
    assert made.decode_ms == pytest.approx(3 * (2.0 + 22.0 + 0.5))
    assert made.tokens_per_second == pytest.approx(9 / made.decode_ms * 1000)


def test_drafts_that_the_end_cut_off_do_not_count_as_accepted():
    step = make_step("a", [(0, "b", 0.5), (1, "c", 0.5)], [1, 2], "d", committed=1)
    made = totals([step], [], (), 0)
    assert made.accepted_drafts == 1
    assert made.tokens_per_target_pass == 1.0


def test_a_pass_may_commit_nothing():
    steps = [make_step("a", [], [], "b", committed=0, index=0), make_step("a", [], [], "b", index=1)]
    assert totals(steps, [], (), 0).tokens_per_target_pass == 0.5


def test_nothing_recorded_is_all_zero():
    token = OutputToken(id=1, text="a", step=None, source="prefill")
    made = totals([], [token], (), 0)
    assert (made.output_tokens, made.target_passes, made.tokens_per_target_pass) == (1, 0, 0.0)
    assert (made.decode_ms, made.tokens_per_second) == (0.0, 0.0)
    assert totals([], [], (), 0).output_tokens == 0


def test_pooling_leaves_out_each_runs_last_step():
    assert pooled_tokens_per_pass([lane([3, 2, 4]), lane([1, 5])]) == pytest.approx((3 + 2 + 1) / 3)
    assert pooled_tokens_per_pass([lane([4])]) == 0.0
    assert pooled_tokens_per_pass([]) == 0.0


@given(st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=5), max_size=4))
def test_pooled_figures_lie_between_one_and_the_longest_step(runs):
    runs = [sizes for sizes in runs if sum(sizes) < 24]
    pooled = pooled_tokens_per_pass([lane(sizes) for sizes in runs])
    kept = [size for sizes in runs for size in sizes[:-1]]
    assert pooled == pytest.approx(sum(kept) / len(kept) if kept else 0.0)


def test_speed_up_is_time_per_token_without_prefill():
    slow, fast = lane([1] * 6, method="root", draft_ms=0.0), lane([3, 3], draft_ms=2.0)
    assert ms_per_token(slow.steps) == pytest.approx(22.5)
    assert speedup(slow, fast) == pytest.approx(22.5 / (2 * 24.5 / 6))
    assert speedup(slow, slow) == 1.0
    assert speedup(slow, make_trace("x", "x", [])) is None
    assert speedup(make_trace("x", "x", []), slow) is None


class TestCompareOutputs:
    def test_equal_outputs(self):
        check = compare_outputs(lane([1] * 9, method="root", draft_ms=0.0), lane([3, 2, 4]))
        assert (check.equal, check.first_difference, check.margin) == (True, None, None)

    def test_the_first_difference_and_the_references_margin_there(self):
        reference = lane([1] * 9, method="root", draft_ms=0.0)
        tokens = list(lane([3, 2, 4]).tokens)
        tokens[4] = tokens[4].model_copy(update={"id": 5})
        tokens[6] = tokens[6].model_copy(update={"id": 6})
        other = lane([3, 2, 4]).model_copy(update={"tokens": tuple(tokens)})
        step = reference.steps[3].model_copy(
            update={"next_token": reference.steps[3].next_token.model_copy(update={"margin": 0.0004})}
        )
        steps = (*reference.steps[:3], step, *reference.steps[4:])
        check = compare_outputs(reference.model_copy(update={"steps": steps}), other)
        assert (check.equal, check.first_difference, check.margin) == (False, 4, 0.0004)

    def test_the_margin_of_the_prefills_token_is_not_recorded(self):
        check = compare_outputs(lane([2, 2]), make_trace("x", "x", [], first="other"))
        assert (check.first_difference, check.margin) == (0, None)

    def test_a_shorter_output_differs_where_it_ends(self):
        check = compare_outputs(lane([1] * 9, method="root", draft_ms=0.0), lane([3, 2]))
        assert (check.equal, check.first_difference) == (False, 6)
        assert check.margin == 2.5

    def test_a_longer_output_differs_where_the_reference_ends(self):
        check = compare_outputs(lane([3, 2]), lane([3, 2, 4]))
        assert (check.equal, check.first_difference, check.margin) == (False, 6, None)

    @pytest.mark.parametrize("stop", ["cancelled", "error"])
    def test_of_a_lane_that_was_stopped_the_common_part_counts(self, stop):
        full, part = lane([3, 2, 4]), lane([3, 2], stop=stop)
        assert compare_outputs(full, part).equal
        assert compare_outputs(part, full).equal
        wrong = part.model_copy(update={"tokens": (*part.tokens[:-1], part.tokens[-1].model_copy(update={"id": 9}))})
        assert compare_outputs(full, wrong).first_difference == 5

    def test_margins_are_only_those_of_the_targets_own_choice(self):
        # Position 1 of this reference was an accepted draft: the step's margin belongs to a later token.
        reference = lane([3, 2, 4])
        other = make_trace("x", "x", [make_step("```", [], [], "else")])
        check = compare_outputs(reference, other)
        assert (check.first_difference, check.margin) == (1, None)

    def test_nothing_equals_nothing(self):
        empty = lane([2]).model_copy(update={"tokens": ()})
        assert compare_outputs(empty, empty).equal


@pytest.mark.parametrize(("margin", "tie"), [(None, False), (0.0, True), (0.5, True), (0.75, False)])
def test_a_small_margin_is_a_tie_in_the_type_s_own_measure(margin: float | None, tie: bool) -> None:
    check = LosslessCheck(equal=False, first_difference=3, margin=margin)
    assert is_tie(check, "bfloat16") == tie
    assert is_tie(check, "float32") == (margin == 0.0)
