"""What a job becomes on its way from the operator's machine to the coordinator's node. Pure."""

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from deploy.jobs.node_job.request import JobRequest

if TYPE_CHECKING:
    from cluster.inventory import Inventory


def request_of(
    inventory: "Inventory", job: str, overrides: Sequence[str], flags: Sequence[str], runs: str, after: str = ""
) -> JobRequest:
    """The request for `job` with its runs in the node's folder `runs`; `after` is the id of a job to wait for.

    Where the operator names a run, it is the one of that name there. --json is for whoever reads the result: not there.
    """
    there = [*overrides, f"runs={json.dumps(runs)}"]
    if job == "evaluate" and inventory.jobs.evaluate.run is not None:
        there.append(f"jobs.evaluate.run={json.dumps(_there(inventory.jobs.evaluate.run, runs))}")
    kept = [flag for flag in flags if flag != "--json"]
    for index, flag in enumerate(kept[:-1]):
        if flag == "--resume" and not kept[index + 1].startswith("--"):
            kept[index + 1] = _there(kept[index + 1], runs)
    tasks = inventory.tasks() if inventory.needs_roles(job) else ()
    roles = {task.name: task.metrics_address for task in tasks if task.role != "coordinator"}
    return JobRequest(job, str(inventory.path), tuple(there), tuple(kept), roles, after)


def first_id(job: str, now: datetime) -> str:
    """The id of the first job submitted in the minute `now` (UTC): `20261121T2230-train`; others have -2 and so on."""
    return f"{now:%Y%m%dT%H%M}-{job}"


def _there(run: str, runs: str) -> str:
    return f"{runs}/{Path(run).name}"
