"""The watchdog against real processes and sockets: a server that is stopped, and one who waits for it for ever."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster.engine import watchdog
from cluster.engine.watchdog import Guardian, kill_through_supervisor
from cluster.server.probe import EMPTY_SETTINGS_FRAME
from cluster.server.sockets import cut, sockets_to
from tests.habits.leaks import PROJECT

WAIT_SECONDS = 30.0

SERVER = f"""
import socket
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
kept = []
while True:
    connection, _ = listener.accept()
    connection.sendall({EMPTY_SETTINGS_FRAME!r})
    kept.append(connection)
"""

WAITER = """
import socket, sys
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
connection.recv(9, socket.MSG_WAITALL)
print("waiting", flush=True)
print(len(connection.recv(1)), flush=True)
"""


def line_of(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.fixture
def start() -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Starts Python processes with pipes, and ends them whatever state they are in."""
    started: list[subprocess.Popen[str]] = []

    def begin(*arguments: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=PROJECT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def server(start: Callable[..., "subprocess.Popen[str]"]) -> tuple["subprocess.Popen[str]", int]:
    """A process that greets as a gRPC server does and then says nothing more; its port."""
    process = start("-c", SERVER)
    return process, int(line_of(process))


def test_it_finds_the_sockets_of_a_process_by_their_peer(server: tuple["subprocess.Popen[str]", int]) -> None:
    _, port = server
    with (
        socket.create_connection(("127.0.0.1", port)) as one,
        socket.create_connection(("127.0.0.1", port)) as two,
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as elsewhere,
    ):
        found = sockets_to(os.getpid(), {("127.0.0.1", port)})
        assert sorted(found) == sorted([one.fileno(), two.fileno()])
        assert elsewhere.fileno() not in found
        assert sockets_to(os.getpid(), {("127.0.0.2", port)}) == []
    assert sockets_to(os.getpid(), {("127.0.0.1", port)}) == []


def test_it_finds_mapped_addresses_in_ipv6_sockets(server: tuple["subprocess.Popen[str]", int]) -> None:
    _, port = server
    with socket.socket(socket.AF_INET6) as mapped:
        mapped.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        mapped.connect(("::ffff:127.0.0.1", port))
        assert sockets_to(os.getpid(), {("127.0.0.1", port)}) == [mapped.fileno()]


def test_a_process_that_is_gone_has_no_sockets(start: Callable[..., "subprocess.Popen[str]"]) -> None:
    process = start("-c", "")
    process.wait()
    assert sockets_to(process.pid, {("127.0.0.1", 1)}) == []
    assert cut(process.pid, {("127.0.0.1", 1)}) == 0


def test_a_cut_ends_a_wait_for_a_stopped_server(
    start: Callable[..., "subprocess.Popen[str]"], server: tuple["subprocess.Popen[str]", int]
) -> None:
    process, port = server
    waiter = start("-c", WAITER, str(port))
    assert line_of(waiter) == "waiting"
    process.send_signal(signal.SIGSTOP)
    assert cut(waiter.pid, {("127.0.0.1", port)}) == 1
    assert line_of(waiter) == "0", "end of file, where there would have been none for ever"


def test_one_that_is_cut_off_on_purpose_is_neither_killed_nor_kept_away(
    server: tuple["subprocess.Popen[str]", int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, port = server
    with socket.socket(socket.AF_UNIX) as supervisor, socket.create_connection(("127.0.0.1", port)) as ours:
        supervisor.bind(str(tmp_path / "supervisor.sock"))
        supervisor.listen()
        supervisor.setblocking(False)
        monkeypatch.setenv("PSCLUSTER_SUPERVISOR", str(tmp_path / "supervisor.sock"))
        guard = watchdog.Watchdog(os.getpid())
        guard.command(f"cut 127.0.0.1 {port}")
        ours.recv(9)  # the greeting, if it came before
        assert ours.recv(1) == b"", "cut"
        with socket.create_connection(("127.0.0.1", port)) as again:
            guard.hold()
            assert again.recv(9, socket.MSG_WAITALL), "a new connection stays"
        with pytest.raises(BlockingIOError):
            supervisor.accept()


def test_a_silent_coordinator_is_freed_of_the_server_that_does_not_answer_and_of_no_other(
    start: Callable[..., "subprocess.Popen[str]"], server: tuple["subprocess.Popen[str]", int]
) -> None:
    stopped, port = server
    healthy = start("-c", SERVER)
    healthy_port = int(line_of(healthy))
    waiter, patient = start("-c", WAITER, str(port)), start("-c", WAITER, str(healthy_port))
    assert (line_of(waiter), line_of(patient)) == ("waiting", "waiting")
    stopped.send_signal(signal.SIGSTOP)
    # It watches over the waiter, which sends no heartbeat.
    guard = start("-m", "cluster.engine.watchdog", str(waiter.pid), "0.2", "1000")
    assert guard.stdin is not None
    guard.stdin.write(f"watch worker:0 127.0.0.1 {healthy_port}\nwatch worker:1 127.0.0.1 {port}\n")
    guard.stdin.flush()
    assert line_of(waiter) == "0"
    assert patient.poll() is None
    _, problems = guard.communicate(timeout=WAIT_SECONDS)
    assert "worker:1" in problems
    assert "worker:0" not in problems
    assert guard.returncode == 0, "it ended with its input"


def test_while_the_fence_stands_every_new_connection_is_cut_too(
    start: Callable[..., "subprocess.Popen[str]"], server: tuple["subprocess.Popen[str]", int]
) -> None:
    _, port = server
    fencer = Guardian({"worker:0": ("127.0.0.1", port)})
    try:
        fencer.fence("worker:0")
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", port), WAIT_SECONDS) as connection:
                assert connection.recv(100) in (b"", EMPTY_SETTINGS_FRAME)
                assert connection.recv(100) == b""
        fencer.unfence("worker:0")
        fencer.fence("worker:0")
        fencer.unfence("worker:0")
    finally:
        fencer.close()
    with socket.create_connection(("127.0.0.1", port), WAIT_SECONDS) as connection:
        connection.settimeout(0.5)
        assert connection.recv(9, socket.MSG_WAITALL) == EMPTY_SETTINGS_FRAME
        with pytest.raises(TimeoutError):
            connection.recv(1)


def test_a_coordinator_that_never_moves_again_is_killed(start: Callable[..., "subprocess.Popen[str]"]) -> None:
    coordinator = start("-c", "import signal; signal.pause()")
    guard = start("-m", "cluster.engine.watchdog", str(coordinator.pid), "0.1", "0.3")
    assert coordinator.wait(WAIT_SECONDS) == -signal.SIGKILL
    assert guard.wait(WAIT_SECONDS) == 1
    assert guard.stderr is not None
    assert "killing it" in guard.stderr.read()


def test_it_ends_with_its_input_and_says_what_it_cannot_read(start: Callable[..., "subprocess.Popen[str]"]) -> None:
    guard = start("-m", "cluster.engine.watchdog", str(os.getpid()))
    _, problems = guard.communicate("heartbeat\nwatch me\n", timeout=WAIT_SECONDS)
    assert guard.returncode == 0
    assert "cannot read the command 'watch me'" in problems


def test_a_call_that_must_not_hang_is_made_without_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "HEARTBEAT_SECONDS", 0.01)
    sent: list[str] = []
    monkeypatch.setattr(Guardian, "_send", lambda _, line: sent.append(line))
    guardian = Guardian({})
    try:
        with guardian.quiet():
            sent.clear()
            assert not threading.Event().wait(0.2)
            assert sent == []
        assert sent[0] == "heartbeat"
    finally:
        guardian.close()


def test_the_supervisor_is_asked_to_kill_whom_we_fence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "supervisor.sock"
    heard: list[bytes] = []

    def answer() -> None:
        connection, _ = listener.accept()
        with connection:
            heard.append(connection.makefile("rb").readline())
            connection.sendall(b'{"ok": true}\n')

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(WAIT_SECONDS)
        supervisor = threading.Thread(target=answer)
        supervisor.start()
        monkeypatch.setenv("PSCLUSTER_SUPERVISOR", str(path))
        guard = watchdog.Watchdog(os.getpid())
        guard.command("fence worker:1 127.0.0.1 1")
        guard.command("fence worker:1 127.0.0.1 1")
        supervisor.join(WAIT_SECONDS)
    assert [json.loads(line) for line in heard] == [{"verb": "kill", "task": "worker:1"}]


def test_no_supervisor_and_one_that_is_gone_are_no_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PSCLUSTER_SUPERVISOR", raising=False)
    kill_through_supervisor("worker:1")
    monkeypatch.setenv("PSCLUSTER_SUPERVISOR", str(tmp_path / "nobody.sock"))
    kill_through_supervisor("worker:1")
