"""A real supervisor over played roles: what it starts, restarts, ends and answers."""

import json
import os
import select
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from core.ground.errors import ClusterError
from core.ground.locks import held_by
from deploy.cluster.services import SETTLED, ClusterStatus, RoleState
from deploy.common.project import OWNER
from deploy.supervisor.__main__ import open_owner
from deploy.supervisor.control import NobodyListensError
from deploy.supervisor.processes import RestartPolicy
from tests.deploy.playing import PATIENCE_SECONDS, PlayedCluster, eventually, gone
from tests.deploy.tables import Tables

rows = Tables(__file__)


def states(status: ClusterStatus) -> dict[str, tuple[str, int]]:
    """State and restarts of each role."""
    return {role.name: (role.state.value, role.restarts) for role in status.roles}


def first(status: ClusterStatus) -> int:
    """The process of the first role."""
    pid = status.roles[0].pid
    assert pid is not None
    return pid


def restarted(status: ClusterStatus) -> bool:
    return status.running and status.roles[0].restarts == 1


def settled(status: ClusterStatus) -> bool:
    return all(role.state in SETTLED for role in status.roles)


def ended(played: PlayedCluster) -> int:
    """How the supervisor ended."""
    assert played.process is not None
    code = played.process.wait(PATIENCE_SECONDS)
    eventually(lambda: all(gone(pid) for pid in played.pids), "the death of the roles")
    return code


def test_roles_become_ready_and_stop_leaves_nothing(played: PlayedCluster) -> None:
    status = played.plays(ps_0="ready", worker_0="ready")
    assert states(status) == {"ps:0": ("ready", 0), "worker:0": ("ready", 0)}
    memory = played.client.status().roles[0].anonymous_memory_bytes
    assert memory is not None
    assert 2**20 < memory < 2**30
    assert played.process is not None
    assert int(played.folder.pid.read_text()) == played.process.pid == status.supervisor_pid
    assert played.client.ask("stop")["killed"] == []
    assert played.process.wait(PATIENCE_SECONDS) == 0
    assert all(gone(pid) for pid in played.pids)
    assert {path.name for path in played.folder.path.iterdir()} == {"logs", "supervisor.lock"}
    assert f"role {first(status)} plays ready" in played.folder.log("ps:0").read_text()


def test_a_cluster_ends_with_the_process_it_was_started_for(
    played: PlayedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with subprocess.Popen(["sleep", "600"]) as owner:
        monkeypatch.setenv(OWNER, str(owner.pid))
        played.plays(ps_0="ready", worker_0="ready")
        owner.kill()
    assert ended(played) == 0


def test_an_owner_that_is_gone_already_is_known_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["true"]) as owner:
        pass
    monkeypatch.setenv(OWNER, str(owner.pid))
    descriptor = open_owner()
    assert descriptor is not None
    assert select.select([descriptor], [], [], 0) == ([descriptor], [], [])
    os.close(descriptor)
    assert OWNER not in os.environ
    assert open_owner() is None


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlayedCluster]:
    """A cluster that the tests only talk to."""
    cluster = PlayedCluster(tmp_path_factory.mktemp("standing"))
    cluster.plays(ps_0="ready")
    yield cluster
    cluster.end()


def test_only_the_owner_may_reach_the_sockets(standing: PlayedCluster) -> None:
    assert stat.S_IMODE(standing.folder.path.stat().st_mode) == 0o700
    assert stat.S_IMODE(standing.folder.control_socket.stat().st_mode) == 0o600


@rows("verb", "asked", "words")
def test_what_cannot_be_done_is_answered_in_one_line(
    standing: PlayedCluster, verb: str, asked: Any, words: str
) -> None:
    with pytest.raises(ClusterError, match=words):
        standing.client.ask(verb, **asked)


def test_a_line_that_is_no_question_is_answered_too(standing: PlayedCluster) -> None:
    with socket.socket(socket.AF_UNIX) as raw, raw.makefile("rwb") as stream:
        raw.settimeout(PATIENCE_SECONDS)
        raw.connect(str(standing.folder.control_socket))
        for line in (b"not json", b"[1]", b'"status"', b"x" * 100_000):
            stream.write(line + b"\n")
            stream.flush()
            reply = json.loads(stream.readline())
            assert reply["ok"] is False
    assert "64 KiB" in reply["error"]
    assert standing.client.status().cluster == "played"


def test_watchers_that_hang_up_are_let_go_though_nothing_changes(standing: PlayedCluster) -> None:
    assert standing.process is not None
    descriptors = Path(f"/proc/{standing.process.pid}/fd")

    def count() -> int:
        return len(list(descriptors.iterdir()))

    # Some clients may still be on their way out, so a crowd of watchers is told from them by its
    # size.
    many = count() + 10
    with ExitStack() as watchers:
        for _ in range(20):
            watcher = watchers.enter_context(socket.socket(socket.AF_UNIX))
            watcher.settimeout(PATIENCE_SECONDS)
            watcher.connect(str(standing.folder.control_socket))
            watcher.sendall(b'{"verb": "watch"}\n')
            stream = watchers.enter_context(watcher.makefile("rb"))
            assert json.loads(stream.readline())["state"] == "running"
        assert count() > many
    eventually(lambda: count() < many, "the end of the watchers' connections")


def test_a_second_supervisor_is_refused_and_harms_nothing(standing: PlayedCluster) -> None:
    assert standing.process is not None
    pid = standing.process.pid
    assert held_by(standing.folder.lock) == pid
    assert standing.launch("ps-0").wait(PATIENCE_SECONDS) == 1
    assert f"cluster played already has a supervisor (pid {pid})" in standing.said
    assert standing.until_running().supervisor_pid == pid


