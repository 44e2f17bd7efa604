"""systemd's watchdog: heartbeats while the server answers, and none when it hangs."""

import os
import queue
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cluster.errors import ExitCode
from cluster.server import systemd
from tests.server.processes import HANG_SECONDS, PROJECT, free_ports, launch


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({"WATCHDOG_USEC": "20000000", "WATCHDOG_PID": "7"}, 20 / 3),
        ({"WATCHDOG_USEC": "3000000"}, 1.0),
        ({"WATCHDOG_USEC": "20000000", "WATCHDOG_PID": "8"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_a_third_of_what_systemd_allows(environ: dict[str, str], seconds: float | None) -> None:
    assert systemd.interval_seconds(environ, pid=7) == seconds


def test_no_sign_of_life_while_the_server_does_not_answer() -> None:
    answers, stop, said = iter([True, False, False, True]), threading.Event(), queue.SimpleQueue[str]()

    def answer(_seconds: float) -> bool:
        return next(answers, True)

    def notify(state: str) -> None:
        said.put(state)
        if state == "STATUS=serving":
            stop.set()

    systemd.send_heartbeats(0.01, answer, notify, stop).join(HANG_SECONDS)
    heard = [said.get() for _ in range(said.qsize())]
    assert heard == ["WATCHDOG=1", "STATUS=the server does not answer on its own port", "WATCHDOG=1", "STATUS=serving"]


@contextmanager
def service_manager() -> Iterator[socket.socket]:
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.settimeout(HANG_SECONDS)
        channel.bind(f"{folder}/notify")
        yield channel


def until(channel: socket.socket, word: str) -> list[str]:
    """What is said until `word` is."""
    heard: list[str] = []
    while word not in heard:
        heard += channel.recv(4096).decode().splitlines()
    return heard


def test_a_role_reports_its_life_also_after_it_has_read_its_inventory() -> None:
    port, metrics_port = free_ports(2)
    inventory = PROJECT / "inventories" / "local.yaml"
    override = f"nodes.localhost.roles.2.worker={{port: {port}, metrics_port: {metrics_port}}}"
    flags = ["--inventory", str(inventory), "--task", "1", "--set", override]
    with service_manager() as channel:
        environment = {"NOTIFY_SOCKET": channel.getsockname(), "WATCHDOG_USEC": "600000"}
        process = launch("worker_node", flags, environment)
        try:
            heard = until(channel, "READY=1")
            assert heard[0] == "STATUS=loading TensorFlow"
            assert f"STATUS=serving on port {port}" in until(channel, "WATCHDOG=1") + heard
            until(channel, "WATCHDOG=1")
            process.terminate()
            assert until(channel, "STOPPING=1")
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            output, _ = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == ExitCode.DONE, output


def test_a_process_that_is_not_meant_gives_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "1000000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getppid()))
    assert systemd.interval_seconds() is None
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    assert systemd.interval_seconds() is not None
