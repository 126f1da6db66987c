"""Trials: every number that decided is drawn as it was recorded."""

import pytest

from explorer.figures.base import payload_as
from explorer.figures.trials import FLOOR, TRIALS, trials_of, verdict
from explorer.payloads import DraftModelPayload
from tests.figures.checks import LIGHT, assert_harmless, build, drawn_texts, nodes_trace
from tests.judged import draft_model_step, judged, lookup_step, top_k_step, trial, typical_step
from tests.traces import HOSTILE, example_step, make_step


def named(built: dict, role: str) -> dict:
    return next(trace for trace in built["data"] if trace.get("name") == LIGHT.roles[role].words)


def marks(built: dict, name: str) -> list[float]:
    return [
        x for trace in built["data"] if trace.get("name") == name and trace["type"] == "scatter" for x in trace["x"]
    ]


def test_both_probabilities_ratio_draw_and_residual_are_the_records():
    step = draft_model_step()
    payload = payload_as(step, DraftModelPayload)
    assert payload is not None
    built = build(TRIALS, step)
    assert named(built, "draft")["x"] == [token.draft_prob for token in payload.drafted]
    assert named(built, "verify")["x"] == [token.target_prob for token in payload.drafted]
    assert named(built, "ratio")["x"] == [token.ratio for token in payload.drafted]
    assert marks(built, "accepted") == [token.draw for token in payload.drafted if token.accepted]
    assert marks(built, "rejected") == [token.draw for token in payload.drafted if not token.accepted]
    assert [verdict(step, each) for each in trials_of(step)] == [
        ["accepted"],
        ["accepted"],
        ["rejected", "residual 0.35"],
    ]
    assert "residual mass 0.35" in named(built, "draft")["hovertext"][2]


def test_typical_acceptance_shows_threshold_entropy_and_the_targets_probability():
    built = build(TRIALS, typical_step())
    strokes = named(built, "threshold")
    assert strokes["x"] == [0.05, 0.05]
    assert (marks(built, "accepted"), marks(built, "rejected")) == ([0.2], [0.01])
    assert built["layout"]["xaxis2"]["type"] == "log"
    assert verdict(typical_step(), trials_of(typical_step())[0]) == ["accepted", "entropy 1.50"]


def test_a_probability_of_zero_has_a_place_on_the_logarithmic_axis():
    step = typical_step()
    zero = step.nodes[2].decision.model_copy(update={"target_prob": 0.0})
    built = build(TRIALS, judged(step, _1=step.nodes[1].decision, _2=zero))
    assert marks(built, "rejected") == [FLOOR]


def test_top_k_match_shows_the_place():
    step = top_k_step()
    assert [verdict(step, each) for each in trials_of(step)] == [
        ["accepted", "place 2 of 3"], ["rejected", "place unknown of 3"],
    ]  # fmt: skip
    assert build(TRIALS, step)["layout"]["xaxis2"]["visible"] is False


def test_a_draft_that_passed_but_lost_to_a_longer_path_is_not_called_accepted():
    step = typical_step()
    lost = step.nodes[2].decision.model_copy(update={"accepted": True})
    step = judged(step, _1=step.nodes[1].decision, _2=lost)
    assert verdict(step, trials_of(step)[1])[0] == "passed"


def test_every_row_is_a_node_and_long_lists_are_cut():
    built = build(TRIALS, draft_model_step())
    (bars,) = nodes_trace(built)
    assert bars["customdata"] == [[1], [2], [3]]
    many = make_step("a", [(0, f"t{n}", 0.1) for n in range(40)], [], "b")
    many = judged(many, **{f"_{n}": trial(False, 0.1, 0.5, 0.9) for n in range(1, 41)})
    built = build(TRIALS, many)
    assert len(nodes_trace(built)[0]["x"]) == 24
    assert "40 drafts weighed" in built["alt"]
    assert "24 of them are drawn" in built["alt"]


@pytest.mark.parametrize("step", [example_step(), lookup_step(), make_step("a", [], [], "b")])
def test_a_plain_match_has_no_trials(step):
    assert not TRIALS.applies(step)


@pytest.mark.parametrize(
    ("step", "roles"),
    [(draft_model_step(), ["ratio", "passed", "failed"]), (typical_step(), ["threshold", "passed", "failed"]),
     (top_k_step(), [])],
)  # fmt: skip
def test_the_legend_names_what_the_rule_has(step, roles):
    assert TRIALS.rare(step) == roles


def test_hostile_tokens_stay_text():
    step = make_step("a", [(0, text, 0.5) for text in HOSTILE], [], "b")
    step = judged(step, **{f"_{n}": trial(False, 0.1, 0.5, 0.9) for n in range(1, len(step.nodes))})
    built = build(TRIALS, step)
    assert_harmless([*drawn_texts(built), *built["layout"]["yaxis"]["ticktext"]])
