"""The supervisor's socket: how long and how much either side waits for the other."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from cluster.control.lines import MOST_LINE_BYTES
from cluster.errors import ClusterError
from deploy.cluster.role_status import ClusterStatus
from deploy.supervisor import control
from deploy.supervisor.control import ControlClient, ControlServer
from tests.server.processes import HANG_SECONDS

STATUS = ClusterStatus("bench", ())


@contextmanager
def answering(path: Path, play: Callable[[socket.socket, threading.Event], None]) -> Iterator[None]:
    """Something that listens there and answers its first client so."""
    end = threading.Event()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            play(connection, end)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join(HANG_SECONDS)


def trickle(connection: socket.socket, end: threading.Event) -> None:
    while not end.wait(0.02):
        connection.sendall(b" ")


def endless_line(connection: socket.socket, end: threading.Event) -> None:
    while not end.is_set():
        connection.sendall(b" " * 65_536)


def no_object(connection: socket.socket, _end: threading.Event) -> None:
    connection.recv(4096)  # else the client may find the connection closed before it has asked
    connection.sendall(b"[1]\n")


@pytest.mark.parametrize(
    ("play", "words"),
    [
        (trickle, r"did not answer 'status' within 0 s"),
        (endless_line, f"more than {MOST_LINE_BYTES} bytes"),
        (no_object, r"answered 'status' with b'\[1\]"),
    ],
)
def test_an_answer_is_bounded_as_a_whole(
    play: Callable[[socket.socket, threading.Event], None], words: str, tmp_path: Path
) -> None:
    path, begun = tmp_path / "s", time.monotonic()
    with answering(path, play), pytest.raises(ClusterError, match=words):
        ControlClient(path, deadline_seconds=0.4 if play is trickle else HANG_SECONDS).ask("status")
    assert time.monotonic() - begun < HANG_SECONDS / 2


def served(path: Path, story: Callable[[], Any]) -> Any:
    """What `story`, run in a thread, returns while a control server listens on `path`."""

    async def answer(_request: Any) -> dict[str, Any]:
        return STATUS.to_json()

    async def all_of_it() -> Any:
        server = ControlServer(path, answer, lambda: STATUS)
        await server.open()
        try:
            return await asyncio.to_thread(story)
        finally:
            await server.close()

    return asyncio.run(all_of_it())


def test_a_client_that_says_nothing_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "REQUEST_SECONDS", 0.2)
    path = tmp_path / "s"

    def story() -> bytes:
        with socket.socket(socket.AF_UNIX) as silent:
            silent.settimeout(HANG_SECONDS)
            silent.connect(str(path))
            silent.sendall(b'{"verb"')
            return silent.recv(1)

    assert served(path, story) == b""


def test_one_client_too_many_is_closed_and_later_ones_are_served(tmp_path: Path) -> None:
    path = tmp_path / "s"

    def story() -> ClusterStatus:
        with ExitStack() as crowd:
            for _ in range(control.MOST_CONNECTIONS):
                crowd.enter_context(socket.socket(socket.AF_UNIX)).connect(str(path))
            with pytest.raises(ClusterError, match=r"hung up|ended before"):
                ControlClient(path, HANG_SECONDS).status()
        end = time.monotonic() + HANG_SECONDS
        while True:
            try:
                return ControlClient(path, HANG_SECONDS).status()
            except ClusterError:  # the crowd is just leaving
                assert time.monotonic() < end

    assert served(path, story) == STATUS
