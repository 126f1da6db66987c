"""The named endpoint, called over HTTP as docs/api.md says; and that nothing else of the page can be called by name."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError

from explorer.session import Studio
from explorer.trace import Comparison
from explorer.ui.pages import build, launch_options

DOCUMENT = (Path(__file__).resolve().parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
SETTINGS = {"max_new_tokens": 12}


@pytest.fixture(scope="module")
def address(studio: Studio) -> Iterator[str]:
    page = build(studio)
    _, local, _ = page.launch(server_name="127.0.0.1", prevent_thread_lock=True, quiet=True, **launch_options())
    yield local.rstrip("/")
    page.close()


@pytest.fixture(scope="module")
def client(address: str) -> Client:
    return Client(address, verbose=False)


def called(client: Client, *inputs: Any) -> list[dict[str, Any]]:
    job = client.submit(*inputs, api_name="/compare")
    return [event for events in job for event in events]


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", DOCUMENT, re.DOTALL)
    assert found
    return found[1]


def test_a_comparison_streams(client: Client) -> None:
    events = called(client, "Count to ten.", ["autoregressive", {"method": "eagle", "params": {"depth": 2}}], SETTINGS)
    names = [event["event"] for event in events]
    assert names[0] == "started"
    assert names.index("first") < names.index("step") < names.index("lane") < names.index("checked")
    assert names[-1] == "end"
    comparison = Comparison.model_validate(events[-1]["comparison"])
    assert [trace.method for trace in comparison.lanes] == ["autoregressive", "eagle"]
    assert comparison.lanes[1].params["depth"] == 2
    for trace in comparison.lanes:
        steps = [event for event in events if event["event"] == "step" and event["lane"] == trace.lane]
        first = next(event for event in events if event["event"] == "first" and event["lane"] == trace.lane)
        assert first["text"] + "".join(step["text"] for step in steps) == "".join(token.text for token in trace.tokens)
        assert [step["step"] for step in steps] == list(range(1, len(trace.steps) + 1))
        assert steps[-1]["output_tokens"] == len(trace.tokens)


@pytest.mark.parametrize(
    ("inputs", "sentence"),
    [
        (("", ["eagle"], {}), "The prompt is empty"),
        (("x" * 200_000, ["eagle"], {}), "200,000 characters"),
        (("Hi", ["nothing"], {}), "no method 'nothing'"),
        (("Hi", [], {}), "1 to 8 lanes, not 0"),
        (("Hi", ["jacobi"] * 9, {}), "1 to 8 lanes, not 9"),
        (("Hi", "eagle", {}), "Lanes must be a list"),
        (("Hi", [3], {}), "Lanes must be a list"),
        (("Hi", [{"method": "eagle", "params": {"depth": 99}}], {}), "must be a whole number from 1 to 10"),
        (("Hi", ["eagle"], {"seed": -1}), "Seed is -1"),
        (("Hi", ["eagle"], {"colour": "red"}), "no parameter 'colour'"),
        (("Hi", ["eagle"], [1]), "Settings must be an object"),
    ],
)
def test_refusals_are_sentences(client: Client, inputs: tuple[Any, ...], sentence: str) -> None:
    with pytest.raises(AppError, match=re.escape(sentence)) as caught:
        client.predict(*inputs, api_name="/compare")
    assert "Traceback" not in str(caught.value)


def test_a_cancelled_run_frees_the_device(client: Client) -> None:
    job = client.submit("Count.", ["autoregressive", "eagle"] * 4, {"max_new_tokens": 512}, api_name="/compare")
    next(iter(job))
    job.cancel()
    assert called(client, "Hi", ["autoregressive"], {"max_new_tokens": 2})[-1]["state"] == "done"


def test_two_calls_of_one_client_both_end(client: Client) -> None:
    jobs = [client.submit(prompt, ["medusa"], SETTINGS, api_name="/compare") for prompt in ("One.", "Two.")]
    ends = [job.result()[-1] for job in jobs]
    assert [end["state"] for end in ends] == ["done", "done"]
    assert [end["comparison"]["lanes"][0]["prompt"]["typed"] for end in ends] == ["One.", "Two."]


def test_nothing_else_can_be_called_by_name(address: str) -> None:
    with urllib.request.urlopen(f"{address}/gradio_api/info") as answer:
        told = json.load(answer)
    assert list(told["named_endpoints"]) == ["/compare"]
    assert told["unnamed_endpoints"] == {}


def test_the_example_in_python_works(address: str) -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(block("python").replace("http://127.0.0.1:7860", address), {})
    assert re.search(r"^eagle 1 '", printed.getvalue(), re.MULTILINE)
    assert re.search(r"^autoregressive 1\.0$", printed.getvalue(), re.MULTILINE)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_example_with_curl_works(address: str) -> None:
    script = block("sh").replace("http://127.0.0.1:7860", address)
    printed = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=120, check=True).stdout
    data = [json.loads(line.removeprefix("data: ")) for line in printed.splitlines() if line.startswith("data: ")]
    assert "event: complete" in printed
    assert data[-1][0][-1]["event"] == "end"
    names = {event["event"] for (events,) in data for event in events}
    assert names <= set(re.findall(r"^\| `(\w+)` \| ", DOCUMENT, re.MULTILINE))
