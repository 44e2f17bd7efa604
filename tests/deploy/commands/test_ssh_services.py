"""`fab deploy restart` and `rollback` on nodes with the role `service`: one service after the other."""

import getpass
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.converge import serving
from deploy.converge.rollback_plan import UnfinishedRollback
from deploy.render.units import SERVICE_UNIT
from tests.deploy.over_ssh.sshd import needs_sudo
from tests.deploy.played_machines import Machine, running_machines
from tests.deploy.typed import Fab
from tests.habits import needs

ROLES = ("[storage, ps, coordinator, service]", "[worker]", "[worker, service]", "[service]")
NAMES = ("pi-1", "pi-2", "pi-3", "pi-4")
SERVING = ("pi-1", "pi-3", "pi-4")
OLD, NEW = ("a" * 16, "b" * 16)


@pytest.fixture
def machines(tmp_path: Path, fab: Fab, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Machine]]:
    """Four nodes with two releases. No version was promoted, so a service that runs is `waiting`."""
    needs_sudo()
    needs.mount_namespace()
    monkeypatch.setattr(serving, "STEADY_SECONDS", 0.1)
    with running_machines(tmp_path / "machines", len(NAMES)) as running:
        lines = [
            "schema: 1",
            "cluster: three",
            "connection: ssh",
            f'ssh: {{user: {getpass.getuser()}, key: "{running[0][1].user_key}"}}',
            "storage: {server: pi-1}",
            "nodes:",
        ]
        for number, (name, roles, (_, server)) in enumerate(zip(NAMES, ROLES, running, strict=True), 1):
            login = f"{{address: 127.0.0.1, port: {server.port}}}"
            lines.append(f"  - {{name: {name}, address: 10.77.0.{number}, ssh: {login}, roles: {roles}}}")
        (tmp_path / "inventory.yaml").write_text("\n".join(lines) + "\n")
        assert fab("deploy trust --yes").code == 0
        made = {name: machine for name, (machine, _) in zip(NAMES, running, strict=True)}
        for machine in made.values():
            machine.deploy(OLD, NEW)
        done = fab("deploy restart")
        assert done.code == 0, done.stderr
        yield made


def services(machines: dict[str, Machine]) -> dict[str, int]:
    return {name: machines[name].pid_of(SERVICE_UNIT) for name in SERVING}


def test_a_restart_has_the_services_too_and_role_and_node_choose(machines: dict[str, Machine], fab: Fab) -> None:
    first, pids = services(machines), {name: machine.pids for name, machine in machines.items()}
    done = fab("deploy restart --role service --node pi-3 --node pi-4")
    assert (done.code, done.stdout.splitlines()[-2:]) == (0, ["pi-3: service waiting", "pi-4: service waiting"])
    second = services(machines)
    assert [name for name in SERVING if second[name] != first[name]] == ["pi-3", "pi-4"]
    assert machines["pi-2"].pids == pids["pi-2"]
    assert fab("deploy restart --role worker").code == 0
    assert services(machines) == second
    assert machines["pi-2"].pids != pids["pi-2"]
    done = fab("deploy restart --serial 1")
    assert (done.code, [line for line in done.stdout.splitlines() if "pi-" in line]) == (
        0,
        ["restarted on pi-1", "pi-1: service waiting", "restarted on pi-2", "restarted on pi-3",
         "pi-3: service waiting", "pi-4: service waiting"],
    )  # fmt: skip
    unknown = fab("deploy restart --role monitor")
    assert "--role monitor: expected one of ps, worker, ps:0, worker:0, worker:1, service" in unknown.stderr


def test_a_service_that_does_not_come_back_ends_the_round_in_one_line(machines: dict[str, Machine], fab: Fab) -> None:
    before = services(machines)
    machines["pi-3"].break_down(True, SERVICE_UNIT)
    done = fab("deploy restart --role service")
    assert done.code == 3
    assert done.stderr.splitlines()[-1] == (
        "pi-3: service not ready: it does not come up | systemd does not start it; `fab deploy logs --node pi-3` says "
        "more, `fab deploy ssh --node pi-3` looks at it by hand; not restarted: pi-4"
    )
    after = services(machines)
    assert (after["pi-1"] != before["pi-1"], after["pi-4"] == before["pi-4"]) == (True, True)


def test_a_rollback_takes_the_services_to_the_old_release_and_back(machines: dict[str, Machine], fab: Fab) -> None:
    for release in (OLD, NEW):
        done = fab("deploy rollback")
        assert (done.code, done.stdout.count(f"back on release {release}")) == (0, 4), done.stderr
        assert {(machine.current, *machine.runs) for machine in machines.values()} == {(release, release)}


def test_a_service_that_does_not_come_back_ends_a_rollback_and_the_next_one_goes_on(
    machines: dict[str, Machine], fab: Fab, tmp_path: Path
) -> None:
    machines["pi-3"].break_down(True, SERVICE_UNIT)
    done = fab("deploy rollback --serial 1")
    assert done.code == 3
    assert "pi-3: service not ready: it does not come up" in done.stderr
    assert f"on release {OLD}: pi-1, pi-2; not or not yet: pi-3, pi-4; `fab deploy rollback" in done.stderr
    assert (machines["pi-4"].current, machines["pi-4"].runs) == (NEW, {NEW})
    machines["pi-3"].break_down(False, SERVICE_UNIT)
    done = fab("deploy rollback")
    assert (done.code, f"resuming the interrupted rollback to release {OLD}" in done.stdout) == (0, True), done.stderr
    assert {(machine.current, *machine.runs) for machine in machines.values()} == {(OLD, OLD)}
    assert UnfinishedRollback(tmp_path / ".pscluster" / "three" / "rollback.json").read() is None


def test_a_service_of_the_old_release_alone_is_restarted(machines: dict[str, Machine], fab: Fab) -> None:
    """What a rollback of earlier days left: `current` flipped, and the service still of the other release."""
    machines["pi-4"].break_down(True, SERVICE_UNIT)
    assert fab("deploy rollback").code == 3
    assert (machines["pi-4"].current, machines["pi-4"].runs) == (OLD, set())
    machines["pi-4"].break_down(False, SERVICE_UNIT)
    assert fab("deploy rollback").code == 0
    assert machines["pi-4"].runs == {OLD}
