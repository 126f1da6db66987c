"""Each view by itself: marks equal what was recorded."""

from math import log10

import pytest

from explorer.figures import FIGURES
from explorer.figures.base import NEXT
from explorer.figures.frontier import CHARACTER, COLUMN, FRONTIER, PLOT, TOP, floor_of, marks_of, placed
from explorer.figures.heads import HEADS
from explorer.figures.labels import visible
from explorer.figures.payload import PAYLOAD
from explorer.figures.pool import POOL
from explorer.figures.probs import PROBS
from explorer.figures.swarm import LABEL
from explorer.figures.theme import THEMES
from explorer.figures.tree import TREE
from explorer.figures.window import WINDOW, cells_of, fates
from explorer.payloads import FeatureError, LookaheadPayload
from tests.figures.checks import LIGHT, assert_harmless, build, drawn_texts, nodes_trace
from tests.judged import branch_step, draft_model_step, jacobi_steps, lookup_step, top_k_step, typical_step
from tests.traces import HOSTILE, big_step, eagle_payload, example_step, lookahead_step, make_step, medusa_payload, top

EAGLE = example_step(eagle_payload(example_step()))
MEDUSA = example_step(medusa_payload())
STEPS = {
    "autoregressive": make_step(" if", [], [], " n"),
    "medusa": MEDUSA,
    "eagle": EAGLE,
    "eagle 25": big_step(25).model_copy(update={"payload": eagle_payload(big_step(25)).model_dump()}),
    "lookahead": lookahead_step(),
    "no hit": lookahead_step(hits=0),
    "warm-up": lookahead_step(warm_up=True),
    "draft-model": draft_model_step(),
    "prompt-lookup": lookup_step(),
    "no match": lookup_step(ngram=0),
    "jacobi": jacobi_steps()[0],
    "typical": typical_step(),
    "top-k": top_k_step(),
    "branch": branch_step(),
    "unknown": example_step({"kind": "telepathy", "block": [[1, 2], [3]], "frontier": 2}),
    "unreadable": example_step({"kind": "eagle", "frontier": "gone"}),
    "no kind": example_step({"frontier": []}),
}


@pytest.mark.parametrize("theme", THEMES.values(), ids=list(THEMES))
@pytest.mark.parametrize("step", STEPS.values(), ids=list(STEPS))
def test_every_view_that_applies_builds_a_valid_picture(step, theme):
    for view in FIGURES:
        if view.applies(step):
            build(view, step, theme)
        assert {*view.legend, *(view.rare(step) if view.applies(step) else ())} <= theme.roles.keys()


@pytest.mark.parametrize(
    ("name", "views"),
    [
        ("autoregressive", ["tree", "probs", "mask", "cache"]),
        ("medusa", ["tree", "probs", "heads", "mask", "cache"]),
        ("eagle", ["tree", "probs", "frontier", "mask", "cache"]),
        ("lookahead", ["tree", "probs", "window", "pool", "mask", "cache"]),
        ("draft-model", ["tree", "probs", "trials", "mask", "cache"]),
        ("prompt-lookup", ["lookup", "tree", "probs", "mask", "cache"]),
        ("jacobi", ["jacobi", "tree", "probs", "mask", "cache"]),
        ("typical", ["tree", "probs", "trials", "mask", "cache"]),
        ("unknown", ["tree", "probs", "mask", "cache", "payload"]),
        ("unreadable", ["tree", "probs", "mask", "cache", "payload"]),
        ("no kind", ["tree", "probs", "mask", "cache", "payload"]),
    ],
)
def test_views_choose_their_steps(name, views):
    assert [view.name for view in FIGURES if view.place == "tab" and view.applies(STEPS[name])] == views


def test_names_are_unique_and_titled():
    assert len({view.name for view in FIGURES}) == len(FIGURES)
    assert all(view.title and view.label.endswith(".") for view in FIGURES)


class TestProbs:
    def test_rows_are_the_path_its_losers_and_the_targets_own_token(self):
        rows = build(PROBS, EAGLE)["rows"]
        assert [(row[0]["t"], row[1]["t"], row[1]["k"]) for row in rows] == [
            ("+1", "␣", "accepted"), ("+1", "␣=", "rejected"),
            ("+2", "0", "accepted"), ("+2", "1", "rejected"), ("+2", "2", "rejected"),
            ("+3", ":", "accepted"), ("+3", "␣or", "rejected"),
            ("+4", "↵", "bonus"), ("+4", "␣#", "rejected"),
        ]  # fmt: skip
        assert [row[1]["node"] for row in rows if row[1]["k"] == "bonus"] == [NEXT]
        assert rows[3][2:4] == [
            {"t": "0.15", "k": "draft", "n": True, "bar": 0.15, "node": 4},
            {"t": "0.06", "k": "verify", "n": True, "bar": 0.06, "node": 4},
        ]

    def test_plain_decoding_shows_the_runners_up(self):
        rows = build(PROBS, STEPS["autoregressive"])["rows"]
        assert [row[1]["t"] for row in rows] == ["␣n", "␣or", "#"]
        assert 'the target takes "␣n"' in rows[1][4]["t"]


