"""`fab deploy rollback`: one release for all nodes, and a call that was cut off is finished by the
next one."""

from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from deploy.commands import rollback as rollback_command
from deploy.converge.recap import UnfinishedRollback
from tests.deploy.played_machines import Machine
from tests.deploy.typed import Fab

OLD = "a" * 16
NEW = "b" * 16
NEWEST = "c" * 16


@pytest.fixture
def machines(machines_with: Callable[..., dict[str, Machine]]) -> list[Machine]:
    """Three nodes, each with two releases and roles that run the new one."""
    made = [
        *machines_with((OLD, NEW), "[storage, ps, coordinator]", "[worker]", "[worker]").values()
    ]
    assert all_run(made, NEW)
    return made


def all_run(machines: list[Machine], release: str) -> bool:
    return all((machine.current, machine.runs) == (release, {release}) for machine in machines)


def test_one_that_was_interrupted_is_finished_by_the_next(
    machines: list[Machine], fab: Fab, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(rollback_command, "drain", Mock(side_effect=[None, KeyboardInterrupt]))
        fab("deploy rollback --serial 1").warns(
            f"interrupted; on release {OLD}: pi-1; not or not yet: pi-2, pi-3; `fab deploy rollback"
            " --inventory",
            code=130,
        )
    assert [machine.current for machine in machines] == [OLD, NEW, NEW]
    before = machines[0].pids
    fab("deploy rollback --serial 1").says(
        f"resuming the interrupted rollback to release {OLD}", f"pi-1: on release {OLD} already"
    )
    assert all_run(machines, OLD)
    assert machines[0].pids == before
    fab(f"deploy rollback --to {NEW[:8]}").says(
        f"going to release {NEW}; there, the oldest first: "
    )
    assert all_run(machines, NEW)
    for beginning in ("r2", "''"):
        fab(f"deploy rollback --to {beginning}").warns("expected the beginning of one of ", code=2)


def test_nodes_that_missed_a_deployment_do_not_go_elsewhere(
    machines: list[Machine], fab: Fab
) -> None:
    for machine in machines[:2]:
        machine.deploy(NEWEST)
    fab("deploy restart").says()
    fab("deploy rollback").says(f"pi-3: on release {NEW} already")
    assert all_run(machines, NEW)
    for _ in range(2):  # also when it is typed again
        fab("deploy rollback").warns(
            f"pi-3: release {NEWEST}, to which the others go back, is not there",
            "`fab deploy start --limit pi-3` from the checkout of that release",
            code=3,
        )
        assert all_run(machines[:2], NEWEST)
        assert all_run(machines[2:], NEW)


@pytest.mark.parametrize(
    "content", ["", "[]", '{"release": "../x", "was": {}, "left": []}', '{"release": "aaaa"}']
)
def test_a_damaged_mark_is_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "rollback.json").write_text(content)
    assert UnfinishedRollback(tmp_path / "rollback.json").read() is None
