"""Made-up steps whose drafts were weighed by a rule, and steps of the methods that draft chains and blocks."""

from __future__ import annotations

from typing import Any

from explorer.payloads import (
    DraftedToken,
    DraftModelPayload,
    JacobiPayload,
    PromptLookupPayload,
    Record,
    WindowToken,
)
from explorer.trace import Decision, Step
from tests.traces import make_step, token_id


def words(*texts: str) -> tuple[WindowToken, ...]:
    """Tokens as payloads hold them."""
    return tuple(WindowToken(token_id=token_id(text), text=text) for text in texts)


def judged(step: Step, **decisions: Decision) -> Step:
    """The step with decisions, by node: `_1=Decision(...)`."""
    by_node = {int(name[1:]): decision for name, decision in decisions.items()}
    nodes = tuple(node.model_copy(update={"decision": by_node.get(node.id)}) for node in step.nodes)
    return step.model_copy(update={"nodes": nodes})


def with_own(step: Step, **changes: Any) -> Step:
    """The step with another origin or probability of the target's own token."""
    return step.model_copy(update={"next_token": step.next_token.model_copy(update=changes)})


def trial(accepted: bool, ratio: float, draw: float, mass: float | None = None, draft_prob: float = 0.5) -> Decision:
    """A trial of speculative sampling."""
    return Decision(
        rule="speculative", accepted=accepted, target_prob=ratio * draft_prob, draft_prob=draft_prob, ratio=ratio,
        draw=draw, residual_mass=mass,
    )  # fmt: skip


def draft_model_step(index: int = 2) -> Step:
    """Three drafts: two pass their trials, the third fails; the next token comes from the residual."""
    step = make_step(" the", [(0, " cat", 0.5), (1, " sat", 0.5), (2, " on", 0.5)], [1, 2], " in", index=index)
    step = judged(step, _1=trial(True, 1.0, 0.7), _2=trial(True, 0.6, 0.2), _3=trial(False, 0.4, 0.83, 0.35))
    drafted = tuple(
        DraftedToken(
            node=node.id, token_id=node.token_id, text=node.text, draft_prob=0.5,
            target_prob=node.decision.target_prob, ratio=node.decision.ratio, draw=node.decision.draw,
            residual_mass=node.decision.residual_mass, accepted=bool(node.decision.accepted),
        )
        for node in step.nodes[1:] if node.decision is not None
    )  # fmt: skip
    payload = DraftModelPayload(gamma=3, fed=words(" the"), drafted=drafted)
    return with_own(_holding(step, payload), origin="residual")


def _holding(step: Step, payload: Record) -> Step:
    return step.model_copy(update={"payload": payload.model_dump()})


def lookup_step(ngram: int = 2, accepted: int = 1) -> Step:
    """The newest two tokens stood before; three tokens were copied, of which `accepted` came again."""
    if not ngram:
        none = PromptLookupPayload(ngram=0, matched=None, matched_text="", copied=None, tokens=(), lead="see the")
        return _holding(make_step(" cat", [], [], " sat"), none)
    copied = (" sat", " on", " it")
    drafts = [(place, text, None) for place, text in enumerate(copied)]
    step = make_step(" cat", drafts, list(range(1, accepted + 1)), "!", source="prompt-lookup")
    payload = PromptLookupPayload(
        ngram=ngram, matched=(4, 4 + ngram), matched_text=" the cat", copied=(4 + ngram, 7 + ngram),
        tokens=words(*copied), before="Once", after=" and", lead=" see",
    )  # fmt: skip
    return _holding(step, payload)


TRUTH = ("a", "b", "c", "d", "e")
"""What the target writes after the root of the Jacobi block."""


def jacobi_steps(verification: str = "block", size: int = 4) -> list[Step]:
    """A block of random guesses that becomes the truth, one position a pass at the least."""
    guesses, steps = ["x", "y", "z"][: size - 1], []
    for iteration in range(size):
        # a guess is right once everything before it is right; the others wander
        right = next((place for place, guess in enumerate(guesses) if guess != TRUTH[place]), len(guesses))
        outputs = [TRUTH[place] if place <= right else f"{TRUTH[place]}{iteration}" for place in range(size)]
        whole = right == len(guesses)
        accepted = list(range(1, right + 1)) if whole else []
        step = make_step(
            "root", [(place, guess, None) for place, guess in enumerate(guesses)], accepted,
            outputs[right if whole else 0], index=iteration, source="jacobi", committed=None if whole else 0,
        )  # fmt: skip
        payload = JacobiPayload(
            iteration=iteration, position=10, block=words("root", *guesses), outputs=words(*outputs),
            random=len(guesses) if not iteration else 0, fixed=right + 1, verification=verification,
            committed=len(step.committed),
        )  # fmt: skip
        decisions = {
            f"_{place}": Decision(rule="block match", wanted=token_id(outputs[place - 1]))
            for place in range(1, size)
        }  # fmt: skip
        steps.append(judged(_holding(step, payload), **decisions))
        if whole:
            break
        guesses = outputs[: size - 1]
    return steps


def typical_step() -> Step:
    """Typical acceptance: a draft that the target did not prefer passes, another one fails."""
    step = make_step(" if", [(0, " x", 0.4), (0, " y", 0.3)], [1], ".")
    root = step.nodes[0].model_copy(update={"target_top": make_step(" if", [], [], " n").nodes[0].target_top})
    step = step.model_copy(update={"nodes": (root, *step.nodes[1:])})
    rule = {"rule": "typical", "threshold": 0.05, "entropy": 1.5}
    return judged(
        step, _1=Decision(accepted=True, target_prob=0.2, **rule), _2=Decision(accepted=False, target_prob=0.01, **rule)
    )


def top_k_step() -> Step:
    """Top-k match: the draft in the second place passes."""
    step = make_step(" if", [(0, " or", 0.4), (0, " y", 0.3)], [1], ".")
    root = step.nodes[0].model_copy(update={"target_top": make_step(" if", [], [], " n").nodes[0].target_top})
    step = step.model_copy(update={"nodes": (root, *step.nodes[1:])})
    rule = {"rule": "top-k", "top_k": 3}
    return judged(
        step,
        _1=Decision(accepted=True, target_prob=0.04, **rule),
        _2=Decision(accepted=False, target_prob=0.01, **rule),
    )


def branch_step() -> Step:
    """A tree with tokens that the context proposed: one of them alone, one together with the drafter."""
    step = make_step(" if", [(0, " n", 0.6), (0, " x", 0.2), (1, " is", None)], [1], ".")
    changed = (
        step.nodes[1].model_copy(update={"also": "prompt-lookup"}),
        step.nodes[2],
        step.nodes[3].model_copy(update={"source": "prompt-lookup"}),
    )
    return step.model_copy(update={"nodes": (step.nodes[0], *changed)})
