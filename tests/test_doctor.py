"""What the doctor finds, and that it says it in lines that line up."""

import json
import socket
import urllib.error
import urllib.request

import pytest

from explorer import doctor
from explorer.pairs import PAIRS


@pytest.fixture(autouse=True)
def empty_home(monkeypatch, tmp_path) -> None:
    """No model on this machine, whatever it really has."""
    monkeypatch.setenv("DECODING_EXPLORER_HOME", str(tmp_path / "not" / "there"))


def test_the_report_is_plain_data() -> None:
    found = doctor.report()
    assert json.loads(json.dumps(found)) == found
    assert found["packages"]["torch"]
    assert found["devices"][0]["name"] == "cpu"
    assert 0 < found["memory_gib"]["available"] <= found["memory_gib"]["total"]
    assert found["cpu"]["cores"] >= 1


def test_a_missing_model_is_told() -> None:
    found = doctor.report()
    assert found["model"]["file_fault"] == "is missing"
    assert not found["model"]["ready"]
    text = "\n".join(doctor.lines(found))
    assert "SmolLM2-135M-Instruct.Q4_1.gguf is missing" in text
    assert "is not there or not whole" in text


def test_every_model_on_offer_fits_or_says_why_not() -> None:
    found = doctor.report()
    assert [row["id"] for row in found["models"]] == [pair.id for pair in PAIRS]
    text = "\n".join(doctor.lines(found))
    for row in found["models"]:
        assert (row["reason"] or f"fits: {row['needs']}") in text


def test_the_lines_line_up() -> None:
    lines = doctor.lines(doctor.report())
    column = lines[0].index("3.")
    assert {line[column - 2 : column] for line in lines} == {"  "}
    assert all(line[column] != " " for line in lines)


def test_a_port_in_use_is_told(monkeypatch) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        monkeypatch.delenv("GRADIO_SERVER_NAME", raising=False)
        monkeypatch.setenv("GRADIO_SERVER_PORT", str(other.getsockname()[1]))
        assert doctor.report()["port"]["free"] is False
    monkeypatch.setenv("GRADIO_SERVER_PORT", "many")
    assert doctor.report()["port"]["free"] is False


def test_the_network_is_touched_only_when_asked(monkeypatch) -> None:
    def unreachable(request, timeout) -> None:
        assert timeout <= 3
        raise urllib.error.URLError("no route")

    monkeypatch.setattr(urllib.request, "urlopen", unreachable)
    assert doctor.report()["reachable"] is None
    found = doctor.report(network=True)
    assert set(found["reachable"].values()) == {"cannot be reached (no route)"}
    assert any("cannot be reached (no route)" in line for line in doctor.lines(found))
