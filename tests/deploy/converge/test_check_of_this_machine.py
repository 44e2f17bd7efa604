import json
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.inventory import Inventory, load
from cluster.inventory.extensions import MODELS, MODES
from cluster.inventory.task import Task
from cluster.inventory.training import TrainJob
from cluster.models.thesis import ThesisModel
from deploy.cluster.services import ClusterStatus, RoleState, RoleStatus
from deploy.converge.check import NodeFacts, Verdict, check_node
from deploy.converge.memory_estimate import MEGABYTE, estimate, of_inventory, of_training

PROJECT = Path(__file__).resolve().parents[3]
TASKS = (
    Task("ps", 0, "here", "127.0.0.1", 2222, 9200),
    Task("worker", 0, "here", "127.0.0.1", 2223, 9201),
    Task("coordinator", 0, "here", "127.0.0.1", 2224, 9202),
)
PI_3B = NodeFacts(
    python="3.11.2",
    machine="aarch64",
    bits=64,
    tensorflow="2.21.0",
    cores=4,
    memory_bytes=1_000_000_000,
    available_bytes=800_000_000,
    taken_ports={},
    guard=Verdict(True, "socket filter"),
    accounts=Verdict(True, "roles run as pi (uid 1000)"),
    privileges=Verdict(True, "roles run as pi (uid 1000)"),
    data=Verdict(True, "synthetic recordings"),
)

NAMES = [f"rpi{number:02d}" for number in range(1, 17)]


def shipped(settings: list[str]) -> Inventory:
    return load(PROJECT / "inventory.yaml", settings, check_interfaces=False)


def status(state: RoleState) -> ClusterStatus:
    return ClusterStatus(
        "local",
        tuple(RoleStatus(task.role, task.index, "here", task.address, "", state) for task in TASKS[:2]),
    )


def problems(facts: NodeFacts, state: RoleState = RoleState.STOPPED, units: int = 32) -> dict[str, str]:
    findings = check_node(TASKS, status(state), facts, estimate(units), job_runs=False)
    return {finding.subject: finding.line for finding in findings if finding.level != "ok"}


def test_a_pi_with_one_of_each_role_can_start() -> None:
    assert problems(PI_3B) == {}


def test_taken_ports_are_named_with_their_holder() -> None:
    taken = replace(PI_3B, taken_ports={2223: "process 77 (nginx)", 9202: "another process"})
    assert problems(taken) == {
        "worker:0": "port 2223 is taken by process 77 (nginx): stop it, or choose another port",
        "coordinator:0": "port 9202 is taken by another process: stop it, or choose another port",
    }


def test_a_taken_port_of_the_page_is_a_warning() -> None:
    tasks = (*TASKS[:2], replace(TASKS[2], page_port=9203))
    facts = replace(PI_3B, taken_ports={9203: "process 77 (nginx)"})
    found = check_node(tasks, status(RoleState.STOPPED), facts, estimate(32), job_runs=False)
    (warning,) = [finding for finding in found if finding.level == "warning"]
    assert "9203" in warning.line
    assert "process 77 (nginx)" in warning.line
    assert all(finding.level != "problem" for finding in found)


def test_ports_taken_by_our_own_running_roles_are_well() -> None:
    taken = replace(PI_3B, taken_ports={port: "process 1" for task in TASKS[:2] for port in (task.port, 9200)})
    assert problems(taken, RoleState.READY) == {}


def test_roles_beyond_eighty_percent_of_the_memory_are_refused_with_a_remedy() -> None:
    found = problems(PI_3B, units=256)
    assert list(found) == ["memory"]
    assert "more than 80%" in found["memory"]
    assert "move the coordinator" in found["memory"]


def least_memory_that_passes(tasks: tuple[Task, ...], units: int = 32) -> int:
    """Found by what `check` says, not by what it computes."""
    low, high = 0, 10**10
    while high - low > 1:
        middle = (low + high) // 2
        facts = replace(PI_3B, memory_bytes=middle, available_bytes=10**10)
        found = check_node(tasks, status(RoleState.STOPPED), facts, estimate(units), job_runs=False)
        refused = any(finding.subject == "memory" and finding.level == "problem" for finding in found)
        low, high = (middle, high) if refused else (low, middle)
    return high


def test_every_role_of_a_node_counts_and_eighty_percent_is_the_border() -> None:
    memory, two_workers = estimate(32), (*TASKS, Task("worker", 1, "here", "127.0.0.1", 2225, 9203))
    for tasks, needed in (
        (TASKS[1:2], memory.worker),
        (TASKS, memory.ps + memory.worker + memory.coordinator),
        (two_workers, memory.ps + 2 * memory.worker + memory.coordinator),
    ):
        assert least_memory_that_passes(tasks) == pytest.approx(needed / 0.8, abs=2)


def test_the_remedy_helps_where_layers_of_128_do_not_fit_beside_the_coordinator() -> None:
    def refused(tasks: tuple[Task, ...]) -> bool:
        found = check_node(tasks, status(RoleState.STOPPED), PI_3B, estimate(128), job_runs=False)
        return any(finding.level == "problem" for finding in found)

    assert refused(TASKS)
    assert not refused(TASKS[:2])  # the coordinator moved to another node


