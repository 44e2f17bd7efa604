"""`fab deploy monitor` as a person types it."""

import http.client
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from core.control.own_state import make_private, state_of
from core.ground.errors import ClusterError
from deploy.monitor import files as monitor_files
from tests.core.inventory.cases import THREE_NODES, read
from tests.deploy.monitor.watched import monitored, with_programs
from tests.deploy.playing import eventually, gone
from tests.deploy.typed import PROGRAM, Fab
from tests.habits import needs
from tests.hang import HANG_SECONDS
from tests.ports import free_port

KILLER = """
import os, signal, subprocess, sys
fab = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, text=True)
for line in fab.stdout:
    if line.startswith("Prometheus: "):
        break
children = open(f"/proc/{fab.pid}/task/{fab.pid}/children").read().split()
fab.send_signal(signal.SIGKILL)
fab.wait()
print(*children)
"""


@pytest.fixture
def inventory(tmp_path: Path, fab: Fab) -> Path:
    fab("init --local --workers 1 --out mine.yaml").says()
    return tmp_path / "mine.yaml"


def test_files_are_written_for_a_rack_that_is_elsewhere(fab: Fab, tmp_path: Path) -> None:
    (tmp_path / "rack.yaml").write_text(THREE_NODES)
    fab("deploy monitor --inventory rack.yaml --out files").says()
    fab("deploy monitor --inventory rack.yaml").warns(
        "no node has the role `monitor`", "--out DIR", code=2
    )


def test_a_taken_port_is_one_line(
    fab: Fab, inventory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", with_programs()["PATH"])
    monkeypatch.setattr(monitor_files, "refuse_root", lambda: None)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        fab(f"deploy monitor --inventory mine.yaml --set monitor.port={port}").refuses(
            "--set monitor.port=", code=1
        )


def test_it_answers_on_loopback_who_knows_the_password_and_ends_with_ctrl_c(
    inventory: Path,
) -> None:
    port = free_port()
    with monitored(inventory, [f"monitor.port={port}"]) as prometheus:
        (child,) = psutil.Process(prometheus.process.pid).children()
        assert listening(child) == {("127.0.0.1", port)}
        assert prometheus.ask("query", query="vector(1)")["result"]
        foreign = {"Host": f"evil.example:{port}", "Origin": "https://evil.example"}
        for headers, status in (
            ({}, 401),
            (foreign, 401),
            ({"Authorization": "Basic cHNjbHVzdGVyOg=="}, 401),
            ({**foreign, **prometheus.header}, 200),
        ):
            asking = http.client.HTTPConnection("127.0.0.1", port, timeout=HANG_SECONDS)
            asking.request("GET", "/api/v1/query?query=up", headers=headers)
            answer = asking.getresponse()
            assert answer.status == status
            assert answer.getheader("Access-Control-Allow-Origin") is None
            asking.close()
    assert prometheus.process.returncode == 130
    assert not child.is_running()
    state = state_of(inventory, "mine") / "monitor"
    assert (state / "data").is_dir()
    assert (state / "password").stat().st_mode & 0o777 == 0o600


def test_root_starts_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("deploy.monitor.files.os.geteuid", lambda: 0)
    with pytest.raises(ClusterError, match=r"^root starts no Prometheus: .* ordinary account"):
        monitor_files.run_prometheus(read(THREE_NODES), tmp_path / "monitor", lambda line: None)
    assert not (tmp_path / "monitor").exists()


def test_it_dies_with_the_command(inventory: Path) -> None:
    words = [*PROGRAM, "deploy", "monitor", "--inventory", str(inventory)]
    words += ["--set", f"monitor.port={free_port()}"]
    done = subprocess.run(
        [sys.executable, "-c", KILLER, *needs.ordinary_account(), *words],
        env=with_programs(),
        cwd=inventory.parent,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=True,
    )
    (pid,) = map(int, done.stdout.split())
    eventually(lambda: gone(pid), "the end of Prometheus")


def test_a_configuration_that_prometheus_does_not_take_is_one_line(
    fab: Fab, inventory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody's broken rules in the folder: it ends before it is ready."""
    monkeypatch.setenv("PATH", with_programs()["PATH"])
    monkeypatch.setattr(monitor_files, "refuse_root", lambda: None)
    rules = state_of(inventory, "mine") / "monitor/rules"
    make_private(rules)
    (rules / "mine.yml").write_text("groups: [}")
    fab(f"deploy monitor --inventory mine.yaml --set monitor.port={free_port()}").warns(
        "Prometheus ended with exit code", "prometheus.log", code=1
    )


def listening(process: psutil.Process) -> set[tuple[str, int]]:
    return {
        (each.laddr.ip, each.laddr.port)
        for each in process.net_connections()
        if each.status == "LISTEN"
    }
