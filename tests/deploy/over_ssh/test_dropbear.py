"""Dropbear, DietPi's server, ends a connection whose command is longer than 9,000 bytes."""

import os
from pathlib import Path

from deploy.cluster.connection import NodeConnection
from deploy.common.command_line import shell
from tests.deploy.over_ssh.nodes import trusting
from tests.deploy.over_ssh.sshd import running_sshd

AS_DROPBEAR = (
    'ForceCommand=[ "$(printf %s "$SSH_ORIGINAL_COMMAND" | wc -c)" -le 9000 ] || exit 1;'
    ' eval "$SSH_ORIGINAL_COMMAND"'
)
LONG = "'\"$x\n" + "x" * 50_000


def test_commands_of_any_length(tmp_path: Path) -> None:
    with running_sshd(tmp_path, AS_DROPBEAR) as server:
        node = NodeConnection(server.address(), trusting(tmp_path, server))
        content = os.urandom(200_000)
        assert node.run(shell("cat", LONG), stdin=content).stdout == content
        assert node.run(["printf", "%s", LONG], stdin=b"never read").text == LONG
        lines: list[str] = []
        assert node.stream(["printf", "%s\n", "y" * 20_000], lines.append) == 0
        assert lines == ["y" * 20_000]
        node.close()
