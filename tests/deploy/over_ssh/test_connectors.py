"""What a connector promises: the one over SSH, and that of this machine."""

import io
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.ground.errors import ClusterError
from deploy.cluster import connector
from deploy.cluster.connection import NodeConnection
from deploy.cluster.connector import (
    BoundedOutput,
    Connector,
    NodeDeadlineError,
    NodeOutputError,
    NodeUnreachableError,
    NotKeptError,
)
from deploy.cluster.fleet import Local
from deploy.common.command_line import quoted, shell
from tests.deploy.over_ssh.nodes import trusting
from tests.deploy.over_ssh.sshd import Sshd
from tests.deploy.playing import eventually, gone


@pytest.fixture(params=["ssh", "here"])
def node(request: pytest.FixtureRequest, sshd: Sshd, tmp_path: Path) -> Iterator[Connector]:
    if request.param == "here":
        yield Local("node")
    else:
        connection = NodeConnection(sshd.address(), trusting(tmp_path, sshd))
        yield connection
        connection.close()


def test_a_command_ends_with_its_code_and_both_streams(node: Connector) -> None:
    content = os.urandom(3_000_000)
    outcome = node.run(shell("cat; echo err >&2; exit 3"), stdin=content)
    assert (outcome.return_code, outcome.stderr) == (3, "err\n")
    assert (outcome.ok, outcome.last_lines) == (False, ("err",))
    assert outcome.stdout == content


def test_values_are_words_whatever_is_in_them(node: Connector) -> None:
    awkward = "a b'c\"$(id)`id`;*\n"
    assert node.run(["printf", "%s", awkward]).text == awkward
    assert node.run(shell('printf %s "$1"', awkward)).text == awkward
    assert node.run(shell(f"printf %s {quoted(awkward)}")).text == awkward


def test_an_overdue_command_is_dead_on_the_node_too(node: Connector, tmp_path: Path) -> None:
    script = f"sleep 100 & echo $$ $! >{tmp_path}/pids; wait"
    with pytest.raises(NodeDeadlineError, match=r"node: not done within 1 s.*sleep"):
        node.run(shell(script), deadline_seconds=1)
    for pid in (tmp_path / "pids").read_text().split():
        eventually(lambda pid=int(pid): gone(pid), "the end of the command")  # type: ignore[misc]


def test_what_a_command_leaves_running_goes_on(node: Connector, tmp_path: Path) -> None:
    assert node.run(shell(f"sleep 100 >/dev/null 2>&1 & echo $! >{tmp_path}/child")).ok
    child = int((tmp_path / "child").read_text())
    assert not gone(child)
    assert node.run(shell(f"kill {child}")).ok  # the shell's own: a bare Debian has no other
    eventually(lambda: gone(child), "the end of the child")


def test_a_program_that_does_not_exist_is_one_line() -> None:
    with pytest.raises(
        NodeUnreachableError, match="here: nothing-like-it cannot be started: No such file"
    ):
        Local("here").run(["nothing-like-it"])


def test_a_file_is_written_whole_with_its_mode(node: Connector, tmp_path: Path) -> None:
    folder = tmp_path / "made"
    folder.mkdir()
    target = folder / "with 'quotes"
    node.put(b"content", str(target), deadline_seconds=10, mode=0o640)
    assert target.read_bytes() == b"content"
    assert target.stat().st_mode & 0o777 == 0o640
    with pytest.raises(ClusterError, match="cannot be written"):
        node.put(b"x", str(folder / "missing/file"), deadline_seconds=10)
    assert list(folder.iterdir()) == [target]


