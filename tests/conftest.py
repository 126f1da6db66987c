"""Fixtures that many tests share: small targets, made once a session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

from explorer.session import Studio
from explorer.shelf import ShelfSettings
from tests.lanes import Bench, make_toy

DATA = Path(__file__).parent / "data"

# A busy machine must not fail a law; and the same commit must give the same result everywhere.
settings.register_profile(
    "steady", deadline=None, derandomize=True, max_examples=40, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("steady")


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    """Small matrices: more threads only make the tests slower."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def toy() -> Bench:
    """The toy target, its plain model and its drafters."""
    return make_toy()


@pytest.fixture(scope="session")
def studio() -> Studio:
    """A studio on the toy, loaded."""
    made = Studio(ShelfSettings(model="toy", device="cpu", dtype="float32"))
    list(made.shelf.watch())
    return made
