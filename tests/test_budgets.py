"""Limits that keep the code readable: short functions, short files, tests that test, no paths of one machine."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
MAX_FUNCTION_LINES = 60
MAX_FILE_LINES = 400
MACHINE_PATH = re.compile(r"(?<![\w.~$}])/(?:work|home|root)/\w")


def sources() -> list[Path]:
    return [PROJECT / "app.py", *sorted((PROJECT / "explorer").rglob("*.py"))]


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def checks_something(test: ast.AST) -> bool:
    """Whether the function asserts, expects an exception, or hands over to a helper named for checking."""
    for node in ast.walk(test):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in ("pytest.raises", "pytest.fail", "pytest.warns", "expect"):
                return True
            if called.rpartition(".")[2].startswith(("assert_", "check_")):
                return True
    return False


def project_files() -> list[Path]:
    """Every file that is or would be tracked."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=PROJECT,
        capture_output=True,
        check=True,
        text=True,
    )
    return [path for name in listed.stdout.split("\0") if name and (path := PROJECT / name).is_file()]


def test_functions_are_short() -> None:
    long = [
        f"{path.relative_to(PROJECT)}:{function.lineno} {function.name} {lines} lines"
        for path in sources()
        for function in functions(path)
        if (lines := (function.end_lineno or 0) - function.lineno + 1) > MAX_FUNCTION_LINES
    ]
    assert long == []


def test_files_are_short() -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in sources()}
    long = [f"{path.relative_to(PROJECT)} {lines} lines" for path, lines in lengths.items() if lines > MAX_FILE_LINES]
    assert long == []


def test_every_test_checks_something() -> None:
    idle = [
        f"{path.relative_to(PROJECT)}:{function.lineno} {function.name}"
        for path in sorted((PROJECT / "tests").rglob("test_*.py"))
        for function in functions(path)
        if function.name.startswith("test_") and not checks_something(function)
    ]
    assert idle == []


def test_no_file_names_a_path_of_one_machine() -> None:
    named = []
    for path in project_files():
        if path.name == "Dockerfile" or path.suffix in (".png", ".safetensors", ".gz"):
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        named += [f"{path.relative_to(PROJECT)}: {found.group()}" for found in MACHINE_PATH.finditer(text)]
    assert named == []


def test_the_path_pattern_finds_machine_paths_and_nothing_else() -> None:
    for found in ("work", "home", "root"):
        assert MACHINE_PATH.search(f"open('/{found}/someone/file')")
    for path in ("~/.cache/explorer", "docs/work/notes", "https://example.org/home/page", "$HOME/work/x"):
        assert not MACHINE_PATH.search(path)