class TestHeads:
    @pytest.mark.parametrize("heads", [1, 3, 4, 5])
    def test_a_column_per_head_whatever_their_number(self, heads):
        step = example_step(medusa_payload(heads))
        built = build(HEADS, step, method="medusa")
        assert len(built["rows"]) == 3
        assert len(built["rows"][0]) == 2 * heads + 1

    def test_cells_know_what_became_of_their_token(self):
        first, second, third = build(HEADS, MEDUSA, method="medusa")["rows"]
        assert [cell.get("k") for cell in first[1::2]] == ["accepted", "accepted", "accepted", "rejected"]
        assert (second[7]["k"], second[7]["node"]) == ("bonus", NEXT)
        assert third[1]["k"] == "dropped"
        assert first[1] == {"t": "␣", "k": "accepted", "m": True, "node": 1}
        assert first[2] == {"t": "0.97", "k": "draft", "n": True, "bar": 0.97, "node": 1}
        caption = build(HEADS, MEDUSA, method="medusa")["caption"]
        assert caption == "The target agreed with the first choice of 3 of the 4 heads that this step could check."

    def test_typical_acceptance_adds_its_threshold(self):
        payload = medusa_payload().model_copy(update={"threshold": 0.0312, "entropy": 2.5})
        caption = build(HEADS, example_step(payload), method="medusa")["caption"]
        assert caption.endswith("Typical acceptance after the root: entropy 2.50 nats, threshold 0.0312.")

    def test_heads_of_unequal_length_leave_empty_cells(self):
        payload = medusa_payload(2).model_copy(update={"heads": (top(("a", 0.5)), top(("b", 0.5), ("c", 0.2)))})
        rows = build(HEADS, example_step(payload), method="medusa")["rows"]
        assert rows[1][1:3] == [{"t": ""}, {"t": ""}]


class TestFrontier:
    def test_every_pool_node_is_one_mark(self):
        built = build(FRONTIER, EAGLE)
        marks = sum(len(trace["x"]) for trace in nodes_trace(built))
        assert marks == 14
        ids = [ids[0] for trace in nodes_trace(built) for ids in trace["customdata"]]
        assert sorted(node for node in ids if node is not None) == list(range(1, 13))
        assert ids.count(None) == 2

    def test_scores_never_rise_from_parent_to_child(self):
        marks = marks_of(EAGLE, eagle_payload(example_step()))
        for mark in marks:
            if mark.item.parent is not None:
                assert mark.score <= marks[mark.item.parent].score

    def test_rings_are_the_expanded_nodes_and_the_cut_lies_below_the_kept(self):
        built = build(FRONTIER, EAGLE)
        rings = next(trace for trace in built["data"] if trace.get("name") == LIGHT.roles["expanded"].words)
        assert len(rings["x"]) == 8
        cut = next(trace for trace in built["data"] if "kept ↑" in trace.get("text", ()))
        kept = [node.score for node in EAGLE.nodes[1:]]
        assert 0.0004 < cut["y"][0] < min(kept)

    def test_a_score_of_zero_has_a_place(self):
        step = make_step("a", [(0, "b", 0.0), (0, "c", 0.5)], [], "d")
        built = build(FRONTIER, step.model_copy(update={"payload": eagle_payload(step).model_dump()}))
        assert min(nodes_trace(built)[1]["y"]) > 0

    def test_words(self):
        alt = build(FRONTIER, EAGLE)["alt"]
        assert "53 tokens scored, 12 kept by the re-ranking" in alt
        static = eagle_payload(example_step()).model_copy(update={"tree": "static"})
        assert "12 kept as the static tree" in build(FRONTIER, example_step(static))["alt"]

    def test_accepted_marks_tell_how_well_their_feature_was_foreseen(self):
        error = FeatureError(node=1, distance=0.2, cosine=0.97)
        payload = eagle_payload(example_step()).model_copy(update={"feature_errors": (error,)})
        texts = [text for trace in nodes_trace(build(FRONTIER, example_step(payload))) for text in trace["hovertext"]]
        assert [text for text in texts if "feature: error 0.20, cosine 0.97" in text] == [
            text for text in texts if text.startswith("<b>␣</b>")
        ]

    def test_labels_end_before_the_marks_of_the_next_column(self):
        for step in (EAGLE, STEPS["eagle 25"]):
            marks = placed(marks_of(step, eagle_payload(step)))
            bottom = floor_of(marks)
            height = {id(mark): PLOT * (log10(mark.score) - bottom) / (TOP - bottom) for mark in marks}
            for mark in marks:
                near = [
                    o for o in marks if o.depth == mark.depth + 1 and abs(height[id(o)] - height[id(mark)]) < LABEL / 2
                ]
                if mark.label_x is not None and near:
                    text = min(mark.room, len(visible(mark.item.text))) + (3 if mark.beside else 0)
                    assert mark.label_x + text * CHARACTER / COLUMN <= mark.depth + 1


