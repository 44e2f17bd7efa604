"""`fab deploy rollback`: one release for all nodes, and a call that was cut off is finished by the next one."""

import getpass
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.commands import rollback as rollback_command
from deploy.converge.rollback_plan import UnfinishedRollback
from tests.deploy.over_ssh.sshd import needs_sudo
from tests.deploy.played_machines import Machine, running_machines
from tests.deploy.typed import Fab
from tests.habits import needs

ROLES = ("[storage, ps, coordinator]", "[worker]", "[worker]")
NAMES = ("pi-1", "pi-2", "pi-3")
OLD, NEW, NEWEST = ("a" * 16, "b" * 16, "c" * 16)


@pytest.fixture
def machines(tmp_path: Path, fab: Fab) -> Iterator[list[Machine]]:
    """Three nodes, each with two releases and roles that run the new one."""
    needs_sudo()
    needs.mount_namespace()
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
        made = [machine for machine, _ in running]
        for machine in made:
            machine.deploy(OLD, NEW)
        assert fab("deploy restart").code == 0
        assert all_run(made, NEW)
        yield made


def all_run(machines: list[Machine], release: str) -> bool:
    return all((machine.current, machine.runs) == (release, {release}) for machine in machines)


def test_a_rollback_goes_back_and_a_second_one_comes_back(machines: list[Machine], fab: Fab, tmp_path: Path) -> None:
    for release in (OLD, NEW):
        done = fab("deploy rollback")
        assert (done.code, done.stdout.count(f"back on release {release}")) == (0, 3)
        assert all_run(machines, release)
        assert not list((tmp_path / ".pscluster" / "three").glob("rollback*"))


def test_one_that_was_interrupted_is_finished_by_the_next(
    machines: list[Machine], fab: Fab, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = 0

    def drain(*_: object) -> None:
        nonlocal batches
        batches += 1
        if batches == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(rollback_command, "drain", drain)
        cut_off = fab("deploy rollback --serial 1")
    assert cut_off.code == 130
    assert (
        f"interrupted; on release {OLD}: pi-1; not or not yet: pi-2, pi-3; `fab deploy rollback --inventory"
        in cut_off.stderr
    )
    assert [machine.current for machine in machines] == [OLD, NEW, NEW]
    before = machines[0].pids

    done = fab("deploy rollback --serial 1")

    assert done.code == 0, done.stderr
    assert f"resuming the interrupted rollback to release {OLD}" in done.stdout
    assert f"pi-1: on release {OLD} already" in done.stdout
    assert all_run(machines, OLD)
    assert machines[0].pids == before
    assert fab("deploy rollback").code == 0
    assert all_run(machines, NEW)


def test_a_node_whose_roles_did_not_come_up_goes_on_to_the_same_release(machines: list[Machine], fab: Fab) -> None:
    machines[1].break_down(True)
    failed = fab("deploy rollback --limit pi-2")
    assert failed.code == 3
    assert "pi-2: not restarted: it does not come up" in failed.stderr
    assert f"on release {OLD}: no node; not or not yet: pi-2; `fab deploy rollback --limit pi-2" in failed.stderr
    assert machines[1].current == OLD
    machines[1].break_down(False)
    done = fab("deploy rollback --limit pi-2")
    assert (done.code, f"pi-2: back on release {OLD}" in done.stdout) == (0, True)
    assert all_run(machines[1:2], OLD)
    assert all_run(machines[::2], NEW)
    assert fab("deploy rollback").code == 0
    assert all_run(machines, OLD)


def test_nodes_that_missed_a_deployment_do_not_go_elsewhere(machines: list[Machine], fab: Fab) -> None:
    for machine in machines[:2]:
        machine.deploy(NEWEST)
    assert fab("deploy restart").code == 0
    first = fab("deploy rollback")
    assert (first.code, f"pi-3: on release {NEW} already" in first.stdout) == (0, True)
    assert all_run(machines, NEW)
    for _ in range(2):  # also when it is typed again
        without = fab("deploy rollback")
        assert without.code == 3
        assert f"pi-3: release {NEWEST}, to which the others go back, is not there" in without.stderr
        assert "`fab deploy start --limit pi-3` from the checkout of that release" in without.stderr
        assert all_run(machines[:2], NEWEST)
        assert all_run(machines[2:], NEW)


def test_a_deployment_from_elsewhere_ends_one_that_was_cut_off(machines: list[Machine], fab: Fab) -> None:
    machines[2].break_down(True)
    assert fab("deploy rollback").code == 3
    machines[2].break_down(False)
    for machine in machines:
        machine.deploy(NEW, NEWEST)
    done = fab("deploy rollback")
    assert (done.code, "going on" in done.stdout) == (0, False)
    assert all_run(machines, NEW)


@pytest.mark.parametrize("content", ["", "[]", '{"release": "../x", "was": {}, "left": []}', '{"release": "aaaa"}'])
def test_a_damaged_mark_is_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "rollback.json").write_text(content)
    assert UnfinishedRollback(tmp_path / "rollback.json").read() is None
