from collections.abc import Callable, Mapping
from types import MappingProxyType

import pytest

from core.errors import ClusterError
from deploy.jobs.node_job.role_restart import (
    RestartPatience,
    RestartStep,
    Verdict,
    await_roles,
    restart_roles,
)
from tests.deploy.played_roles import PlayedRole, played_roles
from tests.ports import free_ports

Restart = Callable[[Mapping[str, str], Callable[[str], None], RestartPatience], None]
NONE: Mapping[str, str] = MappingProxyType({})
SHORT = RestartPatience(deadline_seconds=1.0, silent_worker_seconds=0.2)
ASKING, RESTARTING, READY, REFUSED = RestartStep


@pytest.mark.parametrize(
    ("ps", "workers", "elapsed", "verdict"),
    [
        (READY, [READY, READY], 0.0, Verdict.GO),
        (READY, [READY, ASKING], 14.0, Verdict.WAIT),
        (READY, [READY, ASKING], 16.0, Verdict.GO),  # switched off, as far as one can tell
        (READY, [READY, RESTARTING], 299.0, Verdict.WAIT),
        (READY, [READY, RESTARTING], 300.0, Verdict.GO),
        (READY, [ASKING, ASKING], 299.0, Verdict.WAIT),
        (READY, [ASKING, RESTARTING], 300.0, Verdict.GIVE_UP),
        (ASKING, [READY, READY], 299.0, Verdict.WAIT),
        (RESTARTING, [READY, READY], 300.0, Verdict.GIVE_UP),
        (READY, [READY, REFUSED], 0.0, Verdict.GO),
        (READY, [REFUSED, REFUSED], 0.0, Verdict.GIVE_UP),
        (REFUSED, [READY, READY], 0.0, Verdict.GIVE_UP),
    ],
)
def test_every_server_and_one_worker_are_enough(
    ps: RestartStep, workers: list[RestartStep], elapsed: float, verdict: Verdict
) -> None:
    roles = {"ps:0": ps, **{f"worker:{index}": step for index, step in enumerate(workers)}}
    assert RestartPatience(300.0, 15.0).decide(roles, elapsed) is verdict


def restarted(
    restart: Restart, *, more: Mapping[str, str] = NONE, **roles: PlayedRole
) -> list[str]:
    """What is said meanwhile."""
    said: list[str] = []
    with played_roles(**roles) as addresses:
        restart({**addresses, **more}, said.append, SHORT)
    return said


def test_each_role_is_restarted_once_and_awaited() -> None:
    server = PlayedRole()
    worker = PlayedRole()
    assert restarted(restart_roles, ps_0=server, worker_0=worker) == []
    assert (server.restarts, worker.restarts) == (1, 1)


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


def test_a_job_without_roles_has_none_to_restart() -> None:
    assert restarted(restart_roles) == []