def test_memory_in_use_by_others_is_a_warning_only_before_the_start() -> None:
    full = replace(PI_3B, available_bytes=100_000_000)
    assert list(problems(full)) == ["memory"]
    assert problems(full, RoleState.READY) == {}


@pytest.mark.parametrize(
    ("change", "subject", "words"),
    [
        ({"tensorflow": None}, "tensorflow", "make .venv"),
        ({"bits": 32, "machine": "armv7l"}, "platform", "64-bit x86_64 and aarch64 only"),
        ({"machine": "riscv64"}, "platform", "only"),
        ({"guard": Verdict(False, "Operation not permitted")}, "port guard", "open to the whole network"),
        (
            {"accounts": Verdict(False, "as pi (uid 1000): no gate before the port: Function not implemented")},
            "accounts",
            "any account of this machine can run code as pi (uid 1000): no gate before the port: Function not "
            "implemented; it needs only to connect to port 2222, 2223, 2224: share",
        ),
        (
            {"privileges": Verdict(False, "roles run as root (uid 0): no map")},
            "privileges",
            "roles run as root (uid 0)",
        ),
        ({"data": Verdict(False, "x.zip: no such file")}, "data", "x.zip: no such file"),
    ],
)
def test_each_other_obstacle_has_its_line(change: dict[str, object], subject: str, words: str) -> None:
    found = problems(replace(PI_3B, **change))  # type: ignore[arg-type]
    assert list(found) == [subject]
    assert words in found[subject]


@pytest.mark.parametrize(("units", "infix"), [(32, ""), (128, "h128_"), (8, "")])
def test_the_estimate_passes_through_the_figures_last_measured(units: int, infix: str) -> None:
    """Those the repository publishes: whoever measures anew fits the estimate again. Narrower is not less."""
    summary = json.loads((PROJECT / "benchmarks" / "results" / "memory.json").read_text())["summary"]
    sixteen = estimate(units, MODES["sync"].server_vectors(16), part=16, prepared=16)
    for figures, memory in ((summary, estimate(units)), (summary["sixteen"], sixteen)):
        for role in ("ps", "worker", "coordinator"):
            measured = figures[f"{role}_training_{infix}anonymous_mb"] * MEGABYTE
            assert memory.of(role) == pytest.approx(measured, abs=2 * MEGABYTE), role  # rows of a narrower model


@pytest.mark.parametrize(("units", "parameters"), [(32, 27_590), (128, 429_830)])
def test_more_vectors_are_held_by_the_parameter_server_alone(units: int, parameters: int) -> None:
    plain, more = estimate(units), estimate(units, extra_vectors=3)
    assert more.ps - plain.ps == 3 * 4 * parameters
    assert (more.worker, more.coordinator) == (plain.worker, plain.coordinator)


@pytest.mark.parametrize(
    ("model", "units"),
    [
        ({"name": "thesis", "hidden": 32, "bidirectional": False}, 32),
        ({"name": "thesis", "hidden": 32, "bidirectional": True}, 64),
        ({"name": "residual", "hidden": 32}, 64),
        ({"name": "dblstm"}, 256),
    ],
)
def test_both_directions_of_a_layer_count(model: dict[str, object], units: int) -> None:
    options = TrainJob.model_validate({"model": model}).model
    assert MODELS[options.name].widest_layer(options) == units


def test_who_computes_more_micro_batches_at_once_takes_more() -> None:
    """In `sync` workers share a step; otherwise each computes whole batches, by the one function there is."""
    model = ThesisModel(hidden=32)
    assert of_training("async", 4, 16, model) == estimate(32)
    assert of_training("async", 16, 16, model) == estimate(32, part=16)
    for workers, part in ((1, 16), (2, 8), (3, 8), (15, 2), (16, 1), (40, 1)):
        assert of_training("sync", 16, workers, model) == estimate(32, 17, part, prepared=16), workers
    assert estimate(32, part=8).worker > estimate(32).worker == estimate(32, part=1).worker
    assert estimate(32, prepared=8).coordinator > estimate(32).coordinator == estimate(32, prepared=1).coordinator


@pytest.mark.parametrize(
    ("cores", "settings", "same"),
    [
        ({}, [], ["jobs.train.micro_batches=4"]),
        (dict.fromkeys(NAMES, 8), [], ["jobs.train.micro_batches=8"]),
        (dict.fromkeys(NAMES, 4), ["jobs.train.mode=sync"], ["jobs.train.mode=sync", "jobs.train.micro_batches=16"]),
        (dict.fromkeys(NAMES, 8), ["jobs.train.micro_batches=4"], ["jobs.train.micro_batches=4"]),
    ],
    ids=["unknown", "eight cores", "sync", "given"],
)
def test_the_estimate_follows_what_auto_becomes(cores: dict[str, int], settings: list[str], same: list[str]) -> None:
    assert of_inventory(shipped(settings), cores) == of_inventory(shipped(same), {})


def test_a_parameter_server_of_sync_holds_a_row_a_micro_batch() -> None:
    rows = MODES["sync"].server_vectors(16)
    assert rows == 17
    assert estimate(128, rows).ps - estimate(128).ps == 17 * 4 * 429_830
    assert [MODES[mode].server_vectors(16) for mode in ("async", "ssp", "local", "allreduce", "single")] == [0] * 5
