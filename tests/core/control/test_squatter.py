"""Who wins a role's port gets nothing of use."""

from contextlib import suppress

import pytest

from cluster.jobs.roles import RunAnnouncer
from core.control.client import key_of
from core.control.own_state import VARIABLE
from core.control.role_restart import RestartPatience, restart_roles
from core.ground.errors import ClusterError
from core.inventory import Task
from tests.core.control.squatter import squatting
from tests.core.control.test_actions import RUN
from tests.core.control.test_rules import TOKEN
from tests.ports import free_ports


def task(port: int) -> Task:
    return Task("worker", 1, "here", "127.0.0.1", 1, port)


def test_who_wins_a_roles_port_hears_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, TOKEN)
    (port,) = free_ports(1)
    with squatting(port) as heard:
        with suppress(ClusterError):
            restart_roles({"worker:1": f"127.0.0.1:{port}"}, print, RestartPatience(1.0, 1.0))
        with RunAnnouncer([task(port)], RUN, {}):
            pass
        said = heard.read_text()
    assert "POST /restart" in said, "the attack was played"
    for secret in (TOKEN, str(key_of(TOKEN, "worker:1")), "Proof"):
        assert secret not in said
