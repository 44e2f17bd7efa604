"""A node that falls silent: the cable of its network namespace is pulled, and nothing says so."""

import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

import pytest

from deploy.cluster import connection
from deploy.cluster.connection import NodeConnection
from deploy.cluster.connector import NodeUnreachableError
from deploy.common.command_line import shell
from tests.core.server.namespaces import ip
from tests.deploy.over_ssh.nodes import trusting
from tests.deploy.over_ssh.sshd import running_sshd
from tests.habits import needs
from tests.hang import HANG_SECONDS

OURS = "10.213.77.1"
THEIRS = "10.213.77.2"


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
def node(
    namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[NodeConnection]:
    monkeypatch.setattr(connection, "KEEPALIVE_SECONDS", 1)
    monkeypatch.setattr(connection, "SILENCE_SECONDS", 2)
    with running_sshd(
        tmp_path, wrapper=("ip", "netns", "exec", namespace), hosts=(THEIRS,)
    ) as server:
        yield NodeConnection(server.address(), trusting(tmp_path, server))


def test_what_is_no_socket_of_ours_is_left_alone() -> None:
    """A proxy of the person's own SSH configuration, as paramiko's ProxyCommand or as a channel."""
    connection._end_when_silent(BytesIO())
    with socket.socket() as ours:
        connection._end_when_silent(ours)
        assert (
            ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
            == connection.SILENCE_SECONDS * 1000
        )


def test_a_stream_from_a_node_whose_cable_was_pulled_ends(
    node: NodeConnection, namespace: str
) -> None:
    begun = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        watched = pool.submit(node.stream, shell("echo begun; sleep 1000"), lambda _: begun.set())
        try:
            assert begun.wait(HANG_SECONDS)
            ip("link", "set", namespace, "down")
            with pytest.raises(NodeUnreachableError, match=r"^node: the connection broke"):
                watched.result(60)
        finally:
            node.hang_up()
