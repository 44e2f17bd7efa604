"""Whether a cluster can start here, and the memory that its roles are expected to take."""

import json
import re
from bisect import bisect_left
from dataclasses import replace
from typing import Any

import pytest

from core.cage.landlock import Coverage
from core.inventory import Task
from core.inventory.extensions import MODELS, MODES
from core.inventory.training import TrainJob
from core.models.thesis import ThesisModel
from deploy.cluster.services import ClusterStatus, RoleState, RoleStatus
from deploy.common.project import ROOT
from deploy.converge.check import Finding, NodeFacts, Precondition, check_node
from deploy.converge.machine_facts import (
    IDLE_MEGABYTES,
    MEGABYTE,
    alone,
    estimate,
    memory_of_roles,
    training_memory,
)
from tests.deploy.converge.pi import thesis
from tests.deploy.converge.tables import TABLES, rows

TASKS = (
    Task("ps", 0, "here", "127.0.0.1", 2222, 9200),
    Task("worker", 0, "here", "127.0.0.1", 2223, 9201),
    Task("coordinator", 0, "here", "127.0.0.1", 2224, 9202),
)
GIGABYTE = 10**9
NAMES = [f"rpi{number:02d}" for number in range(1, 17)]


def pi(**changes: Any) -> NodeFacts:
    """A Pi 3B."""
    facts = NodeFacts(
        **TABLES["pi_3b"],
        guard=Precondition(True, "socket filter"),
        accounts=Precondition(True, "roles run as pi (uid 1000)"),
        privileges=Precondition(True, "roles run as pi (uid 1000)"),
        data=Precondition(True, "synthetic recordings"),
        cage=Coverage(7),
    )
    return replace(facts, **changes)


def found(
    facts: NodeFacts,
    state: RoleState = RoleState.STOPPED,
    tasks: tuple[Task, ...] = TASKS,
    units: int = 32,
) -> dict[str, Finding]:
    """What is not well."""
    roles = [RoleStatus(one.role, one.index, "here", one.address, "", state) for one in TASKS[:2]]
    status = ClusterStatus("local", tuple(roles))
    said = check_node(tasks, status, facts, estimate(units), job_runs=False)
    return {finding.subject: finding for finding in said if finding.level != "ok"}


def test_a_pi_with_one_of_each_role_can_start() -> None:
    assert found(pi()) == {}


def test_taken_ports_are_named_with_their_holder() -> None:
    taken = found(pi(taken_ports={2223: "process 77 (nginx)", 9202: "another process"}))
    assert {subject: finding.line for subject, finding in taken.items()} == {
        "worker:0": "port 2223 is taken by process 77 (nginx): stop it, or choose another port",
        "coordinator:0": "port 9202 is taken by another process: stop it, or choose another port",
    }


def test_a_taken_port_of_the_page_is_a_warning() -> None:
    tasks = (*TASKS[:2], replace(TASKS[2], page_port=9203))
    (warning,) = found(pi(taken_ports={9203: "process 77 (nginx)"}), tasks=tasks).values()
    assert warning.level == "warning"
    assert "port 9203 of the live page is taken by process 77 (nginx)" in warning.line


def test_ports_taken_by_our_own_running_roles_are_well() -> None:
    taken = dict.fromkeys((2222, 2223, 9200, 9201), "process 1")
    assert found(pi(taken_ports=taken), RoleState.READY) == {}


def test_roles_beyond_eighty_percent_of_the_memory_are_refused_with_a_remedy() -> None:
    ((subject, finding),) = found(pi(), units=400).items()
    assert (subject, finding.level) == ("memory", "problem")
    assert "more than 80%" in finding.line
    assert "move the coordinator" in finding.line
    # The remedy helps where these layers do not fit beside the coordinator.
    elsewhere = found(pi(), tasks=TASKS[:2], units=400).values()
    assert "problem" not in {finding.level for finding in elsewhere}


MEMORY = estimate(32)


@pytest.mark.parametrize("tasks", [TASKS[1:2], TASKS, (*TASKS, replace(TASKS[1], index=1))])
def test_every_role_of_a_node_counts_and_eighty_percent_is_the_border(
    tasks: tuple[Task, ...],
) -> None:
    def passes(memory_bytes: int) -> bool:
        facts = pi(memory_bytes=memory_bytes, available_bytes=10 * GIGABYTE)
        return "memory" not in found(facts, tasks=tasks)

    least = bisect_left(range(10 * GIGABYTE), True, key=passes)
    needed = sum(MEMORY.of(task.role) for task in tasks)
    assert least == pytest.approx(needed / 0.8, abs=2)


