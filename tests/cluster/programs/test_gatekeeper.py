"""The gate before a program's port, kept by the process that runs it."""

import errno
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cluster.programs.gatekeeper import GateKeeper
from cluster.programs.process import ProgramProcess
from core.server import gate
from tests.habits import needs
from tests.hang import HANG_SECONDS
from tests.ports import free_ports
from tests.ran import python

LISTENS = Path(__file__).with_name("listens.py")
KNOCK = """
import os, socket, sys
"".encode("idna")
os.setuid(65534)
with socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=10) as connection:
    try:
        connection.sendall(b"knock")
        answer = connection.recv(5)
    except ConnectionError:
        answer = b""
print(answer)
"""


def said(process: ProgramProcess, until: bytes) -> bytes:
    heard = b""
    end = time.monotonic() + HANG_SECONDS
    while until not in heard:
        assert time.monotonic() < end, heard
        heard += process.read_output() or b""
        time.sleep(0.01)
    return heard


@pytest.fixture(scope="module")
def gated() -> None:
    # In a process of its own: a filter of this one would be that of every program too.
    if "no gate" in json.loads(python("-m", "core.server.port_guard"))["accounts"]["line"]:
        needs.skip("this kernel allows no gate")


def greet(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=HANG_SECONDS) as connection:
        connection.sendall(b"knock")
        return connection.recv(5)


@contextmanager
def listening(folder: Path, port: int, guarded: int) -> Iterator[ProgramProcess]:
    """A program that listens on the one port, with the gate before the other."""
    words = [sys.executable, str(LISTENS), str(port)]
    process = ProgramProcess(words, os.environ, folder, guarded)
    try:
        said(process, b"listens")
        yield process
    finally:
        process.close()


def test_this_account_passes_and_the_program_learns_the_address(
    gated: None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (port,) = free_ports(1)
    with listening(tmp_path, port, port) as process:
        assert [greet(port), greet(port)] == [b"hello", b"hello"]
        assert said(process, b"got 127.0.0.1 True b'knock'\ngot").count(b"True") >= 1
        while process.poll() is None:
            time.sleep(0.01)
        assert process.poll() == 0
        assert caplog.text == ""


def test_another_account_is_closed_unread(
    gated: None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    needs.root("becomes another account")
    (port,) = free_ports(1)
    with listening(tmp_path, port, port) as process:
        assert python("-c", KNOCK, str(port)) == "b''\n"
        assert greet(port) == b"hello"
        assert said(process, b"got").count(b"got") == 1
        assert "65534" in caplog.text
        assert "closed unread" in caplog.text


@pytest.fixture
def keeper() -> Iterator[GateKeeper]:
    """One that serves no program yet, and admits this account."""
    keeper = GateKeeper(1)
    keeper.open_accounts()
    yield keeper
    keeper.close()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield listener


def test_a_connection_that_hung_up_is_not_handed_to_the_program(
    keeper: GateKeeper, listener: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    """It has no account any more, and bytes that it left must not be read."""
    with socket.create_connection(listener.getsockname()) as gone:
        gone.sendall(b"knock")
    with pytest.raises(BlockingIOError):
        keeper.admit(listener, lambda: listener.accept()[0])
    with (
        socket.create_connection(listener.getsockname()) as staying,
        keeper.admit(listener, lambda: listener.accept()[0]) as handed,
    ):
        assert handed.getpeername() == staying.getsockname()
    assert caplog.text == ""


def test_a_connection_of_another_machine_is_closed_unread_and_told_once(
    keeper: GateKeeper,
    listener: socket.socket,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(gate.PeerAccounts, "account_of", lambda *_: None)
    monkeypatch.setattr(gate, "is_elsewhere", lambda _: True)
    for _ in range(2):
        with socket.create_connection(listener.getsockname()) as stranger:
            with pytest.raises(BlockingIOError):
                keeper.admit(listener, lambda: listener.accept()[0])
            assert stranger.recv(1) == b""
    (record,) = caplog.records
    assert "a connection of another machine was closed unread" in record.getMessage()


def test_a_blocking_accept_is_refused_as_it_would_stop_the_gate(
    keeper: GateKeeper, listener: socket.socket
) -> None:
    listener.setblocking(True)
    with (
        socket.create_connection(listener.getsockname()),
        pytest.raises(OSError, match="a blocking accept") as refused,
    ):
        keeper.admit(listener, lambda: listener.accept()[0])
    assert refused.value.errno == errno.EOPNOTSUPP


def test_other_ports_of_the_program_are_its_own(gated: None, tmp_path: Path) -> None:
    port, guarded = free_ports(2)
    with listening(tmp_path, port, guarded) as process:
        assert [greet(port), greet(port)] == [b"hello", b"hello"]
        said(process, b"got 127.0.0.1")
