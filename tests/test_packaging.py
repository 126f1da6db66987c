"""What set-up, container and README promise exists: paths, commands, versions, settings."""

import ast
import os
import re
import shlex
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from typer.main import get_command

import explorer
from explorer.cli import app

PROJECT = Path(__file__).resolve().parent.parent
README = (PROJECT / "README.md").read_text(encoding="utf-8")
DOCKERFILE = (PROJECT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")


def requirements(name: str) -> list[Requirement]:
    lines = (PROJECT / name).read_text(encoding="utf-8").splitlines()
    return [Requirement(line) for line in lines if line.strip() and not line.startswith(("#", "-r"))]


def constraints() -> dict[str, str]:
    """Package -> the one version that was tested."""
    pins = {}
    for requirement in requirements("constraints.txt"):
        (pin,) = requirement.specifier
        assert pin.operator == "=="
        pins[canonicalize_name(requirement.name)] = pin.version
    return pins


def header() -> dict:
    """The block at the top of the README that a Hugging Face Space is configured by."""
    assert README.startswith("---\n")
    return yaml.safe_load(README.split("---\n")[1])


def docker(instruction: str) -> list[str]:
    return re.findall(rf"^{instruction} (.+)$", DOCKERFILE, flags=re.MULTILINE)


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt"])
def test_every_requirement_is_pinned_to_a_tested_version_in_its_range(name) -> None:
    pins = constraints()
    for requirement in requirements(name):
        assert requirement.specifier.contains(pins[canonicalize_name(requirement.name)]), requirement


def imported_packages() -> set[str]:
    """Top-level names that the app imports from outside the standard library."""
    names = set()
    for path in [PROJECT / "app.py", *(PROJECT / "explorer").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names.add((node.module or "").partition(".")[0])
    return names - sys.stdlib_module_names - {"explorer"}


def test_what_the_app_imports_is_required() -> None:
    assert imported_packages() <= {requirement.name for requirement in requirements("requirements.txt")}


def test_pins_have_no_local_version_so_that_they_resolve_everywhere() -> None:
    assert [pin for pin in constraints().values() if "+" in pin] == []


def test_the_developers_requirements_include_the_users() -> None:
    assert "-r requirements.txt" in (PROJECT / "requirements-dev.txt").read_text(encoding="utf-8").splitlines()


def test_the_version_is_told_once() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == explorer.__version__
    assert f"## {explorer.__version__}" in (PROJECT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_licence_is_the_one_that_is_named() -> None:
    text = (PROJECT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text
    assert header()["license"] == "apache-2.0"


def test_the_space_header_names_the_tested_gradio_and_an_app_that_exists() -> None:
    space = header()
    assert space["sdk"] == "gradio"
    assert space["sdk_version"] == constraints()["gradio"]
    assert (PROJECT / space["app_file"]).is_file()
    assert len(space["short_description"]) <= 60


def test_the_readme_lists_every_requirement_and_both_commands() -> None:
    table = README.split("## Dependencies\n")[1].split("\n## ")[0]
    rows = set(re.findall(r"^\| `([\w-]+)` \|", table, flags=re.MULTILINE))
    names = ("requirements.txt", "requirements-dev.txt")
    assert rows == {requirement.name for name in names for requirement in requirements(name)}
    commands = re.findall(r"^make \w+", README, flags=re.MULTILINE)
    assert {"make run", "make test"} <= set(commands)


def test_the_readme_lists_every_command() -> None:
    table = README.split("## Command line\n")[1].split("\n## ")[0]
    told = set(re.findall(r"^\| `(\w+)` \|", table, flags=re.MULTILINE))
    assert told == set(get_command(app).commands)


def test_the_readme_lists_every_setting() -> None:
    sources = [PROJECT / "app.py", *(PROJECT / "explorer").rglob("*.py")]
    read = {name for path in sources for name in re.findall(r"DECODING_EXPLORER_\w+", path.read_text("utf-8"))}
    assert read | {"GRADIO_SERVER_NAME", "GRADIO_SERVER_PORT"} == set(re.findall(r"^\| `([A-Z_]+)`", README, re.M))


def test_the_readmes_file_tree_names_files_that_exist() -> None:
    tree = README.split("## Files\n")[1].split("```")[1]
    named = []
    for line in tree.strip().splitlines():
        folder = "explorer/" if line.startswith("  ") else ""
        paths = re.split(r" {2,}", line.strip())[0]
        named += [folder + path for path in paths.split()]
    assert len(named) > 20
    assert [name for name in named if not (PROJECT / name).exists()] == []


def test_every_make_target_that_is_told_of_exists() -> None:
    makefile = (PROJECT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, flags=re.MULTILINE))
    told = README + (PROJECT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    told += (PROJECT / ".ci/run").read_text(encoding="utf-8")
    named = set(re.findall(r"\bmake ([a-z]+)\b", told))
    assert {"run", "test", "check", "quick"} <= named
    assert named <= targets


def test_the_build_script_can_be_run() -> None:
    assert os.access(PROJECT / ".ci/run", os.X_OK)


def test_the_container_copies_what_exists() -> None:
    copied = [path for line in docker("COPY") for path in line.split()[:-1] if not path.startswith("--")]
    assert {"requirements.txt", "constraints.txt", "app.py", "explorer", "assets"} <= set(copied)
    ignored = (PROJECT / ".dockerignore").read_text(encoding="utf-8").split()
    assert [path for path in copied if not (PROJECT / path).exists() or path in ignored] == []


def test_the_container_runs_as_user_1000_on_port_7860() -> None:
    (add,) = (line for line in docker("RUN") if line.startswith("useradd"))
    words = shlex.split(add)
    assert words[words.index("--uid") + 1] == "1000"
    assert docker("USER") == [words[-1]]
    assert docker("EXPOSE") == ["7860"]
    assert "GRADIO_SERVER_NAME=0.0.0.0" in DOCKERFILE
    assert "GRADIO_SERVER_PORT=7860" in DOCKERFILE


def test_the_containers_commands_exist() -> None:
    assert docker("CMD") == ['["python", "app.py"]']
    modules = {module for line in docker("RUN") for module in re.findall(r"python -m (\w+)", line)}
    assert modules == {"explorer"}
    assert (PROJECT / "explorer/__main__.py").is_file()
    (probe,) = re.findall(r'HEALTHCHECK.*"-c", "(.+)"\]', DOCKERFILE)
    compile(probe, "health check", "exec")
    assert "http://127.0.0.1:7860/" in probe
