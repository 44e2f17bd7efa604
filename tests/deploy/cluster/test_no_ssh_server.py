"""Machines whose SSH closes at once, says nothing or is none: a line a node, and no traceback."""

import getpass
import logging
import random
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.deploy.over_ssh.silent_servers import (
    closes,
    resets,
    says_nothing,
    sends_garbage,
    serving,
    speaks_another_protocol,
)
from tests.deploy.over_ssh.sshd import new_key
from tests.deploy.three_nodes import THREE
from tests.deploy.typed import Fab

pytestmark = pytest.mark.usefixtures("one_release")

COMMANDS = ("status", "plan", "check", "start --no-jobs", "trust --yes", "logs")
NAMES = ("pi-1", "pi-2", "pi-3")
CASES = [
    (closes, "MaxStartups"),
    (resets, "MaxStartups"),
    (sends_garbage, "no SSH server"),
    (speaks_another_protocol, "no SSH server"),
    (says_nothing, "says nothing"),
]


def write(folder: Path, port: int) -> None:
    text = THREE.format(user=getpass.getuser(), port=port, key=f"{folder}/key")
    (folder / "inventory.yaml").write_text(
        text.replace("ssh: {user", "ssh: {connect_seconds: 1, user", 1)
    )
    new_key(folder / "key")


@pytest.mark.parametrize(
    ("answer", "reason"), CASES, ids=lambda value: getattr(value, "__name__", "")
)
def test_a_line_a_node_with_the_reason(
    answer: Callable[[socket.socket], None],
    reason: str,
    tmp_path: Path,
    fab: Fab,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        random, "uniform", lambda low, high: 0.0
    )  # how long a busy server is left alone
    # pytest's own handler is there, and Python's for records that none takes is not asked: so it is
    # as in a process.
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    with serving(answer) as port:
        write(tmp_path, port)
        for command in COMMANDS:
            done = fab(f"deploy {command}")
            said = done.stdout + done.stderr
            assert done.code in (1, 3), (command, said)
            assert "Traceback" not in said, (command, said)
            assert "Exception (client)" not in said, (command, said)
            assert "\x1b" not in said, (command, said)
            for name in NAMES:
                about = [line for line in said.splitlines() if name in line and reason in line]
                grouped = "all 3 nodes" in said and reason in said
                assert about or grouped, (command, name, said)
