"""`fab deploy restart` and `rollback` on nodes with the role `service`: one service after the
other."""

from collections.abc import Callable

import pytest

from deploy.converge import serving
from deploy.render.units import SERVICE_UNIT
from tests.deploy.played_machines import Machine
from tests.deploy.typed import Fab

SERVING = ("pi-1", "pi-3", "pi-4")
OLD = "a" * 16
NEW = "b" * 16


@pytest.fixture
def machines(
    machines_with: Callable[..., dict[str, Machine]], monkeypatch: pytest.MonkeyPatch
) -> dict[str, Machine]:
    """Four nodes with two releases.

    No version was promoted, so a service that runs is `waiting`.
    """
    monkeypatch.setattr(serving, "STEADY_SECONDS", 0.1)
    return machines_with(
        (OLD, NEW),
        "[storage, ps, coordinator, service]",
        "[worker]",
        "[worker, service]",
        "[service]",
    )


def releases(machines: dict[str, Machine]) -> list[tuple[str, ...]]:
    """Of each node the current release, and those that its roles and its service run."""
    return [(machine.current, *machine.runs) for machine in machines.values()]


def services(machines: dict[str, Machine]) -> dict[str, int]:
    return {name: machines[name].pid_of(SERVICE_UNIT) for name in SERVING}


def test_a_restart_has_the_services_too_and_role_and_node_choose(
    machines: dict[str, Machine], fab: Fab
) -> None:
    first = services(machines)
    pids = machines["pi-2"].pids
    fab("deploy restart --role service --node pi-3 --node pi-4").says(
        "\npi-3: service waiting\npi-4: service waiting\n"
    )
    second = services(machines)
    assert [name for name in SERVING if second[name] != first[name]] == ["pi-3", "pi-4"]
    assert machines["pi-2"].pids == pids
    fab("deploy restart --role worker").says()
    assert services(machines) == second
    assert machines["pi-2"].pids != pids
    done = fab("deploy restart --serial 1").says()
    assert [line for line in done.stdout.splitlines() if "pi-" in line] == [
        "restarted on pi-1",
        "pi-1: service waiting",
        "restarted on pi-2",
        "restarted on pi-3",
        "pi-3: service waiting",
        "pi-4: service waiting",
    ]
    fab("deploy restart --role monitor").warns(
        "--role monitor: expected one of ps, worker, ps:0, worker:0, worker:1, service", code=2
    )


def test_a_service_that_does_not_come_back_ends_the_round_in_one_line(
    machines: dict[str, Machine], fab: Fab
) -> None:
    before = services(machines)
    machines["pi-3"].break_down(True, SERVICE_UNIT)
    fab("deploy restart --role service").warns(
        "pi-3: service not ready: it does not come up | systemd does not start it; `fab deploy"
        " logs --node pi-3` says more, `fab deploy ssh --node pi-3` looks at it by hand; not"
        " restarted: pi-4\n",
        code=3,
    )
    after = services(machines)
    assert (after["pi-1"] != before["pi-1"], after["pi-4"] == before["pi-4"]) == (True, True)
