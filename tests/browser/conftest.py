"""The real app on the toy model, and a Chromium that fails a test on any error or any request to another host."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.browser.viewer import Viewer

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = Path(os.environ.get("CHROMIUM", "/usr/bin/chromium"))
START_SECONDS = 120


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here drives a browser."""
    for item in items:
        if Path(item.path).parent == Path(__file__).parent:
            item.add_marker(pytest.mark.browser)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the running app."""
    with running("app.py", tmp_path_factory.mktemp("server") / "log") as address:
        yield address


@pytest.fixture(scope="session")
def slow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The same with a toy that takes its time: for looking at a run while it runs."""
    with running("tests/browser/slow_app.py", tmp_path_factory.mktemp("slow") / "log") as address:
        yield address


@contextmanager
def running(script: str, log: Path) -> Iterator[str]:
    """The app in a process of its own, on a free port."""
    if not CHROMIUM.exists():
        pytest.skip(f"no Chromium at {CHROMIUM}: install Debian's chromium package")
    port = free_port()
    settings = {"DECODING_EXPLORER_MODEL": "toy", "GRADIO_SERVER_PORT": str(port), "GRADIO_SERVER_NAME": "127.0.0.1"}
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, script],
            cwd=ROOT,
            env=os.environ | settings | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
            stdout=output,
            stderr=output,
        )
        try:
            address = f"http://127.0.0.1:{port}/"
            await_page(address, process, log)
            yield address
        finally:
            process.terminate()
            process.wait(20)


def await_page(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(START_SECONDS * 4):
        if process.poll() is not None:
            pytest.fail(f"the app ended with {process.returncode}:\n{log.read_text()[-2000:]}")
        try:
            with urllib.request.urlopen(address, timeout=2):
                return
        except OSError:
            time.sleep(0.25)
    pytest.fail(f"the app did not answer in {START_SECONDS} s:\n{log.read_text()[-2000:]}")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    if not CHROMIUM.exists():
        pytest.skip(f"no Chromium at {CHROMIUM}: install Debian's chromium package")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(
            executable_path=str(CHROMIUM),
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        yield chromium
        chromium.close()


@pytest.fixture
def viewer(browser: Any, server: str) -> Iterator[Viewer]:
    one = Viewer(browser, server)
    yield one
    one.close()


@pytest.fixture
def slow_viewer(browser: Any, slow_server: str) -> Iterator[Viewer]:
    one = Viewer(browser, slow_server)
    yield one
    one.close()


@pytest.fixture
def other_slow_viewer(browser: Any, slow_server: str) -> Iterator[Viewer]:
    one = Viewer(browser, slow_server)
    yield one
    one.close()
