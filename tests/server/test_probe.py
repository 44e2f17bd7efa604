import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cluster.server.probe import EMPTY_SETTINGS_FRAME, PREFACE, answers
from tests.server.processes import HANG_SECONDS, free_ports

SETTINGS_ACKNOWLEDGED = bytes([0, 0, 0, 4, 1, 0, 0, 0, 0])
GO_AWAY = bytes([0, 0, 8, 7, 0, 0, 0, 0, 0])


@contextmanager
def replying(reply: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """A server that reads a client's preface, says `reply` and hangs up; yields its port and what it has read."""
    heard: list[bytes] = []

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(HANG_SECONDS)
            heard.append(connection.recv(len(PREFACE) + len(EMPTY_SETTINGS_FRAME), socket.MSG_WAITALL))
            connection.sendall(reply)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(HANG_SECONDS)
        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1], heard
        thread.join()


def test_a_server_that_sends_its_settings_answers() -> None:
    with replying(EMPTY_SETTINGS_FRAME) as (port, heard):
        assert answers("127.0.0.1", port, HANG_SECONDS)
    assert heard == [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"]


@pytest.mark.parametrize(
    "reply",
    [b"", b"\x00\x00", b"HTTP/1.1 400 Bad Request\r\n\r\n", SETTINGS_ACKNOWLEDGED, GO_AWAY, EMPTY_SETTINGS_FRAME[:-1]],
)
def test_anything_else_is_no_answer(reply: bytes) -> None:
    with replying(reply) as (port, _):
        assert not answers("127.0.0.1", port, HANG_SECONDS)


def test_silence_is_no_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert not answers("127.0.0.1", listener.getsockname()[1], 0.2)


def test_a_closed_port_or_an_unknown_host_is_no_answer() -> None:
    assert not answers("127.0.0.1", free_ports(1)[0], HANG_SECONDS)
    assert not answers("host.invalid", 2222, HANG_SECONDS)
