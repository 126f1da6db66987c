"""Laws that hold for any step, however odd its tree and its tokens."""

from hypothesis import given, settings
from hypothesis import strategies as st

from explorer.figures import FIGURES
from explorer.figures.base import NEXT
from explorer.figures.theme import THEMES
from explorer.figures.tree import TREE, plan
from explorer.narrate import narrate
from explorer.trace import Decision, Step
from tests.figures.checks import assert_harmless, build, drawn_texts, nodes_trace
from tests.traces import HOSTILE, eagle_payload, header, make_step, medusa_payload

TEXTS = st.sampled_from([*HOSTILE, " the", "\n", "0", " n"]) | st.text(max_size=6)
PROBS = st.none() | st.floats(0, 1)


@st.composite
def steps(draw: st.DrawFn) -> Step:
    """Any tree of up to 30 drafts, any accepted path in it, cut anywhere."""
    drafts = []
    for place in range(draw(st.integers(0, 30))):
        drafts.append((draw(st.integers(0, place)), draw(TEXTS), draw(PROBS)))
    path = [draw(st.integers(0, len(drafts)))]
    while path[-1]:
        path.append(drafts[path[-1] - 1][0])
    accepted = path[-2::-1]
    step = make_step(draw(TEXTS), drafts, accepted, draw(TEXTS), committed=draw(st.integers(0, len(accepted) + 1)))
    step = with_decisions(step, draw)
    kind = draw(st.sampled_from([None, "medusa", "eagle", "other"]))
    payload = {"medusa": medusa_payload, "eagle": lambda: eagle_payload(step)}.get(kind or "", lambda: None)()
    held = payload.model_dump() if payload is not None else {"kind": "other"} if kind else None
    return step.model_copy(update={"payload": held})


RULES = st.sampled_from([None, "greedy match", "block match", "speculative", "typical", "top-k"])


def with_decisions(step: Step, draw: st.DrawFn) -> Step:
    """Weighed by any rule, with any numbers; some nodes come from the context too."""
    rule = draw(RULES)
    nodes = [step.nodes[0]]
    for node in step.nodes[1:]:
        numbers = {"draw": draw(st.floats(0, 1)), "ratio": draw(st.floats(0, 1)), "residual_mass": draw(PROBS)}
        if rule in ("typical", "top-k"):
            numbers = {"threshold": draw(st.floats(0, 1)), "entropy": draw(st.floats(0, 9))}
        if rule == "top-k":
            numbers = {"top_k": draw(st.integers(1, 50))}
        if rule in (None, "greedy match", "block match"):
            numbers = {"wanted": draw(st.integers(0, 9))}
        weighed = Decision(
            rule=rule or "", accepted=draw(st.none() | st.booleans()), target_prob=draw(PROBS), **numbers
        )
        source = draw(st.sampled_from(["eagle", "prompt-lookup"]))
        also = draw(st.sampled_from([None, "prompt-lookup"]))
        nodes.append(node.model_copy(update={"decision": weighed if rule else None, "source": source, "also": also}))
    return step.model_copy(update={"nodes": tuple(nodes)})


@settings(max_examples=60, deadline=None)
@given(steps(), st.sampled_from(list(THEMES.values())))
def test_every_picture_is_valid_and_harmless(step, theme):
    for view in FIGURES:
        if view.applies(step):
            built = build(view, step, theme)
            if view.kind == "plotly":
                assert_harmless(drawn_texts(built))


@settings(max_examples=60, deadline=None)
@given(steps())
def test_every_node_is_drawn_once_with_its_status(step):
    boxes, _ = plan(step)
    assert [box.node for box in boxes] == [*range(len(step.nodes)), NEXT]
    for box, node in zip(boxes, step.nodes, strict=False):
        assert box.role == node.status or (box.role == "cut" and node.status == "accepted")
    kept = sum(box.role == "accepted" for box in boxes) + (boxes[-1].role == "bonus")
    assert kept == len(step.committed)
    (points,) = nodes_trace(build(TREE, step))
    assert len(points["x"]) == len(step.nodes) + 1


@settings(max_examples=60, deadline=None)
@given(steps(), st.sampled_from(["eagle", "medusa", "autoregressive", "other"]))
def test_every_step_has_its_sentence(step, method):
    pieces = narrate(header(method), step)
    said = "".join(text for _, text in pieces)
    assert said[0].isupper()
    assert said.endswith(".")
    assert {kind for kind, _ in pieces} <= {"", "strong", "token"}
    if step.committed:
        unit = "token" if len(step.committed) == 1 else "tokens"
        assert ["strong", f"{len(step.committed)} {unit} from one pass"] in pieces
