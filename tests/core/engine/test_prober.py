"""Servers asked for a sign of life: a crowd of dead ones takes no time from a healthy one."""

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from queue import Queue

import pytest

from core.engine import watchdog
from core.engine.threads import Prober
from core.engine.watchdog import PROBE_SECONDS, Watchdog
from core.server.sockets import EMPTY_SETTINGS_FRAME, answering

CROWD = 60
"""More than a pool of eight threads would ask within a watchdog's 90 s, at two seconds each."""
WAIT_SECONDS = 30.0
Address = tuple[str, int]


@pytest.fixture
def listeners() -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        yield [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(CROWD)]


@pytest.fixture
def silent(listeners: list[socket.socket]) -> list[Address]:
    """Addresses of stopped processes.

    The kernel completes the handshake, and nobody ever answers.
    """
    return [listener.getsockname() for listener in listeners]


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


def test_all_are_asked_at_the_same_time(listeners: list[socket.socket]) -> None:
    """None of them answers before each has been asked."""

    def serve() -> None:
        with ExitStack() as stack:
            connections = []
            for listener in listeners:
                listener.settimeout(WAIT_SECONDS)
                connections.append(stack.enter_context(listener.accept()[0]))
            for connection in connections:
                connection.sendall(EMPTY_SETTINGS_FRAME)

    everybody = {str(k): each.getsockname() for k, each in enumerate(listeners)}
    with ThreadPoolExecutor(1) as pool:
        served = pool.submit(serve)
        assert answering(everybody, WAIT_SECONDS) == set(everybody)
        served.result()


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


def test_the_watchdog_asks_a_crowd_of_stopped_workers_at_once_and_fences_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PSCLUSTER_SUPERVISOR", raising=False)
    workers = {f"worker:{number}": ("127.0.0.1", 1 + number) for number in range(CROWD)}
    questions = []

    def ask(addresses: dict[str, Address], seconds: float) -> set[str]:
        questions.append((addresses, seconds))
        return {"worker:0"}

    guard = Watchdog(coordinator=0, silence=-1.0)
    for name, (host, port) in workers.items():
        guard.command(f"watch {name} {host} {port}")
    monkeypatch.setattr(watchdog, "answering", ask)
    monkeypatch.setattr(guard, "cut", lambda addresses: None)
    guard.check_heartbeat()
    assert questions == [(workers, PROBE_SECONDS)]
    assert guard.fenced.keys() == workers.keys() - {"worker:0"}
