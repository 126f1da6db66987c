"""What a new method needs: a class and a line in the list of methods."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from pydantic import Field
from torch import Tensor

from explorer import methods as registry
from explorer.cli import main
from explorer.errors import ExplorerError
from explorer.events import Ended, Event
from explorer.methods import METHODS, catalogue
from explorer.methods.base import Method, Outcome, Proposal, Setup
from explorer.params import Params
from explorer.requests import CompareRequest, LaneRequest
from explorer.session import Studio
from explorer.tree import Candidate, CandidateTree


def compare(studio: Studio, *lanes: LaneRequest | str) -> list[Event]:
    wanted = [LaneRequest(method=lane) if isinstance(lane, str) else lane for lane in lanes]
    request = CompareRequest(prompt="the rain", lanes=wanted, max_new_tokens=12)
    return list(studio.compare(request, threading.Event()))


class EchoParams(Params):
    """The new method's parameters."""

    echoes: int = Field(2, ge=1, le=5, description="Times that the last token is drafted.")


class Echo(Method):
    """A new method: drafts the root again and again."""

    name = "echo"
    title = "Echo"
    paper = "made up"
    summary = "Drafts the last token once more."
    Params = EchoParams

    def __init__(self, params: EchoParams, setup: Setup) -> None:
        self._echoes = params.echoes

    @classmethod
    def max_rows(cls, params: Any) -> int:
        return 1 + int(params.echoes)

    def start(self, context: list[int], taps: dict[str, Tensor]) -> None:
        pass

    def propose(self, context: list[int]) -> Proposal:
        chain = tuple(Candidate(context[-1], place, "echo") for place in range(self._echoes))
        return Proposal(CandidateTree(context[-1], chain))

    def observe(self, outcome: Outcome) -> None:
        pass


@pytest.fixture
def echo(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one line that a new method needs."""
    monkeypatch.setattr(registry, "METHODS", (*METHODS, Echo))


@pytest.mark.usefixtures("echo")
def test_a_new_method_is_a_class_and_a_line(studio: Studio, capsys: pytest.CaptureFixture[str]) -> None:
    """It is described, offered on the command line with its bounds, and runs beside the others."""
    row = next(row for row in catalogue() if row["name"] == "echo")
    assert [field["name"] for field in row["parameters"]] == ["echoes"]
    assert main(["methods", "--json"]) == 0
    assert '"name": "echo"' in capsys.readouterr().out
    assert next(row for row in studio.methods() if row["name"] == "echo")["available"]
    ended = compare(studio, "autoregressive", LaneRequest(method="echo", params={"echoes": "3"}))[-1]
    assert isinstance(ended, Ended)
    assert ended.comparison is not None
    assert ended.comparison.lossless["echo"].equal
    assert {len(step.nodes) for step in ended.comparison.lanes[1].steps} == {4}
    with pytest.raises(ExplorerError, match="Echo: echoes is '9', but must be a whole number from 1 to 5"):
        compare(studio, LaneRequest(method="echo", params={"echoes": "9"}))