def test_memory_in_use_by_others_is_a_warning_only_before_the_start() -> None:
    full = pi(available_bytes=100_000_000)
    assert [finding.level for finding in found(full).values()] == ["warning"]
    assert list(found(full)) == ["memory"]
    assert found(full, RoleState.READY) == {}


@rows("obstacles")
def test_each_other_obstacle_has_its_line(row: Any) -> None:
    fails = {name: Precondition(False, line) for name, line in row.get("fails", {}).items()}
    ((subject, finding),) = found(pi(**fails, **row.get("facts", {}))).items()
    assert (subject, finding.level) == (row["subject"], row["level"])
    assert row["says"] in finding.line


@rows("the_estimate_passes_through_the_figures_last_measured", "units", "infix")
def test_the_estimate_passes_through_the_figures_last_measured(units: int, infix: str) -> None:
    """The repository publishes these: whoever measures anew fits the estimate again.

    Narrower is not less.
    """
    results = json.loads((ROOT / "benchmarks/results/memory.json").read_text())
    summary = results["summary"]
    sixteen = estimate(units, MODES["sync"].server_vectors(16), part=16, prepared=16)
    for figures, memory in ((summary, estimate(units)), (summary["sixteen"], sixteen)):
        for role in ("ps", "worker", "coordinator"):  # rows of a narrower model
            measured = figures[f"{role}_training_{infix}anonymous_mb"] * MEGABYTE
            assert memory.of(role) == pytest.approx(measured, abs=2 * MEGABYTE), role


@pytest.mark.parametrize(("units", "parameters"), [(32, 27_590), (128, 429_830)])
def test_more_vectors_are_held_by_the_parameter_server_alone(units: int, parameters: int) -> None:
    plain = estimate(units)
    assert estimate(units, extra_vectors=3) == replace(plain, ps=plain.ps + 3 * 4 * parameters)


@rows("both_directions_of_a_layer_count", "model", "units")
def test_both_directions_of_a_layer_count(model: dict[str, object], units: int) -> None:
    options = TrainJob.model_validate({"model": model}).model
    assert MODELS[options.name].widest_layer(options) == units


@rows("in_sync_workers_share_the_slots_of_a_step", "workers", "part")
def test_in_sync_workers_share_the_slots_of_a_step(workers: int, part: int) -> None:
    shared = training_memory("sync", 16, workers, ThesisModel(hidden=32))
    assert shared == estimate(32, 17, part, prepared=16)


def test_more_slots_at_once_take_less_of_a_worker_and_more_of_the_coordinator() -> None:
    """Otherwise each computes whole batches, by one function."""
    model = ThesisModel(hidden=32)
    assert training_memory("async", 4, 16, model) == estimate(32)
    assert training_memory("async", 16, 16, model) == estimate(32, part=16)
    assert estimate(32, part=8).worker < estimate(32).worker == estimate(32, part=1).worker
    eight, one, plain = (estimate(32, prepared=count).coordinator for count in (8, 1, 4))
    assert eight > plain == one


@pytest.mark.parametrize("model", ["spectral", "hybrid"])
def test_a_worker_counts_what_it_remembers_of_windows(model: str) -> None:
    source = (ROOT / "kernels/native/recall.cc").read_text()
    (bits,) = re.findall(r"kMostBytes = 1L << (\d+);", source)
    train = TrainJob.model_validate({"model": {"name": model}, "slots": 4})
    plain = estimate(MODELS[model].widest_layer(train.model))
    with_statistics = replace(plain, worker=plain.worker + (1 << int(bits)))
    for mode in ("async", "sync"):
        assert training_memory(mode, 4, 1, train.model).worker == with_statistics.worker
    assert alone(train) == (plain.coordinator + with_statistics.worker - IDLE_MEGABYTES * MEGABYTE)


@rows("the_estimate_follows_what_auto_becomes", "cores", "settings", "same")
def test_the_estimate_follows_what_auto_becomes(
    cores: int, settings: list[str], same: list[str]
) -> None:
    given, settled = (
        thesis(*(f"jobs.train.{setting}" for setting in those)) for those in (settings, same)
    )
    known = dict.fromkeys(NAMES, cores) if cores else {}
    assert memory_of_roles(given, known) == memory_of_roles(settled, {})
