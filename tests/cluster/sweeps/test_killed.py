"""Sweeps whose processes are killed have the table of undisturbed trainings.

The sweeps and those trainings run side by side.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from core.inventory import load
from deploy.common.project import ROOT
from deploy.supervisor.services import Supervised
from tests.cluster.sweeps.swept import (
    SMALL,
    bits_of,
    children,
    ended,
    environment,
    gone,
    has_checkpoint,
    kill,
    prepared,
    record_of,
    table_of,
    typed,
    until,
)

pytestmark = pytest.mark.long

BASE = f"""{SMALL}
  jobs.train.slots: 2
  jobs.train.checkpoint.every_seconds: 0.5
seeds: [3]
"""
KEY = "jobs.train.epochs"
SHORT = 60
LONG = 240
ON_NODES = f"{BASE}grid: {{{KEY}: [{SHORT}, {LONG}]}}\n"
ON_ROLES = f"{BASE}runs: [{{{KEY}: {LONG}, jobs.train.mode: sync}}]\nplacement: cluster\n"
ALONE = """
import os, sys
from cluster.__main__ import main
for epochs in sys.argv[1].split(","):
    assert main(["train", *sys.argv[2:], "--set", f"jobs.train.epochs={epochs}"]) == 0
os._exit(0)
"""


@dataclass(frozen=True)
class Place:
    """Two sweeps with killed processes, one for each placement, beside undisturbed trainings."""

    nodes: Path
    roles: Path
    killed: Mapping[Path, "Future[None]"]
    calm: "Future[dict[int, dict[str, Any]]]"

    def expected(self, *epochs: int) -> list[tuple[str, dict[str, Any]]]:
        """Bits and figures of the undisturbed trainings of so many epochs."""
        results = [self.calm.result()[count] for count in epochs]
        return [(result["parameters_sha256"], result["final"]) for result in results]


def left_by(folder: Path) -> list[tuple[str, Any]]:
    """Bits and figures of each run of the sweep there."""
    record = record_of(folder)
    return list(zip(bits_of(folder, record), [row[-1] for row in table_of(record)], strict=True))


def train_alone(folder: Path) -> dict[int, dict[str, Any]]:
    """Results of the trainings in mode `single`, by their epochs, in one process."""
    settings = yaml.safe_load(BASE)["base"] | {
        "jobs.train.seed": 3,
        "jobs.train.mode": "single",
        "runs": folder / "runs",
        "jobs.train.data.source": folder / "mine.npz",
    }
    words = ["--inventory", "inventory.yaml", "--quiet"]
    words += [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    process = subprocess.Popen(
        [sys.executable, "-c", ALONE, f"{SHORT},{LONG}", *words],
        cwd=folder,
        env={**environment(folder), "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    ended(process)
    results = [json.loads(path.read_text()) for path in folder.glob("runs/*-train*/result.json")]
    return {result["epochs_done"]: result for result in results}


def runs_of(process: subprocess.Popen[str]) -> list[int]:
    """The processes of the runs, children of the driver, which is the child of `fab`.

    It has others at times.
    """
    return [
        run
        for driver in children(process.pid)
        for run in children(driver)
        if b"train" in words_of(run)
    ]


def words_of(pid: int) -> list[bytes]:
    """The command line of a process, empty once it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def kill_on_nodes(folder: Path) -> None:
    """Kill the driver, then a run, then interrupt it as a person does, and resume."""
    process = typed(folder, "sweep", "s.yaml")
    until(lambda: has_checkpoint(folder), process)
    first = until(lambda: runs_of(process), process)
    kill(children(process.pid))
    again = until(lambda: [run for run in runs_of(process) if run not in first], process)
    kill(again[-1:])
    until(lambda: any(run.state == "finished" for run in record_of(folder).runs), process)
    last = runs_of(process)
    process.terminate()
    assert "resuming" in ended(process, code=130)
    assert gone((*first, *again, *last))
    interrupted = record_of(folder)
    assert interrupted.state == "cancelled"
    (finished,) = (run for run in interrupted.runs if run.state == "finished")
    ended(typed(folder, "sweep", "s.yaml", "--resume"))
    assert finished in record_of(folder).runs


def kill_on_roles(folder: Path) -> None:
    """The same with roles, which are stopped at its end."""
    ended(typed(folder, "deploy", "start", "--no-jobs"))
    try:
        kill_roles(folder)
    finally:
        ended(typed(folder, "deploy", "stop"))


def kill_roles(folder: Path) -> None:
    """Kill the worker, the server, and then the driver with its run, of a sweep on them."""
    roles = Supervised(load(folder / "inventory.yaml"), ())

    def pid_of(name: str) -> int | None:
        return next(role.pid for role in roles.state().roles if role.name == name)

    process = typed(folder, "sweep", "s.yaml")
    until(lambda: has_checkpoint(folder), process)
    first = until(lambda: runs_of(process), process)
    worker = pid_of("worker:0")
    server = pid_of("ps:0")
    assert worker is not None
    assert server is not None
    kill([worker])
    until(lambda: pid_of("worker:0") not in (None, worker), process)
    drivers = children(process.pid)
    kill([server])
    again = until(lambda: [run for run in runs_of(process) if run not in first], process)
    # A run that reads the loss as one of the server ends its driver too; otherwise the same driver
    # starts it again.
    if children(process.pid) == drivers:
        restarts = 1
    else:
        restarts = 2
    kill(children(process.pid))
    said = ended(process)
    assert said.count("started again, resuming") == restarts, said
    assert gone((*first, *again))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """All of them side by side: one waits for little while another computes."""
    nodes = prepared(tmp_path_factory.mktemp("nodes"), ON_NODES, workers=2)
    roles = prepared(tmp_path_factory.mktemp("roles"), ON_ROLES)
    calm = prepared(tmp_path_factory.mktemp("calm"), "")
    with ThreadPoolExecutor() as pool:
        killed = {
            roles: pool.submit(kill_on_roles, roles),
            nodes: pool.submit(kill_on_nodes, nodes),
        }
        return Place(nodes, roles, killed, pool.submit(train_alone, calm))


def test_a_killed_driver_a_killed_run_and_a_person_s_interrupt_change_nothing(place: Place) -> None:
    place.killed[place.nodes].result()
    record = record_of(place.nodes)
    assert record.state == "finished"
    assert {run.node for run in record.runs} == {"worker:0", "worker:1"}
    assert left_by(place.nodes) == place.expected(SHORT, LONG)
    results = list(place.nodes.glob("runs/*-sweep/runs/*/*-train*/result.json"))
    assert len(results) == 2
    assert any(json.loads(path.read_text())["resumptions"] for path in results)


def test_a_killed_worker_server_and_driver_of_a_sweep_over_all_nodes_change_nothing(
    place: Place,
) -> None:
    place.killed[place.roles].result()
    assert [run.state for run in record_of(place.roles).runs] == ["finished"]
    assert left_by(place.roles) == place.expected(LONG)
    (result,) = place.roles.glob("runs/*-sweep/runs/0001/*-train*/result.json")
    assert json.loads(result.read_text())["resumptions"] > 0