class TestWindow:
    def test_every_guess_is_one_cell_at_its_position(self):
        payload = LookaheadPayload.model_validate(lookahead_step().payload)
        built = build(WINDOW, lookahead_step())
        grid = built["data"][0]
        filled = sum(cell is not None for row in grid["z"] for cell in row)
        guesses = sum(map(len, payload.window_before)) + len(payload.window_after[-1])
        assert filled == guesses + 1
        assert grid["text"][0][:4] == ["␣if", "␣n", "␣&lt;=", "␣1"]
        assert grid["text"][1][:2] == ["", "␣n"]
        assert grid["text"][3][3] == "␣1"

    def test_a_diagonal_read_downwards_is_the_n_gram_that_the_pool_took(self):
        payload = LookaheadPayload.model_validate(lookahead_step().payload)
        assert fates(payload, cells_of(payload)) == {0: "added", 1: "added", 2: "refreshed"}
        hover = build(WINDOW, lookahead_step())["data"][0]["hovertext"]
        assert "diagonal: ␣if ␣n ␣&lt;= ␣1<br>new in the pool" in hover[0][0]
        assert "young again" in hover[2][4]

    def test_while_the_window_grows_the_new_row_starts_one_further(self):
        payload = LookaheadPayload.model_validate(lookahead_step(warm_up=True).payload)
        new = [cell for cell in cells_of(payload) if cell.row == 1]
        assert [cell.position for cell in new] == [2, 3, 4]
        assert "still filling" in build(WINDOW, lookahead_step(warm_up=True))["alt"]


class TestPool:
    def test_rows_are_guesses_then_changes(self):
        rows = build(POOL, lookahead_step())["rows"]
        assert [row[0]["t"] for row in rows] == ["verified", "verified", "added", "added", "refreshed", "evicted"]
        assert rows[0][1]["t"] == "␣if␣n␣<=␣1"
        assert rows[0][2] == {"t": "2 of 3", "k": "hit", "bar": 0.667}
        assert rows[0][1]["node"] == 2
        assert rows[1][1]["node"] == 1

    @pytest.mark.parametrize(
        ("step", "words"),
        [
            (
                lookahead_step(),
                'Looked up "␣if": 2 guesses, best hit 2 tokens. The pool holds 31 n-grams under 12 keys.',
            ),
            (lookahead_step(hits=0), 'Looked up "␣if": 2 guesses, no hit.'),
            (lookahead_step(warm_up=True), "Nothing was looked up: the window is still filling."),
        ],
    )
    def test_caption(self, step, words):
        assert build(POOL, step)["caption"].startswith(words)

    def test_long_lists_are_cut_and_say_so(self):
        payload = LookaheadPayload.model_validate(lookahead_step().payload)
        many = payload.model_copy(update={"added": payload.added * 40})
        rows = build(POOL, make_step(" if", [], [], " n", payload=many))["rows"]
        assert [row[0]["t"] for row in rows if "more" in row[0]["t"]] == ["and 56 more"]


class TestPayload:
    def test_unknown_kinds_are_shown_entry_by_entry(self):
        rows = build(PAYLOAD, STEPS["unknown"])["rows"]
        assert [[cell["t"] for cell in row] for row in rows] == [
            ["block.0", "[1, 2]"],
            ["block.1", "[3]"],
            ["frontier", "2"],
        ]

    def test_a_known_kind_that_cannot_be_read_is_shown_too(self):
        assert build(PAYLOAD, STEPS["unreadable"])["caption"] == 'Recorded by the method, kind "eagle".'

    def test_endless_values_are_cut(self):
        endless = {"kind": "x", "text": "a" * 10_000, "deep": {"a": {"b": {"c": {"d": 1}}}}} | {
            f"k{i}": i for i in range(99)
        }
        rows = build(PAYLOAD, example_step(endless))["rows"]
        assert len(rows) == 41
        assert max(len(cell["t"]) for row in rows for cell in row) <= 170


def test_hostile_tokens_stay_text_in_every_picture():
    drafts = [(0, text, 0.05) for text in HOSTILE]
    step = make_step("<b>", drafts, [], "<script>")
    eagle = step.model_copy(update={"payload": eagle_payload(step).model_dump()})
    window = LookaheadPayload.model_validate(lookahead_step().payload)
    row = tuple(
        token.model_copy(update={"text": text})
        for token, text in zip(window.window_before[1] * 5, HOSTILE, strict=False)
    )
    hostile = window.model_copy(update={"window_before": (row, row, row), "key_text": "<b>%{x}"})
    looked = make_step(" if", [], [], " n", payload=hostile)
    for view, made in ((TREE, eagle), (FRONTIER, eagle), (WINDOW, looked)):
        assert_harmless(drawn_texts(build(view, made)))
