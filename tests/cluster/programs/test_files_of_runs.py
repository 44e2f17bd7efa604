"""Files of a sweep's run on its node: whose they are, also after a kill between two of them."""

import json
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster.programs import frames
from cluster.programs.frames import FrameType
from cluster.programs.runner import RunnerTask, _LeadConnection
from tests.cluster.apps.trees import write_tree


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Callable[[], _LeadConnection]]:
    """The runner after a start, with what is in the folder."""
    task = RunnerTask(
        ("127.0.0.1", 1), "token", "worker:0", (1, 2), Path("x"), tmp_path / "files", module="this"
    )
    here, there = socket.socketpair()
    with here, there:
        yield lambda: _LeadConnection(task, there)


def frame_object(**content: str | list[str]) -> bytes:
    return json.dumps(content).encode()


def run(one: _LeadConnection) -> None:
    one._begin(frame_object(arguments=[]))
    one._end()


def test_files_belong_to_a_run_once_all_of_them_are_there(
    tmp_path: Path, served: Callable[[], _LeadConnection]
) -> None:
    write_tree(tmp_path, {"files/old": "of another run", "files.whose": "0001"})
    one = served()
    assert one._owner == "0001"
    one._take_file(FrameType.WHOSE, frame_object(name="0002"))
    one._take_file(FrameType.FILE, frame_object(path="run/checkpoint"))
    one._take_file(FrameType.BYTES, b"half")
    # Killed now, it has lost all files, and gets each of them again.
    assert served()._owner == ""
    one._take_file(FrameType.FILE, frame_object(path="run/more"))
    run(one)
    assert served()._owner == "0002"
    left = [path.name for path in (tmp_path / "files").rglob("*") if path.is_file()]
    assert sorted(left) == ["checkpoint", "more"]


def test_the_same_run_again_keeps_its_files(
    tmp_path: Path, served: Callable[[], _LeadConnection]
) -> None:
    write_tree(tmp_path, {"files/checkpoint": "whole", "files.whose": "0001"})
    one = served()
    one._take_file(FrameType.WHOSE, frame_object(name="0001"))
    run(one)
    assert one._owner == "0001"
    assert (tmp_path / "files/checkpoint").read_text() == "whole"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"{", "a frame without JSON"),
        (b"[1]", "a frame without an object"),
        (b'{"size": true}', "size: True"),
        (b'{"size": "5"}', "size: '5'"),
        (b'{"size": -1}', "size: -1"),
        (b'{"size": 11}', "size: 11"),
        (b"{}", "size: None"),
    ],
)
def test_a_frame_that_no_peer_of_ours_sends(content: bytes, problem: str) -> None:
    assert frames.whole_number(frames.frame_object(b'{"size": 10}'), "size", 0, 10) == 10
    with pytest.raises(frames.ProtocolError, match=re.escape(problem)):
        frames.whole_number(frames.frame_object(content), "size", 0, 10)
