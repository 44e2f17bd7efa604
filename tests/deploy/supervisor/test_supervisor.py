import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.errors import ClusterError
from deploy.cluster.role_status import ClusterStatus, RoleState
from deploy.common.file_lock import FileLock, held_by
from deploy.common.state_folder import StateFolder
from deploy.supervisor import processes
from deploy.supervisor.control import ControlClient, NobodyListensError
from deploy.supervisor.policy import RestartPolicy
from deploy.supervisor.processes import identify
from tests.deploy.playing import PATIENCE_SECONDS, PlayedCluster, eventually, gone


def only(status: ClusterStatus, name: str) -> tuple[RoleState, int]:
    role = next(role for role in status.roles if role.name == name)
    return role.state, role.restarts


def test_roles_become_ready_and_stop_leaves_nothing(played: PlayedCluster) -> None:
    played.script(ps_0="ready", worker_0="ready")
    supervisor = played.start("ps-0", "worker-0")
    status = played.until_running()
    assert [role.name for role in status.roles] == ["ps:0", "worker:0"]
    assert all(role.pid and role.restarts == 0 for role in status.roles)
    memory = played.client.status().roles[0].anonymous_memory_bytes
    assert memory is not None
    assert 2**20 < memory < 2**30
    assert int(played.folder.pid.read_text()) == supervisor.pid == status.supervisor_pid
    assert played.client.ask("stop")["killed"] == []
    assert supervisor.wait(PATIENCE_SECONDS) == 0
    assert all(gone(pid) for pid in played.pids)
    left = {path.name for path in played.folder.path.iterdir()}
    assert left == {"logs", "supervisor.lock"}
    assert f"role {status.roles[0].pid} plays ready" in played.folder.log("ps:0").read_text()


def test_only_the_owner_may_reach_the_sockets(played: PlayedCluster) -> None:
    played.script(ps_0="ready")
    played.start("ps-0")
    assert stat.S_IMODE(played.folder.path.stat().st_mode) == 0o700
    assert stat.S_IMODE(played.folder.control_socket.stat().st_mode) == 0o600


def test_a_client_does_not_talk_to_somebody_elses_supervisor(played: PlayedCluster) -> None:
    played.script(ps_0="ready")
    played.start("ps-0")
    stranger = ControlClient(played.folder.control_socket, owner=os.getuid() + 1)
    with pytest.raises(ClusterError, match=f"belongs to user {os.getuid()}, not to user {os.getuid() + 1}"):
        stranger.ask("stop")
    assert played.client.status().roles


def test_watchers_that_hang_up_are_let_go_though_nothing_changes(played: PlayedCluster) -> None:
    played.script(ps_0="ready")
    supervisor = played.start("ps-0")
    played.until_running()
    descriptors = Path(f"/proc/{supervisor.pid}/fd")
    # Some clients may still be on their way out, so a crowd of watchers is told from them by its size.
    many = len(list(descriptors.iterdir())) + 10
    with ExitStack() as watchers:
        for _ in range(20):
            watcher = watchers.enter_context(socket.socket(socket.AF_UNIX))
            watcher.settimeout(PATIENCE_SECONDS)
            watcher.connect(str(played.folder.control_socket))
            watcher.sendall(b'{"verb": "watch"}\n')
            stream = watchers.enter_context(watcher.makefile("rb"))
            assert json.loads(stream.readline())["state"] == "running"
        assert len(list(descriptors.iterdir())) > many
    eventually(lambda: len(list(descriptors.iterdir())) < many, "the end of the watchers' connections")


def test_a_role_that_dies_is_restarted_and_the_log_says_why(played: PlayedCluster) -> None:
    played.script(worker_0="ready", worker_1="ready")
    played.start("worker-0", "worker-1")
    first = played.until_running().roles[0].pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    status = played.until(lambda now: now.running and now.roles[0].restarts == 1, "the restart")
    assert status.roles[0].pid != first
    assert only(status, "worker:1") == (RoleState.READY, 0)
    log = (played.root / "supervisor.out").read_text()
    assert "worker:0: restart in 0.1 s: ended with signal 9 (SIGKILL) after" in log  # not its last, cheerful line
    assert "failure 1 of 10" in log


