"""The connector of this machine keeps the promises of the one over SSH."""

import io
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from deploy.cluster.connector import Connector, NodeDeadlineError, NodeOutputError, NodeUnreachableError
from deploy.cluster.local import Local
from tests.deploy.playing import eventually, gone


@pytest.fixture
def node() -> Connector:
    return Local("here")


def test_a_command_ends_with_its_code_and_both_streams(node: Connector) -> None:
    done = node.run(["sh", "-c", "cat; echo said >&2; exit 3"], stdin=b"x" * 3_000_000)
    assert (done.return_code, len(done.stdout), done.last_lines, done.ok) == (3, 3_000_000, ("said",), False)
    assert node.run(["id", "-u"]).text == node.run(["id", "-u"], root=True).text


def test_a_command_past_its_deadline_is_ended_with_its_children(node: Connector, tmp_path: Path) -> None:
    script = f"sleep 100 & echo $! >{tmp_path}/child; wait"
    with pytest.raises(NodeDeadlineError, match=r"here: not done within 1 s and ended: `sh -c"):
        node.run(["sh", "-c", script], deadline_seconds=1)
    child = int((tmp_path / "child").read_text())
    eventually(lambda: gone(child), "the end of the command's child")


def test_what_a_command_leaves_running_goes_on(node: Connector, tmp_path: Path) -> None:
    script = f"sleep 100 >/dev/null 2>&1 & echo $! >{tmp_path}/child"
    assert node.run(["sh", "-c", script]).ok
    child = int((tmp_path / "child").read_text())
    assert not gone(child)
    assert node.run(["sh", "-c", f"kill {child}"]).ok  # the shell's own: a bare Debian has no other
    eventually(lambda: gone(child), "the end of the child")


def test_too_much_output_for_a_file_ends_the_command(node: Connector) -> None:
    with pytest.raises(NodeOutputError, match="expected at most 1000 bytes"):
        node.run(["cat", "/dev/zero"], kept_bytes=1000, into=io.BytesIO())


def test_a_program_that_does_not_exist_is_one_line(node: Connector) -> None:
    with pytest.raises(NodeUnreachableError, match="here: nothing-like-it cannot be started: No such file"):
        node.run(["nothing-like-it"])


def test_lines_are_passed_on_as_they_come_until_a_stop(node: Connector) -> None:
    seen: list[str] = []
    stop = threading.Event()

    def on_line(line: str) -> None:
        seen.append(line)
        if line == "two":
            stop.set()

    begun = time.monotonic()
    assert node.stream(["sh", "-c", "echo one; echo two; sleep 100"], on_line, stop=stop) == -1
    assert (seen, time.monotonic() - begun < 50) == (["one", "two"], True)
    assert node.stream(["sh", "-c", "echo an error >&2; printf end; exit 4"], seen.append) == 4
    assert seen[2:] == ["an error", "end"]


def test_hanging_up_ends_a_call_under_way_and_every_later_one(node: Connector) -> None:
    with ThreadPoolExecutor(1) as pool:
        lines: list[str] = []
        asked = pool.submit(node.stream, ["sh", "-c", "echo up; sleep 100"], lines.append)
        eventually(lambda: bool(lines), "the start of the command")
        node.hang_up()
        with pytest.raises(NodeUnreachableError, match="here: interrupted"):
            asked.result(50)
    with pytest.raises(NodeUnreachableError, match="here: interrupted"):
        node.run(["true"])


def test_a_file_is_written_whole_with_its_mode(node: Connector, tmp_path: Path) -> None:
    node.put(b"content", str(tmp_path / "file"), deadline_seconds=5, mode=0o600)
    assert (tmp_path / "file").read_bytes() == b"content"
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
