import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.figures.base import NEXT
from explorer.figures.theme import THEMES
from explorer.figures.tree import BRIEF, LARGE, TREE, brief_nodes, char_cells, plan, tidy_rows
from tests.figures.checks import LIGHT, assert_harmless, build, drawn_texts, nodes_trace
from tests.judged import branch_step
from tests.traces import HOSTILE, big_step, example_step, lookahead_step, make_step

STEPS = {
    "example": example_step(),
    "plain": make_step(" if", [], [], " n"),
    "none accepted": make_step(" if", [(0, " n", 0.6), (0, " x", 0.2)], [], " return"),
    "all accepted": make_step(" if", [(0, " n", 0.6), (1, " x", 0.2)], [1, 2], " return"),
    "cut": make_step(" if", [(0, " n", 0.6), (1, " x", 0.2)], [1, 2], " return", committed=1),
    "pool": lookahead_step(),
    "25 nodes": big_step(25),
    "60 nodes": big_step(60),
    "deep chain": make_step("a", [(place, "b", 0.5) for place in range(40)], [1, 2], "c"),
}


@pytest.mark.parametrize("step", STEPS.values(), ids=list(STEPS))
@pytest.mark.parametrize("theme", THEMES.values(), ids=list(THEMES))
def test_every_node_and_the_targets_own_token_are_drawn_once(step, theme):
    built = build(TREE, step, theme)
    (points,) = nodes_trace(built)
    assert [ids[0] for ids in points["customdata"]] == [*range(len(step.nodes)), NEXT]
    boxes = [trace for trace in built["data"] if trace.get("fill") == "toself"]
    assert sum(1 + trace["x"].count(None) for trace in boxes) == len(step.nodes) + 1
    tokens = next(trace for trace in built["data"] if trace["mode"] == "text")
    assert len(tokens["text"]) == len(step.nodes) + 1


@pytest.mark.parametrize("step", STEPS.values(), ids=list(STEPS))
def test_boxes_neither_overlap_nor_leave_the_drawing(step):
    boxes, sizes = plan(step)
    built = build(TREE, step)
    for box in boxes:
        assert 0 <= box.left < box.right <= built["min_width"]
        assert 0 <= box.middle - sizes.half < box.middle + sizes.half <= built["layout"]["height"]
    for column in {box.left for box in boxes}:
        middles = sorted(box.middle for box in boxes if box.left == column)
        assert all(low - high >= 2 * sizes.half for high, low in itertools.pairwise(middles))


@pytest.mark.parametrize("step", STEPS.values(), ids=list(STEPS))
def test_texts_fit_into_their_boxes(step):
    boxes, sizes = plan(step)
    for box in boxes:
        width = char_cells(box.text) * sizes.font * 0.6 + char_cells(box.number) * (sizes.font - 2.5) * 0.6
        assert width + 8 <= box.right - box.left


def test_statuses_have_their_roles():
    boxes, _ = plan(example_step())
    assert [box.role for box in boxes] == [
        "root", "accepted", "rejected", "accepted", "rejected", "rejected", "accepted", "rejected",
        "unreached", "unreached", "rejected", "unreached", "unreached", "bonus",
    ]  # fmt: skip
    built = build(TREE, example_step())
    lines = {(trace["line"]["color"], trace["line"]["dash"]) for trace in built["data"] if trace.get("fill")}
    roles = [LIGHT.roles[name] for name in ("root", "accepted", "bonus", "rejected", "unreached")]
    assert lines == {(role.line, role.dash) for role in roles}


def test_what_the_end_of_the_output_cut_off_is_neither_accepted_nor_bonus():
    boxes, _ = plan(STEPS["cut"])
    assert [box.role for box in boxes] == ["root", "accepted", "cut", "cut"]


def test_the_targets_own_token_stands_after_the_accepted_path_in_the_next_column():
    boxes, _ = plan(example_step())
    own, end = boxes[-1], boxes[6]
    assert own.parent == 6
    assert own.left > end.right
    assert own.text == "↵"


def test_the_number_is_the_drafters_probability_or_else_the_targets():
    boxes, _ = plan(example_step())
    assert [box.number for box in boxes[:3]] == ["root", "0.97", "0.01"]
    pool, _ = plan(lookahead_step())
    assert [box.number for box in pool[:3]] == ["root", "0.90", "0.90"]


