"""Servers asked for a sign of life: a crowd of dead ones takes no time from a healthy one."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from queue import Queue

import pytest

from core.engine.threads import Prober
from core.engine.watchdog import PROBE_SECONDS, Watchdog
from core.server.probe import EMPTY_SETTINGS_FRAME, answering

CROWD = 60
"""More than a pool of eight threads would ask within a watchdog's 90 s, at two seconds each."""
WAIT_SECONDS = 30.0
Address = tuple[str, int]


@pytest.fixture
def silent() -> Iterator[list[Address]]:
    """Addresses of stopped processes.

    The kernel completes the handshake, and nobody ever answers.
    """
    with ExitStack() as stack:
        yield [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()
            for _ in range(CROWD)
        ]


@pytest.fixture
def healthy() -> Iterator[Address]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ended = threading.Event()

        def serve() -> None:
            while not ended.is_set():
                connection, _ = listener.accept()
                with connection:
                    if not ended.is_set():
                        connection.sendall(EMPTY_SETTINGS_FRAME)
                        connection.recv(100)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()
        ended.set()
        socket.create_connection(listener.getsockname()).close()
        thread.join()


def test_all_are_asked_at_the_same_time(silent: list[Address], healthy: Address) -> None:
    begin = time.monotonic()
    everybody = {
        "healthy": healthy,
        "refuses": ("127.0.0.1", 1),
        **{f"silent:{k}": at for k, at in enumerate(silent)},
    }
    assert answering(everybody, 1.0) == {"healthy"}
    assert time.monotonic() - begin < CROWD * 1.0 / 2, "not one after the other"


def test_a_name_that_nobody_knows_does_not_answer() -> None:
    assert answering({"nobody": ("no-such-host.invalid", 1)}, 1.0) == set()


def test_a_healthy_one_is_heard_before_the_dead_ones_have_been_given_up(
    silent: list[Address], healthy: Address
) -> None:
    heard: Queue[tuple[str, bool]] = Queue()
    with closing(Prober()) as prober:
        for address in silent:
            prober.ask(address, 1.0, lambda alive: heard.put(("silent", alive)))
        prober.ask(healthy, 1.0, lambda alive: heard.put(("healthy", alive)))
        assert heard.get(timeout=WAIT_SECONDS) == ("healthy", True)
        assert [heard.get(timeout=WAIT_SECONDS) for _ in silent] == [("silent", False)] * CROWD
        prober.close()


def test_the_watchdog_fences_a_crowd_of_stopped_workers_in_the_time_of_one_probe(
    silent: list[Address], healthy: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PSCLUSTER_SUPERVISOR", raising=False)
    guard = Watchdog(coordinator=0, silence=-1.0)
    for number, (host, port) in enumerate([healthy, *silent]):
        guard.command(f"watch worker:{number} {host} {port}")
    monkeypatch.setattr(guard, "cut", lambda addresses: None)
    begin = time.monotonic()
    guard.check_heartbeat()
    assert time.monotonic() - begin < CROWD * PROBE_SECONDS / 4
    assert set(guard.fenced) == {f"worker:{number}" for number in range(1, CROWD + 1)}
