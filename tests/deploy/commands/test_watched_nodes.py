"""`deploy status --watch` over SSH, on a terminal: two nodes that are one real sshd, whose
connections break."""

import getpass
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.deploy.over_ssh.sshd import Sshd, needs_sudo, running_sshd
from tests.deploy.pseudo_terminal import on_a_terminal
from tests.deploy.typed import PROGRAM, Fab

TWO = """\
schema: 1
cluster: two
connection: ssh
ssh: {{user: {user}, port: {port}, key: "{key}", connect_seconds: 2}}
storage: {{server: pi-1}}
nodes:
  - {{name: pi-1, address: 10.77.0.1, ssh: {{address: 127.0.0.2}},
     roles: [storage, ps, coordinator]}}
  - {{name: pi-2, address: 10.77.0.2, ssh: {{address: 127.0.0.3}}, roles: [worker]}}
"""
WATCH = [*PROGRAM, "deploy", "status", "--watch", "0.2"]


@pytest.fixture
def sshd(tmp_path: Path, fab: Fab) -> Iterator[Sshd]:
    """Both nodes; they may be asked, and their keys are pinned."""
    needs_sudo()
    (tmp_path / "sshd").mkdir()
    with running_sshd(tmp_path / "sshd", hosts=("127.0.0.2", "127.0.0.3")) as server:
        filled = TWO.format(user=getpass.getuser(), port=server.port, key=server.user_key)
        (tmp_path / "inventory.yaml").write_text(filled)
        fab("deploy trust --yes").says()
        yield server


def hang_up(sshd: Sshd) -> None:
    """End all sessions, as a switch that loses its power does; the server goes on."""
    (server,) = {
        connection.pid
        for connection in psutil.net_connections("tcp4")
        if connection.status == psutil.CONN_LISTEN and connection.laddr[1:] == (sshd.port,)
    }
    sessions = psutil.Process(server).children()
    assert sessions
    for session in sessions:
        session.kill()


def test_a_watched_cluster_comes_back_after_its_connections_broke(
    tmp_path: Path, sshd: Sshd
) -> None:
    with on_a_terminal(WATCH, tmp_path, 120) as terminal:
        terminal.until("no job runs", times=2)
        hang_up(sshd)
        seen = terminal.text.count("worker:0 stopped")
        terminal.until("worker:0 stopped", times=seen + 3)
        terminal.interrupt()
        assert terminal.end() == 0
    assert all(len(row) <= 120 for row in terminal.rows)
    assert "Traceback" not in terminal.text
