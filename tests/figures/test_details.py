"""The panel on one token: every node has its entry, and the sentence names the numbers that decided."""

import pytest
from hypothesis import given, settings

from explorer.figures.base import NEXT
from explorer.figures.details import DETAILS, FIELDS, common, key_of
from explorer.figures.explain import explain, explain_next
from explorer.figures.labels import logits, prob_fine
from explorer.figures.pieces import bytes_of
from tests.figures.checks import build
from tests.figures.test_any_step import steps
from tests.judged import branch_step, draft_model_step, jacobi_steps, top_k_step, typical_step
from tests.traces import example_step, header, make_step


@settings(max_examples=60, deadline=None)
@given(steps())
def test_every_node_and_the_targets_own_token_are_told_of(step):
    told = build(DETAILS, step)
    assert list(told["nodes"]) == [*(str(node.id) for node in step.nodes), NEXT]
    assert told["key"] in told["nodes"]
    fields = [name for name, *_ in common(header(), [step])["fields"]]
    for node in told["nodes"].values():
        assert node["t"]
        assert node["why"][0].isupper() or node["why"][0] in '"_'
        assert node["why"].endswith(".")
        assert set(node["v"]) <= set(fields) <= set(FIELDS)
        assert all(kin in told["nodes"] for kin in node.get("kin", []))
        assert sum(own for *_, own in node["here"]) <= 1


@pytest.mark.parametrize("step", [draft_model_step(), typical_step(), top_k_step()], ids=["trial", "typical", "top-k"])
def test_the_sentence_names_every_number_that_the_rule_went_by(step):
    for node in step.nodes[1:]:
        if node.decision is None:
            continue
        seen = [node.decision.ratio, node.decision.draw, node.decision.threshold, node.decision.residual_mass]
        words = explain(step, node)
        assert all(prob_fine(value) in words for value in seen if value is not None)
        passed = node.decision.accepted
        assert words.startswith("Accepted" if node.status == "accepted" else "It passed" if passed else "Rejected")


@pytest.mark.parametrize(
    ("step", "node", "words"),
    [
        (example_step(), 0, "The root: the target decided it in the step before."),
        (example_step(), 2, 'Not taken: after the root the target takes "␣" (0.06 for this one).'),
        (example_step(), 11, 'Never judged: further up, "1" was not taken.'),
        (draft_model_step(), 3, "Rejected: the chance was 0.4 (target "),
        (jacobi_steps()[2], 1, "Agrees with the target, but the whole block has to"),
    ],
)
def test_sentences(step, node, words):
    assert words[:24] in explain(step, step.nodes[node])


def test_the_node_that_decided_is_the_best_draft_that_was_turned_down_else_the_targets_token():
    assert key_of(draft_model_step()) == 3
    assert key_of(make_step("a", [(0, "b", 0.5)], [1], "c")) == NEXT
    lost = make_step("a", [(0, "b", 0.1), (0, "c", 0.8)], [], "d")
    assert key_of(lost) == 2


def test_what_was_not_added_says_so():
    ended = make_step("a", [(0, "b", 0.5)], [1], "c", committed=1)
    assert explain_next(ended).endswith("Not added, the output had ended.")
    cut = make_step("a", [(0, "b", 0.5)], [1], "c", committed=0)
    assert "had ended" in explain(cut, cut.nodes[1])


def test_two_drafters_of_one_node_are_both_named():
    told = build(DETAILS, branch_step())["nodes"]
    assert told["1"]["v"]["by"] == "EAGLE and context"
    assert told["3"]["v"]["by"] == "context"


def test_the_sentence_and_the_field_give_the_same_lead():
    step = example_step()
    own = step.next_token.model_copy(update={"origin": "argmax", "margin": 1.15})
    told = build(DETAILS, step.model_copy(update={"next_token": own}))["nodes"][NEXT]
    assert told["v"]["lead"] == logits(1.15)
    assert f"by {logits(1.15)} in logits" in told["why"]


def test_pieces_of_a_character_are_bytes_of_it_and_know_each_other():
    step = make_step("<E2>", [(0, "<82>", 0.9), (0, " x", 0.05), (1, "<AC>", 0.8), (3, "!", 0.1)], [1, 3], "<E2 82>")
    told = build(DETAILS, step)["nodes"]
    assert [told[node]["part"] for node in "013"] == [f'bytes {byte} of "€"' for byte in ("E2", "82", "AC")]
    assert told["1"]["kin"] == ["0", "3"]
    assert told[NEXT]["part"] == "bytes E2 82 of a character that other tokens complete"
    assert "part" not in told["2"]
    assert "part" not in told["4"]


def test_whole_characters_are_no_pieces_however_they_are_written():
    assert bytes_of("<41>") is None
    assert bytes_of("<E2 82 AC>") is None
    assert bytes_of("<E2 82>") == b"\xe2\x82"
    assert bytes_of("E2 82") is None
