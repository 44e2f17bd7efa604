"""The watchdog against real processes and sockets.

A server that is stopped, and one who waits for it for ever.
"""

import errno
import json
import os
import signal
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import NoReturn
from unittest import mock

import pytest

from core.engine import guardian, watchdog
from core.engine.guardian import Guardian
from core.engine.watchdog import kill_through_supervisor
from core.server.sockets import EMPTY_SETTINGS_FRAME, cut, sockets_to
from tests.core.engine.played_servers import (
    WAIT_SECONDS,
    Process,
    Server,
    Start,
    errors_of,
    line_of,
    news_of,
)


def test_it_finds_the_sockets_of_a_process_by_their_peer(server: Server) -> None:
    with (
        server.connected() as one,
        server.connected() as two,
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()),
        socket.socket(socket.AF_INET6) as mapped,
    ):
        mapped.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        mapped.connect((f"::ffff:{server.at[0]}", server.at[1]))
        found = sockets_to(os.getpid(), {server.at})
        assert sorted(found) == sorted(each.fileno() for each in (one, two, mapped))
        assert sockets_to(os.getpid(), {("127.0.0.2", server.at[1])}) == []
    assert sockets_to(os.getpid(), {server.at}) == []


def test_a_process_that_is_gone_has_no_sockets(start: Start) -> None:
    process = start("-c", "")
    process.wait()
    assert sockets_to(process.pid, {("127.0.0.1", 1)}) == []
    assert cut(process.pid, {("127.0.0.1", 1)}) == 0


def test_one_that_is_cut_off_on_purpose_is_neither_killed_nor_kept_away(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX) as supervisor, server.connected() as ours:
        supervisor.bind(str(tmp_path / "supervisor.sock"))
        supervisor.listen()
        supervisor.setblocking(False)
        monkeypatch.setenv("PSCLUSTER_SUPERVISOR", supervisor.getsockname())
        guard = watchdog.Watchdog(os.getpid())
        guard.command(f"cut {server.words}")
        ours.recv(9)  # the greeting, if it came before
        assert ours.recv(1) == b"", "cut"
        with server.connected() as again:
            guard.hold()
            assert again.recv(9, socket.MSG_WAITALL), "a new connection stays"
        with pytest.raises(BlockingIOError):
            supervisor.accept()


def test_a_silent_coordinator_is_freed_of_the_server_that_does_not_answer_and_of_no_other(
    start: Start, server: Server, healthy: Server, watchdog_of: Callable[..., Process]
) -> None:
    waiter = server.waiter(start)
    patient = healthy.waiter(start)
    server.stop()
    # It watches over the waiter, which sends no heartbeat.
    watched = (f"watch worker:0 {healthy.words}", f"watch worker:1 {server.words}")
    guard = watchdog_of(waiter, "0.2 1000", *watched)
    assert line_of(waiter) == "0"
    assert patient.poll() is None
    _, problems = guard.communicate(timeout=WAIT_SECONDS)
    assert "worker:1" in problems
    assert "worker:0" not in problems
    assert guard.returncode == 0, "it ended with its input"


def test_while_the_fence_stands_every_new_connection_is_cut_too(server: Server) -> None:
    with closing(Guardian({"worker:0": server.at})) as fencer:
        fencer.fence("worker:0")
        for _ in range(3):
            with server.connected() as connection:
                assert connection.recv(100) in (b"", EMPTY_SETTINGS_FRAME)
                assert connection.recv(100) == b""
        fencer.unfence("worker:0")
        fencer.fence("worker:0")
        fencer.unfence("worker:0")
    with server.connected() as connection:
        connection.settimeout(0.5)
        assert connection.recv(9, socket.MSG_WAITALL) == EMPTY_SETTINGS_FRAME
        with pytest.raises(TimeoutError):
            connection.recv(1)


@pytest.mark.parametrize(
    ("limits", "guarded", "said"),
    [
        ("0.1 0.3", False, "killing it"),
        (
            "1000 1000 1000 0.2 0.2",
            True,
            "waits for a server that it was cut off from: killing it",
        ),
    ],
    ids=["that never moves again", "that no cut frees"],
)
def test_a_coordinator_is_killed(
    start: Start,
    server: Server,
    watchdog_of: Callable[..., Process],
    limits: str,
    guarded: bool,
    said: str,
) -> None:
    coordinator = start("-c", "import signal; signal.pause()")
    lines = [f"guard ps:0 {server.words}", "begin"] if guarded else []
    guard = watchdog_of(coordinator, limits, *lines)
    assert coordinator.wait(WAIT_SECONDS) == -signal.SIGKILL
    assert said in errors_of(guard)


def test_an_operation_that_begins_after_a_cut_has_its_own_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def kill(_: watchdog.Watchdog, why: str) -> NoReturn:
        raise SystemExit(why)

    monkeypatch.setattr(watchdog.Watchdog, "kill", kill)
    guard = watchdog.Watchdog(os.getpid(), stuck=20.0)
    guard.command("guard ps:0 127.0.0.1 1")
    guard.lose({"ps:0": 10.0})
    guard.answers.awake_seconds = 20.0
    guard.command("begin")
    for seconds in (20.0, 39.9):
        guard.answers.awake_seconds = seconds
        guard.end_overdue()
    guard.answers.awake_seconds = 40.0
    with pytest.raises(SystemExit, match="waits for a server"):
        guard.end_overdue()


