"""What this machine can hold."""

from pathlib import Path

import pytest
import torch

from explorer.machine import container_free_bytes, free_bytes, in_gb


def group(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"memory.{name}").write_text(text)
    return folder


def test_a_containers_limit_counts_without_its_file_pages(tmp_path: Path) -> None:
    stat = "anon 10\ninactive_file 300\nactive_file 40\n"
    assert container_free_bytes(group(tmp_path, max="1000\n", current="900\n", stat=stat)) == 400
    assert container_free_bytes(group(tmp_path, max="100\n", current="900\n", stat="")) == 0


def test_no_limit_and_no_group(tmp_path: Path) -> None:
    assert container_free_bytes(tmp_path / "none") is None
    assert container_free_bytes(group(tmp_path, max="max\n", current="900\n", stat="")) is None
    assert container_free_bytes(group(tmp_path, max="much\n", current="900\n", stat="")) is None


def test_free_memory_is_a_number_of_bytes() -> None:
    assert 10**7 < free_bytes(torch.device("cpu")) < 10**14


@pytest.mark.parametrize(("count", "text"), [(98_362_432, "0.10 GB"), (2_200_119_864, "2.2 GB"), (43.44e9, "43.4 GB")])
def test_bytes_for_people(count: float, text: str) -> None:
    assert in_gb(count) == text
