"""A node that falls silent, in a network namespace of its own whose cable is pulled: nothing says that it is gone."""

import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest

from deploy.cluster import connection
from deploy.cluster.connection import NodeConnection
from deploy.cluster.connector import NodeUnreachableError
from deploy.cluster.host_keys import PinnedKeys, ask_for_key
from deploy.common.command_line import shell
from tests.deploy.over_ssh.sshd import Sshd, running_sshd
from tests.habits import needs

OURS, THEIRS = "10.213.77.1", "10.213.77.2"


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def namespace() -> Iterator[str]:
    """A machine behind one cable, whose end here is called as the namespace is."""
    needs.tool("sshd")
    needs.network_namespace()
    name = f"silent{os.getpid()}"
    ip("netns", "add", name)
    try:
        ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("addr", "add", f"{OURS}/30", "dev", name)
        ip("-n", name, "addr", "add", f"{THEIRS}/30", "dev", "eth0")
        ip("link", "set", name, "up")
        ip("-n", name, "link", "set", "eth0", "up")
        yield name
    finally:
        ip("netns", "del", name)


@pytest.fixture
def node(namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NodeConnection]:
    monkeypatch.setattr(connection, "KEEPALIVE_SECONDS", 1)
    monkeypatch.setattr(connection, "SILENCE_SECONDS", 2)
    with running_sshd(tmp_path, wrapper=("ip", "netns", "exec", namespace), hosts=(THEIRS,)) as server:
        yield pinned(server, tmp_path)


def pinned(server: Sshd, folder: Path) -> NodeConnection:
    address = server.address(host=THEIRS)
    keys = PinnedKeys(folder / "known_hosts")
    keys.record([keys.standing(address, ask_for_key(address))])
    return NodeConnection(address, keys)


def test_what_is_no_socket_of_ours_is_left_alone() -> None:
    """A proxy of the person's own SSH configuration: paramiko's ProxyCommand, or a channel of another connection."""
    connection._end_when_silent(BytesIO())
    with socket.socket() as ours:
        connection._end_when_silent(ours)
        assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == connection.SILENCE_SECONDS * 1000


def test_a_stream_from_a_node_whose_cable_was_pulled_ends(node: NodeConnection, namespace: str) -> None:
    begun, ended = threading.Event(), threading.Event()
    told: list[Exception] = []

    def watch() -> None:
        try:
            node.stream(shell("echo begun; sleep 1000"), lambda _: begun.set())
        except NodeUnreachableError as error:
            told.append(error)
        ended.set()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        assert begun.wait(30)
        ip("link", "set", namespace, "down")
        assert ended.wait(60), "it went on waiting"
    finally:
        node.hang_up()
        watcher.join()
    assert str(told[0]).startswith("node: the connection broke")
