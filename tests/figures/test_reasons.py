"""Why a node was accepted or not, in words, for every rule."""

import pytest

from explorer.figures.probs import PROBS
from explorer.figures.reasons import branch_role, reason
from tests.figures.checks import build
from tests.judged import (
    branch_step,
    draft_model_step,
    jacobi_steps,
    judged,
    lookup_step,
    top_k_step,
    typical_step,
)
from tests.traces import example_step, make_step


@pytest.mark.parametrize(
    ("step", "node", "words"),
    [
        (example_step(), 1, "accepted: the target's first choice"),
        (example_step(), 2, 'rejected: the target takes "␣"'),
        (draft_model_step(), 1, "accepted: drew 0.70, under the ratio 1.00"),
        (draft_model_step(), 3, "rejected: drew 0.83, not under the ratio 0.40"),
        (typical_step(), 1,
         "accepted: the target's 0.20 is over the threshold 0.05, though the target preferred \"␣n\""),
        (typical_step(), 2, "rejected: the target's 0.01 is not over the threshold 0.05"),
        (top_k_step(), 1, 'accepted: place 2 with the target, the 3 best pass, though the target preferred "␣n"'),
        (top_k_step(), 2, "rejected: the target gives it 0.01, the 3 best pass"),
        (jacobi_steps()[0], 1, "the target takes another token here"),
        (jacobi_steps()[2], 1, "agrees with the target, but the whole block has to"),
    ],
)  # fmt: skip
def test_reasons(step, node, words):
    assert reason(step, step.nodes[node]) == words


def test_a_draft_that_passed_but_is_not_on_the_path_is_told_apart():
    step = typical_step()
    lost = step.nodes[2].decision.model_copy(update={"accepted": True})
    step = judged(step, _1=step.nodes[1].decision, _2=lost)
    assert reason(step, step.nodes[2]).startswith("passed, but another path won")


def test_the_targets_own_token_is_not_lost_where_a_block_is_not_settled():
    rows = build(PROBS, jacobi_steps()[0], method="jacobi")["rows"]
    assert rows[0][4]["t"] == "the target's own token: its first choice; not added yet, the block is not settled"
    ended = make_step("a", [(0, "b", 0.5)], [1], "c", committed=1)
    assert build(PROBS, ended)["rows"][1][4]["t"].endswith("not added, the output had ended")


def test_branch_nodes_are_marked_only_beside_a_drafter():
    assert [branch_role(branch_step(), node) for node in branch_step().nodes] == [None, "both", None, "copied"]
    assert {branch_role(lookup_step(), node) for node in lookup_step().nodes} == {None}
