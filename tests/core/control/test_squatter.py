"""Who wins a role's port gets nothing of use."""

import pytest

from cluster.jobs.roles import RunAnnouncer
from cluster.programs.group import restart
from core.control.client import key_of
from core.control.own_state import VARIABLE
from core.inventory import Task
from tests.core.control.squatter import squatting
from tests.core.control.test_actions import RUN
from tests.core.control.test_rules import TOKEN
from tests.core.server.processes import HANG_SECONDS
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
