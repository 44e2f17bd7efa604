import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from core.server.sockets import EMPTY_SETTINGS_FRAME, PREFACE, answers
from tests.core.server.processes import HANG_SECONDS
from tests.ports import free_ports
from tests.tables import table


@pytest.mark.parametrize(("reply", "answered"), table("core/server/tables", "probes"))
def test_a_server_that_sends_its_settings_answers_and_no_other(reply: str, answered: bool) -> None:
    def serve() -> bytes:
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(HANG_SECONDS)
            heard = connection.recv(len(PREFACE) + len(EMPTY_SETTINGS_FRAME), socket.MSG_WAITALL)
            connection.sendall(bytes.fromhex(reply))
            return heard

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        listener.settimeout(HANG_SECONDS)
        serving = pool.submit(serve)
        assert answers("127.0.0.1", listener.getsockname()[1], HANG_SECONDS) == answered
    assert serving.result() == (
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
    )


def test_silence_is_no_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert not answers("127.0.0.1", listener.getsockname()[1], 0.2)


def test_a_closed_port_or_an_unknown_host_is_no_answer() -> None:
    assert not answers("127.0.0.1", free_ports(1)[0], HANG_SECONDS)
    assert not answers("host.invalid", 2222, HANG_SECONDS)
