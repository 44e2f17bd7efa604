"""`fab deploy monitor` as a person types it."""

import contextlib
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import psutil
import pytest

from deploy.monitor import local_prometheus
from tests.deploy.monitor.watched import FAB, HANG_SECONDS, PROJECT, monitored, with_programs
from tests.deploy.typed import Fab
from tests.inventory.cases import THREE_NODES
from tests.jobs.cluster import free_port

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
    assert fab("init --local --workers 1 --out mine.yaml").code == 0
    return tmp_path / "mine.yaml"


def test_files_for_a_prometheus_that_exists(fab: Fab, inventory: Path) -> None:
    folder = inventory.parent / "files"
    first = fab("deploy monitor --inventory mine.yaml --out files")
    assert first.code == 0, first.stderr
    assert "11 files in files, 11 new or changed" in first.stdout
    assert (folder / "targets/pscluster-mine.json").exists()
    assert "0 new or changed" in fab("deploy monitor --inventory mine.yaml --out files").stdout
    assert not (inventory.parent / ".pscluster").exists()


def test_files_are_written_for_a_rack_that_is_elsewhere(fab: Fab, tmp_path: Path) -> None:
    (tmp_path / "rack.yaml").write_text(THREE_NODES)
    assert fab("deploy monitor --inventory rack.yaml --out files").code == 0
    refused = fab("deploy monitor --inventory rack.yaml")
    assert refused.code == 2
    assert "no node has the role `monitor`" in refused.stderr
    assert "--out DIR" in refused.stderr


def test_a_taken_port_is_one_line(fab: Fab, inventory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", with_programs()["PATH"])
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        refused = fab(f"deploy monitor --inventory mine.yaml --set monitor.port={taken.getsockname()[1]}")
    assert refused.code == 1
    assert refused.stderr.count("\n") == 1
    assert "--set monitor.port=" in refused.stderr


def test_without_prometheus_the_line_says_how_to_get_one(
    fab: Fab, inventory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(inventory.parent))
    monkeypatch.setattr(local_prometheus.find_prometheus, "__defaults__", (None, inventory.parent / "none"))
    refused = fab("deploy monitor --inventory mine.yaml")
    assert refused.code == 1
    assert "tools.prometheus_tools" in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_it_answers_on_loopback_and_ends_with_ctrl_c(inventory: Path) -> None:
    port = free_port()
    with monitored(inventory, [f"monitor.port={port}"]) as prometheus:
        (child,) = psutil.Process(prometheus.process.pid).children()
        listening = {connection.laddr for connection in child.net_connections() if connection.status == "LISTEN"}
        assert listening == {("127.0.0.1", port)}
        with urllib.request.urlopen(f"{prometheus.url}/-/healthy", timeout=10.0) as answer:
            assert answer.status == 200
    assert prometheus.process.returncode == 130
    assert not child.is_running()
    assert (inventory.parent / ".pscluster/mine/monitor/data").is_dir()


def test_it_dies_with_the_command(inventory: Path) -> None:
    words = [str(FAB), "-r", str(PROJECT), "deploy", "monitor", "--inventory", str(inventory)]
    words += ["--set", f"monitor.port={free_port()}"]
    done = subprocess.run(
        [sys.executable, "-c", KILLER, *words],
        env=with_programs(), cwd=inventory.parent, capture_output=True, text=True, timeout=HANG_SECONDS, check=True,
    )  # fmt: skip
    (pid,) = map(int, done.stdout.split())
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(pid).wait(10.0)
    assert not psutil.pid_exists(pid)


def test_a_configuration_that_prometheus_does_not_take_is_one_line(
    fab: Fab, inventory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody's broken rules in the folder: it ends before it is ready."""
    monkeypatch.setenv("PATH", with_programs()["PATH"])
    rules = inventory.parent / ".pscluster/mine/monitor/rules"
    rules.mkdir(parents=True)
    (rules / "mine.yml").write_text("groups: [}")
    refused = fab(f"deploy monitor --inventory mine.yaml --set monitor.port={free_port()}")
    assert refused.code == 1
    assert "Prometheus ended with exit code" in refused.stderr
    assert "prometheus.log" in refused.stderr
