import pytest

from cluster.errors import ClusterError
from deploy.jobs.node_job.role_restart import RestartPatience, RestartStep, Verdict, restart_roles
from tests.deploy.played_roles import PlayedRole, played_roles
from tests.server.processes import free_ports

SHORT = RestartPatience(deadline_seconds=1.0, silent_worker_seconds=0.2)
READY, ASKING, RESTARTING, REFUSED = RestartStep.READY, RestartStep.ASKING, RestartStep.RESTARTING, RestartStep.REFUSED


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


def test_each_role_is_restarted_once_and_awaited() -> None:
    server, worker = PlayedRole(), PlayedRole()
    said: list[str] = []
    with played_roles(ps_0=server, worker_0=worker) as roles:
        restart_roles(roles, said.append)
    assert (server.restarts, worker.restarts, said) == (1, 1, [])


def test_a_role_that_somebody_else_just_starts_is_awaited_as_it_is() -> None:
    server, worker = PlayedRole(), PlayedRole(fresh=True)
    said: list[str] = []
    with played_roles(ps_0=server, worker_0=worker) as roles:
        restart_roles(roles, said.append, SHORT)
    assert (server.restarts, worker.restarts, said) == (1, 0, [])


def test_a_worker_that_is_switched_off_is_left_behind() -> None:
    said: list[str] = []
    (off,) = free_ports(1)
    with played_roles(ps_0=PlayedRole(), worker_0=PlayedRole(), worker_2=PlayedRole(obeys=False)) as roles:
        restart_roles({**roles, "worker:1": f"127.0.0.1:{off}"}, said.append, SHORT)
        refuses = f"worker:2 ({roles['worker:2']}) refuses with HTTP status 404: it runs for another coordinator; "
    assert said == [
        f"continuing without: {refuses}`fab deploy start` puts it right; worker:1 (127.0.0.1:{off}) does not answer"
    ]


def test_a_server_that_does_not_come_back_ends_the_job() -> None:
    with (
        played_roles(ps_0=PlayedRole(comes_back=False), worker_0=PlayedRole()) as roles,
        pytest.raises(ClusterError, match=r"ps:0 \(127.0.0.1:\d+\) was asked and is not ready; a job needs every"),
    ):
        restart_roles(roles, print, SHORT)


def test_a_job_without_roles_has_none_to_restart() -> None:
    said: list[str] = []
    restart_roles({}, said.append)
    assert said == []