def test_kill_answers_only_once_the_process_is_dead(played: PlayedCluster) -> None:
    played.script(worker_0="deaf")
    played.start("worker-0")
    pid = played.until_running().roles[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: played.client.status().roles[0].state is RoleState.FROZEN, "the frozen state")
    assert played.client.status().summary == "degraded"
    reply = played.client.ask("kill", task="worker:0", reason="no reply for 30 s")
    assert reply["pid"] == pid
    assert gone(pid)
    played.until(lambda now: now.running and now.roles[0].restarts == 1, "the restart after the fence")
    assert "worker:0: to be killed on request: no reply for 30 s" in (played.root / "supervisor.out").read_text()


def test_an_injected_stop_freezes_a_role_until_it_is_told_to_go_on(played: PlayedCluster) -> None:
    played.script(worker_0="ready")
    played.start("worker-0")
    pid = played.until_running().roles[0].pid
    assert played.client.ask("signal", task="worker:0", signal="SIGSTOP")["pid"] == pid
    eventually(lambda: played.client.status().roles[0].state is RoleState.FROZEN, "the frozen state")
    assert played.client.ask("signal", task="worker:0", signal="SIGCONT")["pid"] == pid
    eventually(lambda: played.client.status().running, "the thaw")
    assert "worker:0: SIGSTOP on request" in (played.root / "supervisor.out").read_text()


def test_a_cut_says_whether_there_was_a_connection_to_shut(played: PlayedCluster) -> None:
    played.script(worker_0="ready", ps_0="exit 2")
    played.start("worker-0", "ps-0")
    played.until(lambda now: now.settled, "the end of ps:0")
    assert played.client.ask("cut", task="worker:0", peer="ps:0")["pid"] is None, "a played worker has none"
    with pytest.raises(ClusterError, match="ps:0 has no process to cut off from worker:0: it is failed"):
        played.client.ask("cut", task="ps:0", peer="worker:0")
    with pytest.raises(ClusterError, match="no role 'ps:7'"):
        played.client.ask("cut", task="worker:0", peer="ps:7")
    assert "worker:0: its connections to ps:0 are cut on request" in (played.root / "supervisor.out").read_text()


def test_injected_kills_never_exhaust_a_role(played: PlayedCluster) -> None:
    played.script(ps_0="ready")
    played.start("ps-0")
    kills = RestartPolicy.limit + 2  # were they failures, it would be given up
    for number in range(kills):
        running = played.until_running().roles[0]
        assert running.restarts == number
        assert played.client.ask("signal", task="ps:0", signal="SIGKILL")["pid"] == running.pid
    assert only(played.until_running(), "ps:0") == (RoleState.READY, kills)


def test_a_role_without_a_process_cannot_be_sent_a_signal(played: PlayedCluster) -> None:
    played.script(ps_0="exit 2")
    played.start("ps-0")
    played.until(lambda now: now.settled, "the end of the role")
    for name in ("SIGSTOP", "SIGKILL"):
        with pytest.raises(ClusterError, match=f"ps:0 has no process to send {name} to: it is failed"):
            played.client.ask("signal", task="ps:0", signal=name)


def test_a_stopped_role_dies_with_a_killed_supervisor(played: PlayedCluster) -> None:
    played.script(worker_0="ready")
    supervisor = played.start("worker-0")
    pid = played.until_running().roles[0].pid
    assert pid is not None
    played.client.ask("signal", task="worker:0", signal="SIGSTOP")
    supervisor.kill()
    supervisor.wait(PATIENCE_SECONDS)
    eventually(lambda: gone(pid), "the death of the stopped role")


def test_a_permanent_exit_code_is_not_restarted_and_says_its_line(played: PlayedCluster) -> None:
    played.script(ps_0="exit 20", worker_0="ready")
    played.start("ps-0", "worker-0")
    status = played.until(lambda now: now.settled, "an answer for every role")
    assert only(status, "ps:0") == (RoleState.FAILED, 0)
    assert only(status, "worker:0") == (RoleState.READY, 0)
    assert status.roles[0].reason.startswith(
        "this role cannot work, says code 20 [ended with exit code 20 (PORT_TAKEN)"
    )


