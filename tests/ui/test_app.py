"""The entry point: settings from the environment, and one sentence where they are wrong."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

import app

ROOT = Path(__file__).resolve().parents[2]


def test_defaults_and_settings() -> None:
    assert app.address({}) == ("127.0.0.1", 7860)
    assert app.address({"GRADIO_SERVER_NAME": "0.0.0.0", "GRADIO_SERVER_PORT": "80"}) == ("0.0.0.0", 80)


def test_strangers_on_a_space_do_not_choose_the_model() -> None:
    assert app.may_switch({})
    assert not app.may_switch({"SPACE_ID": "somebody/space"})
    assert app.may_switch({"SPACE_ID": "somebody/space", "DECODING_EXPLORER_SWITCH": "1"})
    assert not app.may_switch({"DECODING_EXPLORER_SWITCH": "0"})
    with pytest.raises(ValueError, match="must be 0 or 1"):
        app.may_switch({"DECODING_EXPLORER_SWITCH": "maybe"})


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [("DEVICE", "abacus", "auto, cpu, cuda or spread"), ("DTYPE", "int3", "auto, fastest, float32 or bfloat16")],
)
def test_a_wrong_device_or_type_is_one_sentence(
    variable: str, value: str, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DECODING_EXPLORER_MODEL", "toy")
    monkeypatch.setenv(f"DECODING_EXPLORER_{variable}", value)
    monkeypatch.setenv("GRADIO_SERVER_PORT", "48714")
    assert app.main() == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("port", ["0", "65536", "-1", "http", "7860.5"])
def test_wrong_ports(port: str) -> None:
    with pytest.raises(ValueError, match="whole number from 1 to 65535"):
        app.address({"GRADIO_SERVER_PORT": port})


def test_a_port_in_use_is_one_sentence(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [sys.executable, str(ROOT / "app.py")],
            env={"GRADIO_SERVER_PORT": port, "PATH": ""},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert port in done.stderr
    assert "another program uses it" in done.stderr


def test_a_model_folder_that_is_missing_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DECODING_EXPLORER_MODEL", "/nowhere/model")
    monkeypatch.setenv("GRADIO_SERVER_PORT", "48713")
    assert app.main() == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "/nowhere/model" in lines[0]
