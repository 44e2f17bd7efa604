"""Files of a sweep's run on its node: whose they are, also after a kill between two of them."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.programs.frames import Kind
from cluster.programs.runner import RunnerTask, _Served


@pytest.fixture
def connection() -> Iterator[socket.socket]:
    here, there = socket.socketpair()
    with here, there:
        yield there


def served(folder: Path, connection: socket.socket) -> _Served:
    """The runner after a start, with what is in the folder."""
    task = RunnerTask(("127.0.0.1", 1), "token", "worker:0", (1, 2), Path("x"), folder / "files", module="this")
    return _Served(task, connection)


def said(**content: str | list[str]) -> bytes:
    return json.dumps(content).encode()


def test_files_belong_to_a_run_once_all_of_them_are_there(tmp_path: Path, connection: socket.socket) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "old").write_text("of another run")
    (tmp_path / "files.whose").write_text("0001")
    one = served(tmp_path, connection)
    assert one._whose == "0001"
    one._take_file(Kind.WHOSE, said(name="0002"))
    one._take_file(Kind.FILE, said(path="run/checkpoint"))
    one._take_file(Kind.BYTES, b"half")

    assert served(tmp_path, connection)._whose == "", "killed now, it has nobody's files, and gets all of them again"

    one._take_file(Kind.FILE, said(path="run/more"))
    one._begin(said(arguments=[]))
    one._end()
    assert served(tmp_path, connection)._whose == "0002"
    assert sorted(path.name for path in (tmp_path / "files").rglob("*") if path.is_file()) == ["checkpoint", "more"]


def test_the_same_run_again_keeps_its_files(tmp_path: Path, connection: socket.socket) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "checkpoint").write_text("whole")
    (tmp_path / "files.whose").write_text("0001")
    one = served(tmp_path, connection)
    one._take_file(Kind.WHOSE, said(name="0001"))
    one._begin(said(arguments=[]))
    one._end()
    assert one._whose == "0001"
    assert (tmp_path / "files" / "checkpoint").read_text() == "whole"