def test_a_role_that_never_gets_ready_is_given_up_and_restart_revives_it(played: PlayedCluster) -> None:
    played.script(ps_0="exit 1")
    played.start("ps-0")
    status = played.until(lambda now: now.settled, "the end of the attempts")
    assert only(status, "ps:0") == (RoleState.FAILED, 2)
    played.script(ps_0="ready")
    assert played.client.ask("restart", tasks=["ps:0"])["tasks"] == ["ps:0"]
    assert only(played.until_running(), "ps:0") == (RoleState.READY, 3)


def test_restart_of_all_gives_every_role_a_new_process(played: PlayedCluster) -> None:
    played.script(ps_0="ready", worker_0="ready")
    played.start("ps-0", "worker-0")
    before = {role.name: role.pid for role in played.until_running().roles}
    played.client.ask("restart")
    after = {role.name: role.pid for role in played.until_running().roles}
    assert all(before[name] != after[name] for name in before)


@pytest.mark.parametrize("how", ["deaf", "ready"])
def test_stop_has_a_deadline_for_a_role_that_does_not_listen(played: PlayedCluster, how: str) -> None:
    played.script(ps_0=how)
    played.start("ps-0")
    pid = played.until_running().roles[0].pid
    assert pid is not None
    if how == "ready":
        os.kill(pid, signal.SIGSTOP)
        eventually(lambda: played.client.status().roles[0].state is RoleState.FROZEN, "the frozen state")
    assert played.client.ask("stop")["killed"] == ["ps:0"]
    assert gone(pid)


def test_a_silent_role_is_starting_and_can_be_stopped(played: PlayedCluster) -> None:
    played.script(ps_0="silent")
    supervisor = played.start("ps-0")
    assert only(played.client.status(), "ps:0") == (RoleState.STARTING, 0)
    supervisor.terminate()
    assert supervisor.wait(PATIENCE_SECONDS) == 0


def test_a_role_that_takes_too_long_is_killed_and_given_up(played: PlayedCluster) -> None:
    played.script(ps_0="silent")
    played.start("ps-0", ready_seconds=0.2)
    status = played.until(lambda now: now.settled, "the end of the attempts")
    assert only(status, "ps:0") == (RoleState.FAILED, 2)
    assert "3 of 3 attempts ended without it being ready" in status.roles[0].reason
    assert "ps:0: not ready 0 s after its start: killed" in (played.root / "supervisor.out").read_text()


def test_another_process_cannot_report_readiness_for_a_role(played: PlayedCluster) -> None:
    played.script(ps_0="silent", ps_1="ready")
    played.start("ps-0", "ps-1")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.connect(str(played.folder.notify_socket))
        notify.send(b"READY=1")
    played.until(lambda now: now.roles[1].state is RoleState.READY, "readiness of the honest role")
    assert only(played.client.status(), "ps:0")[0] is RoleState.STARTING


def test_a_killed_supervisor_takes_its_roles_along_and_the_next_one_starts(played: PlayedCluster) -> None:
    played.script(ps_0="deaf", worker_0="deaf")
    supervisor = played.start("ps-0", "worker-0")
    pids = [role.pid for role in played.until_running().roles if role.pid]
    supervisor.kill()
    supervisor.wait(PATIENCE_SECONDS)
    eventually(lambda: all(gone(pid) for pid in pids), "the death of the roles")
    with pytest.raises(NobodyListensError):
        played.client.status()
    assert held_by(played.folder.lock) is None
    played.start("ps-0", "worker-0")
    assert played.until_running().supervisor_pid != supervisor.pid


def test_a_second_supervisor_is_refused_and_harms_nothing(played: PlayedCluster) -> None:
    played.script(ps_0="ready")
    first = played.start("ps-0")
    assert held_by(played.folder.lock) == first.pid
    assert played.launch("ps-0").wait(PATIENCE_SECONDS) == 1
    assert f"cluster played already has a supervisor (pid {first.pid})" in (played.root / "supervisor.out").read_text()
    assert played.until_running().supervisor_pid == first.pid