def test_an_input_that_cannot_be_read_to_its_end_is_told_and_no_whole_one(
    node: Connector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def blocks(content: object = None) -> Iterator[bytes]:
        yield b"some"
        raise OSError(5, "Input/output error")

    target = tmp_path / "target"
    target.write_text("before")
    told = pytest.raises(ClusterError, match=r"node: what travels there .*: Input/output error")
    with told:
        node.run(["cat"], stdin=blocks())
    if isinstance(node, Local):
        with told:
            node.run(shell('cat >/dev/null && rm "$1"', str(target)), stdin=blocks())
    else:  # where the input ends with its channel, or with its connection
        monkeypatch.setattr(connector, "blocks_of", lambda content: [b"some"])
        with pytest.raises(ClusterError, match="expected 9 bytes"):
            node.put(b"some more", str(target), deadline_seconds=10)
    monkeypatch.setattr(connector, "blocks_of", blocks)
    with told:
        node.put(b"some more", str(target), deadline_seconds=10)
    assert target.read_text() == "before"


def test_lines_are_passed_on_as_they_come_until_a_stop(node: Connector, tmp_path: Path) -> None:
    seen: list[str] = []
    stop = threading.Event()

    def on_line(line: str) -> None:
        seen.append(line)
        if line == "two":
            stop.set()

    script = f"echo $$ >{tmp_path}/pid; echo one; echo two; sleep 100000"
    assert node.stream(shell(script), on_line, stop=stop) == -1
    assert seen == ["one", "two"]
    pid = int((tmp_path / "pid").read_text())
    eventually(lambda: gone(pid), "the end of the command with its stream")
    assert node.stream(shell("echo three; printf end; exit 4"), seen.append) == 4
    assert node.stream(shell("echo an error >&2"), seen.append) == 0
    assert seen[2:] == ["three", "end", "an error"]


def test_hanging_up_ends_a_call_under_way_and_every_later_one(node: Connector) -> None:
    with ThreadPoolExecutor(1) as pool:
        lines: list[str] = []
        asked = pool.submit(node.stream, shell("echo up; sleep 100"), lines.append)
        eventually(lambda: bool(lines), "the start of the command")
        node.hang_up()
        with pytest.raises(NodeUnreachableError, match="node: "):
            asked.result(50)
    with pytest.raises(NodeUnreachableError, match="node: interrupted"):
        node.run(["true"])


@given(st.lists(st.binary(max_size=50)), st.integers(2, 100))
def test_the_beginning_and_the_end_stay(pieces: list[bytes], most_bytes: int) -> None:
    kept = BoundedOutput(most_bytes)
    whole = b"".join(pieces)
    for piece in pieces:
        kept.add(piece)
    half = most_bytes // 2
    left_out = max(0, len(whole) - 2 * half)
    if left_out:
        whole = whole[:half] + f"\n... {left_out} bytes left out\n".encode() + whole[-half:]
    assert (kept.content(), kept.left_out_bytes) == (whole, left_out)


def test_a_file_takes_all_or_the_command_is_ended(node: Connector) -> None:
    into = io.BytesIO()
    kept = BoundedOutput(10, into)
    kept.add(b"12345")
    kept.add(b"67890")
    assert (into.getvalue(), kept.content()) == (b"1234567890", b"")
    with pytest.raises(NotKeptError, match="at most 10 bytes"):
        kept.add(b"1")
    assert node.run(["echo", "all"], into=into, kept_bytes=10).ok
    assert into.getvalue() == b"1234567890all\n"
    with pytest.raises(NodeOutputError, match="expected at most 100 bytes"):
        node.run(["cat", "/dev/zero"], into=io.BytesIO(), kept_bytes=100)


def test_a_node_that_prints_without_end_does_not_fill_this_machine(node: Connector) -> None:
    zeros = "head -c 20000000 /dev/zero"
    done = node.run(
        shell(f"echo first; {zeros}; echo last; {zeros} >&2; exit 3"), deadline_seconds=60.0
    )
    assert done.return_code == 3
    assert (done.stdout[:6], done.stdout[-5:]) == (b"first\n", b"last\n")
    assert len(done.stdout) < connector.KEPT_BYTES + 100
    assert done.left_out_bytes == 20_000_011 - connector.KEPT_BYTES
    assert len(done.stderr) < connector.KEPT_ERROR_BYTES + 100


def test_a_line_without_end_is_passed_on_in_pieces(node: Connector) -> None:
    lines: list[str] = []
    assert node.stream(shell("head -c 5000000 /dev/zero | tr '\\0' x"), lines.append) == 0
    # The account's own profile may print lines beside it: pyenv does, when two shells of one
    # account begin at once.
    assert sum(len(line) for line in lines if set(line) == {"x"}) == 5_000_000
    assert max(map(len, lines)) <= connector.LINE_BYTES + connector.READ_BYTES
