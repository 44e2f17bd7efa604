"""Sweeps over the nodes of a lab, one of which loses its power."""

import json
from typing import Any

from tests.lab.lab import Lab
from tests.lab.operator import Operator
from tests.lab.waiting import eventually

SWEEP = """
base: {jobs.train.recipe: shipped, jobs.train.epochs: 2, jobs.train.model.n_stacked_layers: 1}
grid: {jobs.train.model.hidden: [8, 16]}
seeds: [1, 2]
"""
RECORD = "/mnt/pscluster/runs/*-sweep/sweep.json"
LEASED = '"node": "worker:0"'


def sweep_with_a_power_cut(
    lab: Lab, operator: Operator, hub: str, node: str
) -> list[dict[str, Any]]:
    """The runs of a sweep during which the node of worker 0 loses its power; each has its model."""
    (operator.folder / "widths.yaml").write_text(SWEEP)
    # Root's shell finds the names: user pi may not look into the folder of all runs.
    look = f"sudo sh -c 'cat {RECORD}' 2>/dev/null || true"
    with operator.running("sweep", "widths.yaml") as sweep:
        eventually(lambda: LEASED in lab.ssh(hub, look).stdout, "worker 0 has a run", 300.0)
        lab.node(node).crash()
        try:
            sweep.end(0)
        finally:
            lab.node(node).boot()
    (found,) = operator.folder.glob("runs/*-sweep/sweep.json")
    runs: list[dict[str, Any]] = json.loads(found.read_text())["runs"]
    for run in runs:
        assert (found.parent / run["folder"] / "model" / "model.json").is_file()
    return runs
