"""Whatever a path leads to, it ends in an inventory or in one line."""

import os
from pathlib import Path

import pytest

from core.ground.errors import ExitCode
from core.inventory import InventoryError, load
from tests.core.inventory.cases import THREE_NODES, edited


def fault(path: Path | str) -> str:
    with pytest.raises(InventoryError) as caught:
        load(path)
    assert caught.value.exit_code is ExitCode.BAD_USAGE
    return str(caught.value)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_a_file_is_read_with_its_path(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(THREE_NODES, encoding)
    inventory = load(path, ["jobs.train.epochs=3"])
    assert (inventory.path, inventory.cluster) == (path, "bench")
    assert inventory.jobs.train.epochs == 3


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            edited(("epochs: 30", "epochs: 0")).replace("\n", "\r\n").encode(),
            ":21: jobs.train.epochs: 0:",
        ),
        (
            THREE_NODES.encode() + "# für uns\n".encode("latin-1"),
            ":22: not UTF-8 at byte 427 (0xfc)",
        ),
        (b"a" * 200_000, ": longer than 131072 bytes"),
    ],
    ids=["line ends of Windows", "another encoding", "size"],
)
def test_a_file_of_another_kind(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(content)
    assert fault(path).startswith(f"{path}{words}")


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # is not waited for
    assert "not an ordinary file" in fault(tmp_path / "pipe")
    assert f"{tmp_path}/inventory.yaml" in fault(tmp_path)
    missing = fault(tmp_path / "none.yaml")
    assert "none.yaml: no such file" in missing
    assert "fab init" in missing
    # Root, too, gets no answer.
    assert "cannot be read: Input/output error" in fault("/proc/self/mem")


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000, "/dev/zero", ""])
def test_paths_that_lead_nowhere(path: str) -> None:
    assert "\n" not in fault(path)


def test_a_name_that_no_terminal_shows(tmp_path: Path) -> None:
    assert "\\x1b[31m" in fault(tmp_path / "\x1b[31m.yaml")
    assert fault(os.fsdecode(b"\xff.yaml")).encode("utf-8")
