"""Whatever a path leads to, it ends in an inventory or in one line."""

import os
from pathlib import Path

import pytest

from cluster.errors import ExitCode
from cluster.inventory import InventoryError, load
from tests.inventory.cases import THREE_NODES, edited


def fault(path: Path | str) -> str:
    with pytest.raises(InventoryError) as caught:
        load(path)
    assert caught.value.exit_code is ExitCode.BAD_USAGE
    return str(caught.value)


def test_a_file_is_read_with_its_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(THREE_NODES, encoding="utf-8")

    inventory = load(path, ["jobs.train.epochs=3"])

    assert inventory.path == path
    assert inventory.jobs.train.epochs == 3


def test_a_byte_order_mark_is_no_problem(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(THREE_NODES, encoding="utf-8-sig")

    assert load(path).cluster == "bench"


def test_windows_line_ends_count_as_one_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(edited(("epochs: 30", "epochs: 0")).replace("\n", "\r\n").encode())

    assert fault(path).startswith(f"{path}:21: jobs.train.epochs: 0:")


def test_a_missing_file(tmp_path: Path) -> None:
    message = fault(tmp_path / "none.yaml")

    assert "none.yaml: no such file" in message
    assert "fab init" in message


def test_a_folder(tmp_path: Path) -> None:
    assert f"{tmp_path}/inventory.yaml" in fault(tmp_path)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    assert "not an ordinary file" in fault(tmp_path / "pipe")


def test_a_file_in_another_encoding(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(THREE_NODES.encode() + "# für uns\n".encode("latin-1"))

    assert f"{path}:22: not UTF-8 at byte" in fault(path)
    assert "(0xfc)" in fault(path)


def test_a_file_of_another_kind_and_size(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(b"a" * 200_000)

    assert "longer than 131072 bytes" in fault(path)


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000, "/dev/zero", ""])
def test_paths_that_lead_nowhere(path: str) -> None:
    assert "\n" not in fault(path)


def test_a_file_that_cannot_be_read() -> None:
    assert "cannot be read: Input/output error" in fault("/proc/self/mem")  # root, too, gets no answer


def test_a_name_that_no_terminal_shows(tmp_path: Path) -> None:
    assert "\\x1b[31m" in fault(tmp_path / "\x1b[31m.yaml")
    assert fault(os.fsdecode(b"\xff.yaml")).encode("utf-8")