def test_hostile_tokens_stay_text():
    drafts = [(0, text, 0.1) for text in HOSTILE]
    built = build(TREE, make_step("<img src=x onerror=alert(1)>", drafts, [], "</b>"))
    assert_harmless(drawn_texts(built))


def test_hover_says_what_the_record_says():
    (points,) = nodes_trace(build(TREE, example_step()))
    about = points["hovertext"]
    assert 'rejected: the target takes "0"' in about[4]
    assert "drafter 0.15 · path 0.145 · target 0.06" in about[4]
    assert "accepted: the target's first choice" in about[1]
    assert "not reached" in about[8]
    assert "target's own token, its first choice" in about[-1]


def test_a_picture_has_words():
    assert build(TREE, example_step())["alt"] == (
        'Draft tree of step 9: 12 drafted tokens below "␣<="; accepted: "␣" → "0" → ":"; the target\'s own token: "↵".'
    )


def test_a_step_stays_small():
    assert len(json.dumps(build(TREE, big_step(25)), separators=(",", ":"))) < 12_500


@given(st.lists(st.integers(0, 1_000), max_size=40))
def test_tidy_rows_keep_reading_order_and_centre_parents(picks):
    children: list[list[int]] = [[]]
    for pick in picks:
        children[pick % len(children)].append(len(children))
        children.append([])
    rows = tidy_rows(children)
    leaves = [node for node, below in enumerate(children) if not below]
    assert sorted(rows[leaf] for leaf in leaves) == [float(row) for row in range(len(leaves))]
    for node, below in enumerate(children):
        assert [rows[child] for child in below] == sorted(rows[child] for child in below)
        if below:
            assert rows[below[0]] <= rows[node] <= rows[below[-1]]


def test_wide_characters_count_double():
    assert char_cells("ab") == 2
    assert char_cells("日本") == 4
    assert char_cells("e\u0301") == 1


def test_what_the_context_proposed_has_a_mark_of_its_own_shape():
    built = build(TREE, branch_step())
    marks = {trace["name"]: trace for trace in built["data"] if trace.get("name")}
    filled, hollow = (marks[LIGHT.roles[role].words]["marker"] for role in ("copied", "both"))
    assert filled["color"] == filled["line"]["color"]
    assert hollow["color"] != hollow["line"]["color"]
    boxes, sizes = plan(branch_step())
    assert marks[LIGHT.roles["copied"].words]["x"] == [boxes[3].left + 1]
    assert marks[LIGHT.roles["both"].words]["y"] == [boxes[1].middle - sizes.half + 1]
    hover = nodes_trace(built)[0]["hovertext"]
    assert "copied from the context" in hover[3]
    assert "by the drafter and by the context" in hover[1]
    assert TREE.rare(branch_step()) == ["copied", "both"]
    assert not TREE.rare(example_step())


@pytest.mark.parametrize("step", STEPS.values(), ids=list(STEPS))
def test_a_large_tree_has_a_short_version(step):
    built = build(TREE, step)
    assert ("brief" in built) == (len(step.nodes) - 1 > LARGE)
    if "brief" in built:
        short = built["brief"]
        (points,) = nodes_trace(short)
        kept = [ids[0] for ids in points["customdata"]]
        judged = {node.id for node in step.nodes if node.status in ("root", "accepted", "rejected")}
        assert judged <= set(kept)
        assert kept[-1] == NEXT
        assert len(kept) - 2 <= max(BRIEF, len(judged) - 1)
        assert all(step.nodes[node].parent in kept for node in kept[1:-1])
        assert short["layout"]["height"] <= built["layout"]["height"]
        assert short["alt"].startswith(built["alt"])
        assert short["words"] != short["all"]


def test_the_short_version_keeps_the_best_of_what_nobody_judged():
    step = make_step("a", [(0, "b", 0.5), *((1, f"c{place}", 0.01 * place) for place in range(1, 40))], [], "x")
    kept = brief_nodes(step)
    left = [node for node in step.nodes[1:] if node.id not in kept]
    unjudged = [node for node in step.nodes[1:] if node.id in kept and node.status == "unreached"]
    assert unjudged
    assert min(node.score for node in unjudged) >= max(node.score for node in left)