def test_a_cluster_in_a_deep_folder_works_too(tmp_path: Path) -> None:
    deep = tmp_path / ("deep" * 20)
    deep.mkdir()
    cluster = PlayedCluster(deep)
    try:
        cluster.script(ps_0="ready")
        cluster.start("ps-0")
        cluster.until_running()
    finally:
        cluster.end()
    assert not cluster.folder.control_socket.parent.exists()


def test_what_cannot_be_done_is_answered_in_one_line(played: PlayedCluster) -> None:
    played.script(ps_0="ready")
    played.start("ps-0")
    with pytest.raises(ClusterError, match="no role 'worker:7'; this cluster has ps:0"):
        played.client.ask("kill", task="worker:7")
    with pytest.raises(ClusterError, match=r"status, watch, stop, hold, kill, signal, cut or restart, got 'dance'"):
        played.client.ask("dance")
    with pytest.raises(ClusterError, match="expected the signal SIGSTOP, SIGCONT, SIGKILL, got 'SIGTERM'"):
        played.client.ask("signal", task="ps:0", signal="SIGTERM")
    with pytest.raises(ClusterError, match="no role 'ps:1'; this cluster has ps:0"):
        played.client.ask("signal", task="ps:1", signal="SIGSTOP")
    with socket.socket(socket.AF_UNIX) as raw, raw.makefile("rwb") as stream:
        raw.settimeout(PATIENCE_SECONDS)
        raw.connect(str(played.folder.control_socket))
        for line in (b"not json\n", b"[1]\n", b'"status"\n'):
            stream.write(line)
            stream.flush()
            assert json.loads(stream.readline())["ok"] is False
        stream.write(b"x" * 100_000 + b"\n")
        stream.flush()
        assert "64 KiB" in json.loads(stream.readline())["error"]
    assert played.client.status().cluster == "played"


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process of ours that is in nobody's way."""
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) as process:
        yield process
        process.kill()


def left_behind(folder: StateFolder, process: subprocess.Popen[bytes]) -> None:
    """The files of a supervisor whose one role is `process`."""
    identity = identify(process.pid)
    assert identity is not None
    folder.create()
    processes.remember(folder.roles, [identity])
    for path in (folder.control_socket, folder.notify_socket, folder.pid):
        path.touch()


def test_what_a_stop_clears_away_is_never_a_living_supervisors(tmp_path: Path, child: subprocess.Popen[bytes]) -> None:
    folder = StateFolder(tmp_path / "state")
    left_behind(folder, child)
    before = sorted(path.name for path in folder.path.iterdir())
    with FileLock(folder.lock):  # the supervisor of a `start` that came in between
        assert not processes.clear_folder(folder)
        assert child.poll() is None
    assert sorted(path.name for path in folder.path.iterdir()) == sorted([*before, "supervisor.lock"])
    assert processes.clear_folder(folder)
    assert child.wait(PATIENCE_SECONDS) == -signal.SIGKILL
    assert sorted(path.name for path in folder.path.iterdir()) == ["logs", "supervisor.lock"]


def test_clearing_what_never_ran_makes_no_files(tmp_path: Path) -> None:
    assert processes.clear_folder(StateFolder(tmp_path / "state"))
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_ended_by_itself_is_no_error_to_kill(child: subprocess.Popen[bytes]) -> None:
    identity = identify(child.pid)
    assert identity is not None
    assert not replace(identity, start_ticks=identity.start_ticks - 1).kill()
    assert child.poll() is None
    assert identity.kill()
    eventually(lambda: gone(child.pid), "the death of the child")
    assert not identity.kill()  # a zombie
    child.wait()
    assert not identity.kill()


def test_leftovers_spare_a_process_that_only_has_the_same_pid(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_text(json.dumps({"processes": [{"pid": os.getpid(), "start_ticks": 1, "boot": "another"}]}))
    assert processes.clear(path) == ()
    assert not path.exists()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"processes": [{"pid": 1}]}', '{"processes": 3}'])
def test_a_damaged_state_file_is_no_obstacle(tmp_path: Path, content: str) -> None:
    path = tmp_path / "state.json"
    path.write_text(content)
    assert processes.clear(path) == ()
