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

from core.control.client import MOST_LINE_BYTES
from core.ground.errors import ClusterError
from core.inventory import load
from deploy.cluster.services import ClusterStatus
from deploy.common.state_folder import StateFolder
from deploy.supervisor import control, services
from deploy.supervisor.control import ControlClient, ControlServer
from deploy.supervisor.services import Supervised, answer_seconds
from tests.core.server.processes import HANG_SECONDS

STATUS = ClusterStatus("bench", ())
Play = Callable[[socket.socket, threading.Event], object]


@contextmanager
def answering(path: Path, play: Play, clients: int = 1) -> Iterator[None]:
    """Something that listens there and answers its first clients so."""
    end = threading.Event()

    def serve() -> None:
        for _ in range(clients):
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
    ("play", "seconds", "words"),
    [
        (trickle, 0.4, r"did not answer 'status' within 0 s"),
        (endless_line, HANG_SECONDS, f"more than {MOST_LINE_BYTES} bytes"),
        (no_object, HANG_SECONDS, r"answered 'status' with b'\[1\]"),
    ],
)
def test_an_answer_is_bounded_as_a_whole(
    play: Play, seconds: float, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "s"
    with answering(path, play), pytest.raises(ClusterError, match=words):
        ControlClient(path, deadline_seconds=seconds).ask("status")


def supervised(folder: Path, workers: int) -> Supervised:
    """The cluster `c` of this folder with so many workers and a parameter server."""
    roles = ["ps", "coordinator"]
    for port in range(3000, 3000 + 2 * workers, 2):
        roles.append(f"worker: {{port: {port}, metrics_port: {port + 1}}}")
    node = f"{{name: here, address: 127.0.0.1, roles: [{', '.join(roles)}]}}"
    path = folder / "c.yaml"
    path.write_text(f"schema: 1\ncluster: c\nconnection: local\nnodes: [{node}]\n")
    return Supervised(load(path), ())


def late(connection: socket.socket, _end: threading.Event) -> None:
    connection.recv(4096)
    threading.Event().wait(1.0)
    connection.send(b'{"ok": true, "cluster": "c", "state": "running"}\n')


def test_an_answer_that_is_late_for_few_roles_is_in_time_for_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert answer_seconds(1) < answer_seconds(17) < answer_seconds(65)
    assert answer_seconds(65) > 2 * 13.6, "what 65 took, and `start` gave up"
    monkeypatch.setattr(services, "answer_seconds", lambda roles: 0.2 + 0.2 * roles)
    folder = StateFolder.of(tmp_path / "c.yaml", "c")
    folder.create()
    with answering(folder.control_socket, late, clients=2):
        with pytest.raises(ClusterError, match="did not answer 'status' within"):
            supervised(tmp_path, 1).client().ask("status")
        assert supervised(tmp_path, 60).client().ask("status")["cluster"] == "c"


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


def test_a_client_that_says_nothing_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