def test_a_kernel_that_does_not_let_us_cut_is_told_of_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = mock.Mock(side_effect=[ProcessLookupError, PermissionError(errno.EPERM, "no")])
    monkeypatch.setattr(watchdog, "cut", refused)
    guard = watchdog.Watchdog(os.getpid())
    for _ in range(3):
        guard.cut({("127.0.0.1", 1)})
    assert capsys.readouterr().err.count("does not let us cut the coordinator's sockets (no)") == 1


def test_it_ends_with_its_input_and_says_what_it_cannot_read(start: Start) -> None:
    guard = start("-m", "core.engine.watchdog", str(os.getpid()))
    _, problems = guard.communicate("heartbeat\nwatch me\n", timeout=WAIT_SECONDS)
    assert guard.returncode == 0
    assert "cannot read the command 'watch me'" in problems


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a guardian sends to its watchdog, which does not get it."""
    lines: list[str] = []
    monkeypatch.setattr(Guardian, "_send", lambda _, line: lines.append(line))
    return lines


def test_a_call_that_must_not_hang_is_made_without_heartbeats(
    monkeypatch: pytest.MonkeyPatch, sent: list[str]
) -> None:
    monkeypatch.setattr(guardian, "HEARTBEAT_SECONDS", 0.01)
    with closing(Guardian({})) as own:
        with own.quiet():
            sent.clear()
            assert not threading.Event().wait(0.2)
            assert sent == []
        assert sent[0] == "heartbeat"


def test_a_guarded_server_that_stops_is_cut_off_while_the_coordinator_is_well(
    start: Start, server: Server, healthy: Server, watchdog_of: Callable[..., Process]
) -> None:
    waiter = server.waiter(start)
    patient = healthy.waiter(start)
    guarded = (f"guard ps:0 {healthy.words}", f"guard ps:1 {server.words}")
    guard = watchdog_of(waiter, "1000 1000 1.5", *guarded)
    server.stop()
    assert news_of(guard).startswith("lost ps:1 ")
    assert line_of(waiter) == "0"
    assert patient.poll() is None
    said = guard.communicate(timeout=WAIT_SECONDS)[0]
    assert set(said.split()) <= {"alive"}, "of the healthy one it says nothing"


def test_an_operation_that_never_ends_is_ended_although_the_server_answers(
    start: Start, server: Server, watchdog_of: Callable[..., Process]
) -> None:
    waiter = server.waiter(start)
    lines = (f"guard ps:0 {server.words}", "begin", "end", "begin")
    guard = watchdog_of(waiter, "1000 1000 1000 0.3", *lines)
    assert news_of(guard).startswith("overdue ")
    assert line_of(waiter) == "0"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_watchdog_that_dies_or_stops_is_replaced_by_one_that_knows_what_it_knew(
    monkeypatch: pytest.MonkeyPatch, server: Server, how: signal.Signals
) -> None:
    monkeypatch.setattr(guardian, "HEARTBEAT_SECONDS", 0.01)
    monkeypatch.setattr(guardian, "HUNG_SECONDS", 5.0)
    monkeypatch.setattr(guardian, "NEXT_WATCHDOG_SECONDS", 0.0)
    with closing(Guardian({"worker:0": server.at})) as own:
        own.fence("worker:0")
        first = own._process
        first.send_signal(how)
        with server.connected() as connection:
            while connection.recv(100):
                pass  # only the second one can cut it
        assert own._process is not first
        assert first.poll() == -signal.SIGKILL


def test_a_new_watchdog_hears_of_the_operation_under_way(
    monkeypatch: pytest.MonkeyPatch, sent: list[str]
) -> None:
    monkeypatch.setattr(guardian, "NEXT_WATCHDOG_SECONDS", 1000.0)

    def heard(own: Guardian) -> list[str]:
        own._process.kill()
        own._process.wait()
        sent.clear()
        own._start_again()
        return [line for line in sent if line != "heartbeat"]

    with closing(Guardian({})) as own:
        with own.operation():
            assert heard(own) == ["begin"]
        assert "end" in sent
        assert heard(own) == []


def test_the_supervisor_is_asked_to_kill_whom_we_fence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer() -> bytes:
        connection, _ = listener.accept()
        with connection:
            line = connection.makefile("rb").readline()
            connection.sendall(b'{"ok": true}\n')
            return line

    with socket.socket(socket.AF_UNIX) as listener, ThreadPoolExecutor(1) as pool:
        listener.bind(str(tmp_path / "supervisor.sock"))
        listener.listen()
        listener.settimeout(WAIT_SECONDS)
        supervisor = pool.submit(answer)
        monkeypatch.setenv("PSCLUSTER_SUPERVISOR", listener.getsockname())
        guard = watchdog.Watchdog(os.getpid())
        guard.command("fence worker:1 127.0.0.1 1")
        guard.command("fence worker:1 127.0.0.1 1")
        line = supervisor.result(WAIT_SECONDS)
    assert json.loads(line) == {"verb": "kill", "task": "worker:1"}


@pytest.mark.parametrize("supervisor", [None, "/nowhere/supervisor.sock"])
def test_a_fence_is_put_up_without_a_supervisor_and_with_one_that_is_gone(
    server: Server, monkeypatch: pytest.MonkeyPatch, supervisor: str | None
) -> None:
    monkeypatch.delenv("PSCLUSTER_SUPERVISOR", raising=False)
    if supervisor:
        monkeypatch.setenv("PSCLUSTER_SUPERVISOR", supervisor)
    guard = watchdog.Watchdog(os.getpid())
    with server.connected() as ours:
        kill_through_supervisor("worker:1")  # what the fence does in a thread
        guard.command(f"fence worker:1 {server.words}")
        guard.hold()
        while ours.recv(9):
            pass  # the greeting, if it came before
