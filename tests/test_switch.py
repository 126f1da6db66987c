"""Another model takes the place of the one that answers: waiting in line, for everybody, or not at all."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from explorer import shelf as shelves
from explorer import stock
from explorer.errors import ExplorerError
from explorer.events import Ended, Event, Preparing, Queued, Started
from explorer.pairs import PAIRS
from explorer.requests import CompareRequest, LaneRequest
from explorer.session import Studio
from explorer.shelf import Shelf, ShelfSettings
from explorer.ui.models import INSIDE, model_value, switched
from tests.hub_server import OLD, FakeHub

CONFORMANCE = Path(__file__).parent / "data" / "conformance"
TINY = CONFORMANCE / "tiny-target"
PAIR = next(pair for pair in PAIRS if {each.kind for each in pair.drafters} >= {"medusa", "eagle"})


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A hub where a pair's target is the tiny model; of its drafters the Medusa heads can be had."""
    made = FakeHub()
    made.add(PAIR.target.name, TINY, str(PAIR.target.revision))
    made.add("somebody/tiny", TINY)
    heads = next(each.repo.name for each in PAIR.drafters if each.kind == "medusa")

    def resolve(name: str, revision: str | None = None) -> Path:
        if name != heads:
            raise ExplorerError(f"There is no repository {name} on the Hugging Face hub.")
        return CONFORMANCE / "medusa-heads"

    monkeypatch.setattr(stock, "resolve", resolve)
    monkeypatch.setenv("DECODING_EXPLORER_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("DECODING_EXPLORER_OFFLINE", raising=False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    with made.serve() as address:
        monkeypatch.setenv("HF_ENDPOINT", address)
        yield made


def toy_studio(**values: Any) -> Studio:
    studio = Studio(ShelfSettings(**({"model": "toy", "device": "cpu", "dtype": "float32"} | values)))
    list(studio.shelf.watch())
    return studio


def ask(*methods: str, tokens: int = 4) -> CompareRequest:
    lanes = [LaneRequest(method=name) for name in methods]
    return CompareRequest(prompt="Hello", lanes=lanes, max_new_tokens=tokens, raw=True)


def texts(events: list[Event]) -> list[str]:
    return [event.message for event in events if isinstance(event, Preparing)]


def switch(studio: Studio, model: str) -> list[Event]:
    return list(studio.switch(model, threading.Event()))


def test_a_pair_takes_the_place_with_the_drafters_that_it_could_get(hub: FakeHub) -> None:
    studio = toy_studio()
    said = texts(switch(studio, PAIR.id))
    assert any(text.startswith(f"Getting the model: downloading {PAIR.target.name}: ") for text in said)
    assert said[-2:] == ["Warming up.", "Measuring how long passes take."]
    assert (studio.shelf.model, studio.shelf.title) == (PAIR.id, PAIR.title)
    assert studio.shelf.target.info.revision == PAIR.target.revision
    assert studio.shelf.target.tokenizer.chat_template == PAIR.chat_template
    available = {row["name"]: row["available"] for row in studio.methods()}
    assert available["medusa"]
    assert available["lookahead"]
    assert not available["eagle"]
    reason = next(row["reason"] for row in studio.methods() if row["name"] == "eagle")
    assert "There is no repository" in reason
    assert [row["id"] for row in studio.models() if row["current"]] == [PAIR.id]
    ended = list(studio.compare(ask("autoregressive", "medusa"), threading.Event()))[-1]
    assert isinstance(ended, Ended)
    assert ended.comparison is not None
    assert ended.comparison.lanes[0].model.id == PAIR.target.name
    assert ended.comparison.lossless["medusa"].equal


def test_the_first_model_can_come_back(hub: FakeHub) -> None:
    studio = toy_studio()
    switch(studio, PAIR.id)
    switch(studio, "toy")
    assert studio.shelf.model == "toy"
    assert all(row["available"] for row in studio.methods())


def test_the_earlier_model_is_let_go(hub: FakeHub) -> None:
    studio = toy_studio()
    earlier = weakref.ref(studio.shelf.target.transformers_model)
    switch(studio, PAIR.id)
    gc.collect()
    assert earlier() is None


def failure(studio: Studio, model: str) -> str:
    held = studio.shelf.target
    with pytest.raises(ExplorerError) as caught:
        switch(studio, model)
    assert studio.shelf.target is held
    assert studio.shelf.model == "toy"
    ended = list(studio.compare(ask("autoregressive", "medusa"), threading.Event()))[-1]
    assert isinstance(ended, Ended)
    assert ended.state == "done"
    return str(caught.value)


def test_a_failed_switch_leaves_the_running_model_unharmed(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    studio = toy_studio()
    other = next(pair for pair in PAIRS if pair is not PAIR)
    assert f"There is no model {other.target.name} on the Hugging Face hub" in failure(studio, other.id)
    files = hub.repos[PAIR.target.name][str(PAIR.target.revision)]
    files["model.safetensors"] = files["model.safetensors"][:4000]
    assert "is damaged" in failure(studio, PAIR.id)
    monkeypatch.setattr(stock, "load_target", lambda *_, **__: {}["secret"])
    assert failure(studio, PAIR.id) == shelves.INSIDE


def test_only_what_is_on_offer_may_be_chosen(hub: FakeHub) -> None:
    """The page is public: nobody may make it read a folder or fetch a repository of their choice."""
    studio = toy_studio()
    for name in ("somebody/tiny", str(TINY), "/etc", ""):
        assert "not on offer here" in failure(studio, name)


def test_switching_may_be_forbidden(hub: FakeHub) -> None:
    studio = toy_studio(switching=False)
    assert "The model of this page is fixed" in failure(studio, PAIR.id)
    value = model_value(studio)
    assert (value["switching"], value["models"]) == (False, [])


def test_a_switch_waits_until_a_run_has_ended(hub: FakeHub) -> None:
    studio = toy_studio()
    run = studio.compare(ask("autoregressive", tokens=20), threading.Event())
    assert isinstance(next(event for event in run if isinstance(event, Started)), Started)
    waiting = studio.switch(PAIR.id, threading.Event())
    assert next(waiting) == Queued(1)
    held = studio.shelf.target
    rest = list(run)
    assert isinstance(rest[-1], Ended)
    assert rest[-1].comparison is not None
    assert rest[-1].comparison.lanes[0].model.id == "toy"
    assert studio.shelf.target is held
    list(waiting)
    assert studio.shelf.model == PAIR.id


def test_a_run_that_waited_meets_the_model_that_answers_then(hub: FakeHub) -> None:
    studio = toy_studio()
    switching = studio.switch(PAIR.id, threading.Event())
    next(switching)
    waiting = studio.compare(ask("autoregressive", "eagle"), threading.Event())
    assert next(waiting) == Queued(1)
    list(switching)
    with pytest.raises(ExplorerError, match="EAGLE cannot run: There is no repository"):
        list(waiting)


def test_a_viewer_who_leaves_stops_the_switch(hub: FakeHub) -> None:
    studio = toy_studio()
    switching = studio.switch(PAIR.id, threading.Event())
    next(switching)
    switching.close()
    assert studio.shelf.model == "toy"
    assert isinstance(list(studio.compare(ask("autoregressive"), threading.Event()))[-1], Ended)


def test_a_model_that_failed_at_first_does_not_stand_in_the_way(hub: FakeHub, tmp_path: Path) -> None:
    studio = Studio(ShelfSettings(model=str(tmp_path), device="cpu", dtype="float32"))
    switch(studio, PAIR.id)
    assert studio.shelf.model == PAIR.id


def test_a_hub_id_is_loaded_like_a_folder(hub: FakeHub) -> None:
    shelf = Shelf(ShelfSettings(model="somebody/tiny", device="cpu", dtype="float32"))
    list(shelf.watch())
    info = shelf.target.info
    assert (info.id, info.revision, shelf.title) == ("somebody/tiny", OLD, "tiny")
    assert shelf.missing("medusa") == "There is no medusa drafter for tiny; train one or name its folder."


def test_a_drafter_that_was_named_has_to_load(hub: FakeHub) -> None:
    heads = next(each.repo.name for each in PAIR.drafters if each.kind == "medusa")
    drafters: dict[str, str | Path] = {"medusa": heads, "eagle": CONFORMANCE / "eagle-draft"}
    shelf = Shelf(ShelfSettings(model=str(TINY), device="cpu", dtype="float32", drafters=drafters))
    list(shelf.watch())
    assert shelf.drafter("medusa").info.id == "medusa-heads"
    broken = Shelf(ShelfSettings(model=str(TINY), device="cpu", dtype="float32", drafters={"medusa": "nobody/heads"}))
    with pytest.raises(ExplorerError, match="There is no repository nobody/heads"):
        list(broken.watch())


def test_the_picker_tells_how_far_a_switch_is(hub: FakeHub) -> None:
    studio = toy_studio()
    values = list(switched(studio, PAIR.id))
    assert values[0]["busy"]
    assert all(value["busy"] for value in values[:-1])
    assert (values[-1]["message"], values[-1]["busy"], values[-1]["failed"]) == (
        f"{PAIR.title} answers now.",
        False,
        False,
    )
    assert PAIR.title in values[-1]["line"]
    assert any(value["share"] is not None for value in values)


@pytest.mark.parametrize("wanted", [None, 3, {}, "", "nothing/such", "../.."])
def test_the_picker_refuses_what_it_did_not_offer(hub: FakeHub, wanted: Any) -> None:
    studio = toy_studio()
    last = list(switched(studio, wanted))[-1]
    assert last["failed"]
    assert "\n" not in last["message"]
    assert "toy" in last["line"]


def test_a_defect_in_a_switch_shows_nothing_of_its_insides(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    studio = toy_studio()
    monkeypatch.setattr(studio, "switch", lambda *_: {}["secret"])
    assert list(switched(studio, PAIR.id))[-1]["message"] == INSIDE
