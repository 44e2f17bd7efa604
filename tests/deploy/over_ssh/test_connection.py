from pathlib import Path
from typing import Any

import pytest
from paramiko import Channel

from deploy.cluster.connection import NodeConnection
from deploy.cluster.connector import NodeUnreachableError
from deploy.cluster.login import PinnedKeys
from deploy.cluster.refusals import ask_for_key
from deploy.common.command_line import shell
from tests.deploy.over_ssh.nodes import session_of, trusting
from tests.deploy.over_ssh.sshd import Sshd, new_key, running_sshd
from tests.deploy.tables import Tables

rows = Tables(__file__)


@rows("changed", "said")
def test_a_wrong_key_and_a_closed_port_say_so(
    sshd: Sshd,
    pinned: PinnedKeys,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changed: dict[str, Any],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    new_key(Path("stranger"))
    with pytest.raises(NodeUnreachableError, match=said):
        NodeConnection(sshd.address(**changed), pinned).run(["true"])


def test_a_connection_that_broke_is_told_and_opened_anew(tmp_path: Path) -> None:
    with running_sshd(tmp_path) as server:
        node = NodeConnection(server.address(), trusting(tmp_path, server))
        with pytest.raises(NodeUnreachableError, match="connection broke"):
            node.run(shell('kill -9 "$1"; sleep 20', session_of(node)), deadline_seconds=20)
        assert node.run(["echo", "again"]).text == "again\n"
        node.close()


def test_a_connection_may_break_as_the_input_ends(
    sshd: Sshd, pinned: PinnedKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that sends leaves it to the reader, which notices it too."""

    def broken(channel: Channel) -> None:
        raise EOFError

    monkeypatch.setattr(Channel, "shutdown_write", broken)
    node = NodeConnection(sshd.address(), pinned)
    assert node.run(["true"]).ok
    node.close()


def test_a_jump_host_leads_the_way(sshd: Sshd, pinned: PinnedKeys) -> None:
    jump = NodeConnection(sshd.address("jump host"), pinned)
    node = NodeConnection(sshd.address(), pinned, jump)
    assert node.run(["true"]).ok
    key = ask_for_key(sshd.address(), jump.open())
    assert pinned.standing(sshd.address(), key).standing == "known"
    jump.hang_up()
    with pytest.raises(NodeUnreachableError):
        node.run(["true"])
    node.close()
