from collections.abc import Callable, Mapping
from types import MappingProxyType

import pytest

from core.control.role_restart import (
    RestartPatience,
    RestartStep,
    Verdict,
    await_roles,
    restart_roles,
)
from core.ground.errors import ClusterError
from tests.deploy.played_roles import PlayedRole, played_roles
from tests.deploy.tables import Tables
from tests.ports import free_ports

rows = Tables(__file__)
Restart = Callable[[Mapping[str, str], Callable[[str], None], RestartPatience], None]
NONE: Mapping[str, str] = MappingProxyType({})
SHORT = RestartPatience(deadline_seconds=1.0, silent_worker_seconds=0.2)


@rows("ps", "workers", "elapsed", "verdict")
def test_every_server_and_one_worker_are_enough(
    ps: str, workers: list[str], elapsed: float, verdict: str
) -> None:
    roles = {f"worker:{index}": RestartStep[step] for index, step in enumerate(workers)}
    roles["ps:0"] = RestartStep[ps]
    assert RestartPatience(300.0, 15.0).decide(roles, elapsed) is Verdict[verdict]


def restarted(
    restart: Restart, *, more: Mapping[str, str] = NONE, **roles: PlayedRole
) -> list[str]:
    """What is said meanwhile."""
    said: list[str] = []
    with played_roles(**roles) as addresses:
        restart({**addresses, **more}, said.append, SHORT)
    return said


def test_a_role_that_somebody_else_just_starts_is_awaited_as_it_is() -> None:
    server = PlayedRole()
    worker = PlayedRole(fresh=True)
    assert restarted(restart_roles, ps_0=server, worker_0=worker) == []
    assert (server.restarts, worker.restarts) == (1, 0)


def test_a_worker_that_is_switched_off_is_left_behind() -> None:
    (off,) = free_ports(1)
    deaf = PlayedRole(obeys=False)
    roles = {"ps_0": PlayedRole(), "worker_0": PlayedRole(), "worker_2": deaf}
    assert restarted(restart_roles, more={"worker:1": f"127.0.0.1:{off}"}, **roles) == [
        f"continuing without: worker:2 ({deaf.address}) refuses with HTTP status 404: it runs for"
        " another coordinator; `fab deploy start` puts it right; worker:1"
        f" (127.0.0.1:{off}) does not answer"
    ]


LOST = r"ps:0 \(127.0.0.1:\d+\) was asked and is not ready; a job needs every"
ABSENT = r"worker:0 \(127.0.0.1:1\) was asked and is not ready; a job needs every"


def test_roles_that_do_not_come_end_the_job() -> None:
    with pytest.raises(ClusterError, match=LOST):
        restarted(restart_roles, ps_0=PlayedRole(comes_back=False), worker_0=PlayedRole())
    with pytest.raises(ClusterError, match=ABSENT):
        restarted(await_roles, ps_0=PlayedRole(), more={"worker:0": "127.0.0.1:1"})
