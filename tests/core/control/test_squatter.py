"""Who wins a role's port gets nothing of use, and a role's key opens no other role."""

import subprocess

import pytest

from cluster.jobs.roles import RunAnnouncer
from cluster.programs.role_processes import restart
from core.control.client import key_of
from core.control.token import KEY_VARIABLE, VARIABLE
from core.inventory import Task
from deploy.rooted.commands import PYTHON
from tests.core.control.squatter import ACCOUNT, squatting
from tests.core.control.test_actions import RUN
from tests.core.control.test_rules import TOKEN
from tests.core.server.processes import HANG_SECONDS, running
from tests.habits import needs
from tests.ports import free_ports


def task(port: int) -> Task:
    return Task("worker", 1, "here", "127.0.0.1", 1, port)


def test_who_wins_a_roles_port_hears_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, TOKEN)
    (port,) = free_ports(1)
    with squatting(port) as heard:
        restart(task(port), HANG_SECONDS)
        with RunAnnouncer([task(port)], RUN):
            pass
        said = heard.read_text()
    assert "POST /restart" in said, "the attack was played"
    for secret in (TOKEN, str(key_of(TOKEN, "worker:1")), "Proof"):
        assert secret not in said


POST = """
import sys, urllib.error, urllib.request as web
asked = web.Request(sys.argv[1], method="POST", headers={"X-PSCluster-Request": "1"})
try:
    print(web.urlopen(asked).status)
except urllib.error.HTTPError as refusal:
    print(refusal.code)
"""


def test_another_account_restarts_and_names_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first half of the class: an address of this machine is no proof."""
    needs.root("to ask as another account")
    own = key_of(TOKEN, "worker:0")
    assert own is not None
    monkeypatch.setenv(KEY_VARIABLE, own)
    with running("worker_node", "--coordinator", "127.0.0.1") as role:
        for path in ("/restart", f"/run/{RUN}"):
            words = ("setpriv", f"--reuid={ACCOUNT}", f"--regid={ACCOUNT}", "--clear-groups")
            place = f"http://127.0.0.1:{role.metrics_port}{path}"
            found = subprocess.run(
                [*words, PYTHON, "-c", POST, place],
                capture_output=True,
                text=True,
                check=True,
            )
            assert found.stdout == "403\n"
        assert role.ask("/ready")[0] == 200