def test_a_role_that_dies_is_restarted_and_the_log_says_why(played: PlayedCluster) -> None:
    pid = first(played.plays(worker_0="ready", worker_1="ready"))
    os.kill(pid, signal.SIGKILL)
    status = played.until(restarted, "the restart")
    assert first(status) != pid
    assert states(status)["worker:1"] == ("ready", 0)
    # Not its last, cheerful line.
    assert "worker:0: restart in 0.1 s: ended with signal 9 (SIGKILL) after" in played.said
    assert "failure 1 of 10" in played.said


def test_kill_answers_only_once_the_process_is_dead(played: PlayedCluster) -> None:
    pid = first(played.plays(worker_0="deaf"))
    os.kill(pid, signal.SIGSTOP)
    played.until_state(RoleState.FROZEN)
    assert played.client.status().summary == "degraded"
    reply = played.client.ask("kill", task="worker:0", reason="no reply for 30 s")
    assert reply["pid"] == pid
    assert gone(pid)
    played.until(restarted, "the restart after the fence")
    assert "worker:0: to be killed on request: no reply for 30 s" in played.said


def test_an_injected_stop_freezes_a_role_until_it_is_told_to_go_on(played: PlayedCluster) -> None:
    """A stopped role dies with a killed supervisor."""

    def send(name: str) -> None:
        assert played.client.ask("signal", task="worker:0", signal=name)["pid"] == pid

    pid = first(played.plays(worker_0="ready"))
    send("SIGSTOP")
    played.until_state(RoleState.FROZEN)
    send("SIGCONT")
    played.until_state(RoleState.READY)
    assert "worker:0: SIGSTOP on request" in played.said
    send("SIGSTOP")
    assert played.process is not None
    played.process.kill()
    ended(played)


def test_a_cut_says_whether_there_was_a_connection_to_shut(played: PlayedCluster) -> None:
    played.script(worker_0="ready", ps_0="exit 2")
    played.start("worker-0", "ps-0")
    played.until(settled, "the end of ps:0")
    cut = played.client.ask("cut", task="worker:0", peer="ps:0")
    assert cut["pid"] is None, "a played worker has none"
    with pytest.raises(ClusterError, match="ps:0 has no process to cut off from worker:0: it is f"):
        played.client.ask("cut", task="ps:0", peer="worker:0")
    assert "worker:0: its connections to ps:0 are cut on request" in played.said
    for name in ("SIGSTOP", "SIGKILL"):
        with pytest.raises(ClusterError, match=f"no process to send {name} to: it is failed"):
            played.client.ask("signal", task="ps:0", signal=name)


def test_injected_kills_never_exhaust_a_role(played: PlayedCluster) -> None:
    status = played.plays(ps_0="ready")
    kills = RestartPolicy.limit + 2  # were they failures, it would be given up
    for number in range(kills):
        assert states(status) == {"ps:0": ("ready", number)}
        reply = played.client.ask("signal", task="ps:0", signal="SIGKILL")
        assert reply["pid"] == first(status)
        status = played.until_running()
    assert states(status) == {"ps:0": ("ready", kills)}


def test_a_role_that_never_gets_ready_is_given_up_and_restart_revives_it(
    played: PlayedCluster,
) -> None:
    played.script(ps_0="exit 1")
    played.start("ps-0")
    status = played.until(settled, "the end of the attempts")
    assert states(status) == {"ps:0": ("failed", 2)}
    played.script(ps_0="ready")
    assert played.client.ask("restart", tasks=["ps:0"])["tasks"] == ["ps:0"]
    assert states(played.until_running()) == {"ps:0": ("ready", 3)}


@rows("how", "why")
def test_stop_has_a_deadline_for_a_role_that_does_not_listen(
    played: PlayedCluster, how: str, why: str
) -> None:
    pid = first(played.plays(ps_0=how))
    if how == "ready":
        os.kill(pid, signal.SIGSTOP)
        played.until_state(RoleState.FROZEN)
    assert played.client.ask("stop")["killed"] == ["ps:0"]
    assert gone(pid)
    assert f"{why}: killed" in played.said


def test_a_silent_role_is_starting_and_can_be_stopped(played: PlayedCluster) -> None:
    """Another process cannot report readiness for it."""
    played.script(ps_0="silent", ps_1="ready")
    played.start("ps-0", "ps-1")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.connect(str(played.folder.notify_socket))
        notify.send(b"READY=1")
    played.until(
        lambda now: states(now) == {"ps:0": ("starting", 0), "ps:1": ("ready", 0)},
        "readiness of the honest role",
    )
    assert states(played.client.status())["ps:0"] == ("starting", 0)
    assert played.process is not None
    played.process.terminate()
    assert ended(played) == 0


def test_a_role_that_takes_too_long_is_killed_and_given_up(played: PlayedCluster) -> None:
    played.script(ps_0="silent")
    played.start("ps-0", ready_seconds=0.2)
    status = played.until(settled, "the end of the attempts")
    assert states(status) == {"ps:0": ("failed", 2)}
    assert "3 of 3 attempts ended without it being ready" in status.roles[0].reason
    assert "ps:0: not ready 0 s after its start: killed" in played.said


def test_a_killed_supervisor_takes_its_roles_along_and_the_next_one_starts(
    played: PlayedCluster,
) -> None:
    before = played.plays(ps_0="deaf", worker_0="deaf").supervisor_pid
    assert played.process is not None
    played.process.kill()
    ended(played)
    with pytest.raises(NobodyListensError):
        played.client.status()
    assert held_by(played.folder.lock) is None
    played.start("ps-0", "worker-0")
    assert played.until_running().supervisor_pid != before
