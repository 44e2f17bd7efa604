"""A cluster of processes takes the flags of machines: two nodes that are this machine."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from core.control.own_state import state_of
from core.ground.locks import held_by
from tests.deploy.typed import Fab, Outcome, as_process
from tests.ports import free_ports

TWO = """schema: 1
cluster: two
nodes:
  - name: left
    address: 127.0.0.1
    roles:
      - coordinator: {{port: {0}, metrics_port: {1}, page_port: {2}}}
      - ps: {{port: {3}, metrics_port: {4}}}
  - {{name: right, address: 127.0.0.2, roles: [worker: {{port: {5}, metrics_port: {6}}}]}}
jobs: {{pi: {{samples: 1000}}}}
"""
BOTH = {"ps:0": "ready", "worker:0": "ready"}


@pytest.fixture
def fab(tmp_path: Path) -> Fab:
    """`fab LINE` as a process of its own, which leaves its supervisor behind."""
    return partial(as_process, folder=tmp_path)


@pytest.fixture
def state(tmp_path: Path, fab: Fab) -> Iterator[Path]:
    """The cluster's state folder; it is stopped afterwards."""
    (tmp_path / "inventory.yaml").write_text(TWO.format(*free_ports(7)))
    folder = state_of(tmp_path / "inventory.yaml", "two")
    yield folder
    assert fab("deploy stop").code == 0
    assert held_by(folder / "supervisor.lock") is None


def roles(fab: Fab, flags: str = "") -> dict[str, str]:
    shown = json.loads(fab(f"deploy status --json {flags}").stdout)
    return {role["task"]: role["state"] for role in shown["roles"]}


def recap(state: Path) -> tuple[bool, dict[str, str]]:
    """Of the last deployment: whether it was complete, and what became of each node."""
    kept = json.loads(max((state / "deployments").glob("*.json")).read_text())
    return kept["complete"], {name: node["state"] for name, node in kept["nodes"].items()}


def last(done: Outcome) -> tuple[int, str]:
    return done.code, done.stdout.splitlines()[-1]


@pytest.mark.long
def test_nodes_are_started_shown_restarted_and_stopped_one_by_one(state: Path, fab: Fab) -> None:
    dry = fab("deploy start --dry-run --json --limit right")
    plan: Any = json.loads(dry.stdout)
    assert (dry.code, [step["subject"] for step in plan["steps"]]) == (0, ["worker:0", "pi"])
    assert [change["subject"] for change in plan["phases"]["services"]["right"]] == ["worker:0"]
    assert not state.exists()

    first = fab("deploy start --no-jobs --limit ps")
    assert (first.code, "running: 1 ps, 0 workers" in first.stdout) == (0, True), first.stderr
    assert roles(fab) == {"ps:0": "ready", "worker:0": "stopped"}
    assert roles(fab, "--limit right") == {"worker:0": "stopped"}
    assert fab("deploy status --limit left").code == 0
    complete, nodes = recap(state)
    assert (complete, list(nodes)) == (True, ["left"])

    second = fab("deploy start --no-jobs")
    assert (second.code, "running: 1 ps, 1 workers" in second.stdout) == (0, True), second.stderr
    assert recap(state)[1] == {"left": "ok", "right": "changed"}

    restarted = fab("deploy restart --serial 1")
    assert restarted.code == 0, restarted.stderr
    assert restarted.stdout.splitlines()[1:] == ["restarted ps:0", "restarted worker:0"]

    assert last(fab("deploy stop --limit right")) == (0, "stopped")
    assert roles(fab) == {"ps:0": "ready", "worker:0": "stopped"}
    assert last(fab("deploy stop --limit right")) == (0, f"nothing was running (looked in {state})")
    assert fab("deploy restart --role worker:0").code == 0
    assert roles(fab) == BOTH
