"""What a person's shell says to other programs reaches no process of a cluster."""

import socket
from pathlib import Path

import pytest

from cluster.programs.program import environment_of
from core.ground.shell import FOREIGN, reached_directly, without_foreign, without_proxies
from tests.cluster.jobs.cluster import cluster_of

PROXY = "http://127.0.0.1:9"
HOSTS = ("192.168.1.16", "rpi03.local", "fd00::3", "192.168.1.16")


@pytest.mark.parametrize(
    "name", ["http_proxy", "https_proxy", "all_proxy", "grpc_proxy", "HTTPS_PROXY", "ALL_PROXY"]
)
def test_no_proxy_is_asked_for_the_cluster(name: str) -> None:
    found = reached_directly({name: PROXY}, HOSTS)
    assert found == dict.fromkeys(("no_proxy", "NO_PROXY"), "192.168.1.16,rpi03.local,fd00::3")


def test_what_needed_no_proxy_before_still_needs_none() -> None:
    shell = {
        "http_proxy": PROXY,
        "NO_PROXY": "corp.example, 10.0.0.0/8",
        "no_grpc_proxy": "internal",
    }
    found = reached_directly(shell, ["10.1.1.1"])
    assert found["NO_PROXY"] == found["no_proxy"] == "corp.example,10.0.0.0/8,10.1.1.1"
    assert found["no_grpc_proxy"] == "internal,10.1.1.1"
    assert reached_directly({"no_proxy": "corp.example"}, ["10.1.1.1"]) == {}


def test_an_asterisk_still_means_all_hosts_and_grpc_is_told_which() -> None:
    found = reached_directly({"http_proxy": PROXY, "no_proxy": "*"}, ["10.1.1.1"])
    assert found == {"no_proxy": "*", "NO_PROXY": "*", "no_grpc_proxy": "*,10.1.1.1"}


def test_a_role_has_no_proxy_and_no_switch_of_tensorflow() -> None:
    shell = {
        "HOME": "/home/anna",
        "HTTP_PROXY": PROXY,
        "grpc_proxy": PROXY,
        **dict.fromkeys(FOREIGN, "1"),
    }
    without_foreign(shell)
    without_proxies(shell)
    assert shell == {"HOME": "/home/anna", "KERAS_BACKEND": "tensorflow"}


def test_a_program_reaches_its_peers_directly_and_finds_its_own_commands_first(
    tmp_path: Path,
) -> None:
    config = (
        '{"cluster": {"worker": ["192.168.1.16:1", "[fd00::3]:2"]}, "task": {"type": "worker",'
        ' "index": 0}}'
    )
    shell = {"https_proxy": PROXY, "PATH": "/usr/bin:/opt/own/bin"}
    found = environment_of(
        shell, tmp_path / "p.py", tmp_path, "m", {"TF_CONFIG": config}, "/opt/own/bin/python"
    )
    assert found["no_proxy"] == found["NO_PROXY"] == "192.168.1.16,fd00::3"
    assert found["PATH"] == "/opt/own/bin:/usr/bin"
    assert found["https_proxy"] == PROXY


@pytest.mark.long
def test_a_cluster_started_in_a_shell_with_proxies_works(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        proxy.setblocking(False)
        for name in ("http_proxy", "https_proxy", "grpc_proxy", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.getsockname()[1]}")
        monkeypatch.setenv("TF_DETERMINISTIC_OPS", "1")
        with cluster_of(1) as cluster:
            done = cluster.job("pi", "jobs.pi.samples=100000")
        assert done.code == 0, done.errors
        with pytest.raises(BlockingIOError):
            proxy.accept()
