"""Plain decoding, and any step without drafts."""

from __future__ import annotations

from explorer.events import LaneHeader
from explorer.narrate.words import Piece, gain, share, token
from explorer.trace import Step


def about_plain(header: LaneHeader, step: Step) -> list[Piece]:
    """What the target read and wrote."""
    if not step.committed:
        return [["", "This pass added nothing to the output yet: the target's next token would be "],
                token(step.next_token.text), ["", "."]]  # fmt: skip
    start = "Nothing was drafted. " if header.method != "autoregressive" else ""
    return plainly(step, start)


def plainly(step: Step, start: str) -> list[Piece]:
    """The target's own token and its runner-up, after a first sentence."""
    how = {"argmax": "its most likely next token is ", "sample": "drew ", "residual": "drew, after a rejection, "}
    own = step.next_token
    said = [["", f"{start}The target read "], token(step.nodes[0].text), ["", f" and {how[own.origin]}"],
            token(own.text), ["", f" ({share(own.probability)})"], *gain(step)]  # fmt: skip
    runner = next((top for top in step.nodes[0].target_top if top.token_id != own.token_id), None)
    if runner is not None:
        word = "The runner-up" if own.origin == "argmax" else "Among the others"
        said += [["", f" {word} "], token(runner.text), ["", f" got {share(runner.prob)}."]]
    return said
