from dataclasses import replace
from pathlib import Path

from cluster.inventory.task import Task
from deploy.cluster.role_status import ClusterStatus, RoleState, RoleStatus
from deploy.converge.this_machine import disagreement, plan_start

PI = Path("pi.yaml")
TASKS = (Task("ps", 0, "here", "127.0.0.1", 2222, 9200), Task("worker", 0, "here", "127.0.0.1", 2223, 9201))


def status(*states: RoleState) -> ClusterStatus:
    roles = [
        RoleStatus(task.role, task.index, task.node, task.address, task.metrics_address, state, reason="no reason")
        for task, state in zip(TASKS, states, strict=True)
    ]
    return ClusterStatus("local", tuple(roles))


def kinds(now: ClusterStatus, wanted: bool | None = None) -> dict[str, str]:
    return {step.subject: step.kind for step in plan_start(TASKS, now, ("pi", "train"), wanted, PI).steps}


def test_a_stopped_cluster_is_started_and_its_jobs_are_run_in_order() -> None:
    plan = plan_start(TASKS, status(RoleState.STOPPED, RoleState.STOPPED), ("train", "pi"), None, PI)
    assert [(step.kind, step.subject) for step in plan.steps] == [
        ("start", "ps:0"),
        ("start", "worker:0"),
        ("run", "train"),
        ("run", "pi"),
    ]
    assert plan.changes == 4
    assert plan.steps[0].detail == "127.0.0.1:2222, metrics on 127.0.0.1:9200, on here"


def test_a_running_cluster_keeps_its_roles_and_does_not_repeat_jobs() -> None:
    plan = plan_start(TASKS, status(RoleState.READY, RoleState.READY), ("pi",), None, PI)
    assert [step.kind for step in plan.steps] == ["keep", "keep", "skip"]
    assert plan.changes == 0
    assert plan.steps[-1].detail.startswith("already running, jobs not repeated")


def test_jobs_asks_for_them_again_and_no_jobs_never_runs_them() -> None:
    assert kinds(status(RoleState.READY, RoleState.READY), True)["pi"] == "run"
    assert kinds(status(RoleState.STOPPED, RoleState.STOPPED), False)["pi"] == "skip"


def test_only_what_is_not_well_is_restarted_and_what_is_on_its_way_is_waited_for() -> None:
    assert kinds(status(RoleState.FAILED, RoleState.READY)) == {
        "ps:0": "restart",
        "worker:0": "keep",
        "pi": "run",
        "train": "run",
    }
    assert kinds(status(RoleState.FROZEN, RoleState.WAITING))["ps:0"] == "restart"
    assert kinds(status(RoleState.FROZEN, RoleState.WAITING))["worker:0"] == "wait"


def test_a_cluster_that_runs_with_other_roles_is_refused_with_the_differences() -> None:
    now = status(RoleState.READY, RoleState.READY)
    moved = (TASKS[0], Task("worker", 1, "here", "127.0.0.1", 3333, 9201))
    plan = plan_start(moved, now, ("pi",), None, PI)
    assert [step.kind for step in plan.steps] == ["refuse"]
    assert "worker:0 runs and is not in the inventory; worker:1 is new" in plan.refusals[0].detail
    assert "`fab deploy restart --inventory pi.yaml` changes it over" in plan.refusals[0].detail
    elsewhere = (TASKS[0], Task("worker", 0, "here", "127.0.0.1", 3333, 9201))
    assert "worker:0 runs at 127.0.0.1:2223, not 127.0.0.1:3333" in disagreement(elsewhere, now, PI)


def test_a_stopped_cluster_never_disagrees() -> None:
    assert disagreement(TASKS[:1], status(RoleState.STOPPED, RoleState.STOPPED), PI) == ""


def test_a_cluster_that_another_file_of_the_folder_started_is_named() -> None:
    now = replace(status(RoleState.READY, RoleState.READY), inventory=str(Path("other.yaml").resolve()))
    assert "cluster local, started from other.yaml, runs with other roles" in disagreement(TASKS[:1], now, PI)
    same = replace(now, inventory=str(PI.resolve()))
    assert "cluster local runs with other roles" in disagreement(TASKS[:1], same, PI)
