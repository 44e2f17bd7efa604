"""A sweep as a job of a cluster of machines: submitted to the coordinator's node, its runners to the workers'."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from cluster.errors import ClusterError, UsageError
from cluster.logs.terminal import say
from cluster.references.tables import content_of
from deploy.cluster.connector import Connector
from deploy.cluster.fleet import Fleet
from deploy.common.waiting import waiting_for
from deploy.jobs.apps import NO_APP, AppOfJob
from deploy.jobs.node_job.program_task import MEMBERS, TASK, ProgramTask
from deploy.jobs.node_jobs import NodeJobs
from deploy.jobs.program_runners import lead_of, ports_of, start_runner
from deploy.jobs.request import REFERENCES, SWEEP

if TYPE_CHECKING:
    from cluster.inventory import Inventory
    from cluster.sweeps.sweep_file import SweepFile

SEARCH_REQUIREMENTS = Path(__file__).with_name("search_requirements.txt")
SHARED_KEYS = ("jobs.train.data", "jobs.train.app")
"""What the nodes have once for all runs: prepared windows, and an app."""
NO_KEYS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class SweepOrder:
    """A sweep that was read and checked: its file, what it says, and the inventory with what every run has."""

    file: Path
    sweep: "SweepFile"
    usual: "Inventory"

    @property
    def on_roles(self) -> bool:
        """Whether its runs need the cluster's roles."""
        return self.sweep.placement == "cluster"


def search_flags(order: SweepOrder, environment: Callable[[Path], str]) -> tuple[str, ...]:
    """Flags of the process that drives a search, which needs Optuna; none without a search.

    `environment` makes the one of a requirements file there and returns its key, empty where nothing is missing.
    """
    if order.sweep.search is None:
        return ()
    key = environment(SEARCH_REQUIREMENTS)
    return ("--driver-environment", key) if key else ()


def refuse_on_nodes(order: SweepOrder) -> None:
    """Raise UsageError for what only a cluster on one host can do."""
    keys = {key for choice in order.sweep.choices for key in choice.settings}
    keys |= {one.key for one in order.sweep.search.space} if order.sweep.search is not None else set()
    varied = sorted(key for key in keys if key.startswith(SHARED_KEYS))
    if varied:
        what = "one app for all runs" if varied[0] == "jobs.train.app" else "the recordings once, prepared"
        raise UsageError(
            f"{order.sweep.file}: {varied[0]}: with `connection: ssh` the nodes get {what}: write it below `base:`"
        )
    if not order.on_roles and order.usual.jobs.train.distill is not None:
        raise UsageError(
            f"{order.sweep.file}: jobs.train.distill: with `connection: ssh` a teacher's run lies on the coordinator's "
            "node: write `placement: cluster`, and the run's absolute path there"
        )


def files_of(order: SweepOrder, *, resumes: bool) -> Mapping[str, bytes]:
    """What travels with the job of a sweep: its file, and the table of references that it names if that is a file.

    A sweep that `resumes` has its own copy of the table, and needs the file no more. Raises UsageError.
    """
    found = {SWEEP: order.file.read_bytes()}
    named = order.sweep.references
    if named is not None:
        try:
            content = content_of(named, order.file.parent)
        except UsageError:
            if not resumes:
                raise
            content = None
        if content is not None:
            found[REFERENCES] = content
    return found


def answering(fleet: Fleet, nodes: Sequence[str]) -> list[str]:
    """Those of the nodes that answer: a sweep begins without the others."""
    found = fleet.each(lambda node: node.open(), nodes)
    return [name for name in nodes if not isinstance(found[name], ClusterError)]


def begin_on_workers(
    jobs: NodeJobs, fleet: Fleet, order: SweepOrder, flags: Sequence[str], app: AppOfJob = NO_APP,
    environments: Mapping[str, str] = NO_KEYS,
) -> str:  # fmt: skip
    """Submit the job that drives the sweep, and start a runner on each worker's node; the job's id.

    The driver hands the `app` to the nodes; `environments` has the key of its packages on each, where it has some. A
    node that starts no runner is a line; without any the job is cancelled. Raises ClusterError.
    """
    token = secrets.token_hex(32)
    files = files_of(order, resumes="--resume" in flags)
    with waiting_for(f"submitting {order.sweep.name} to {jobs.node}"):
        name = jobs.submit("sweep", flags, app=app.files, token=token, files=files)
    with waiting_for("starting the runners on the workers' nodes"):
        failed = start_runners(fleet, jobs, token, environments)
    workers = {task.node for task in jobs.inventory.of_role("worker")}
    if len(failed) == len(workers):
        with waiting_for(f"ending job {name}"):
            jobs.cancel(name)
        raise ClusterError("\n".join(map(str, failed.values())) + f"\njob {name} was cancelled")
    for problem in failed.values():
        say(f"{problem}; the sweep does without it", error=True)
    return name


def start_runners(
    fleet: Fleet, jobs: NodeJobs, token: str, environments: Mapping[str, str] = NO_KEYS
) -> Mapping[str, ClusterError]:  # fmt: skip
    """Start a runner for each worker on its node; the nodes where that failed, with the reason."""
    inventory = jobs.inventory
    workers = inventory.of_role("worker")
    content = inventory.path.read_bytes()

    def start(node: Connector) -> None:
        for task in workers:
            if task.node == node.name:
                ports, key = ports_of(inventory, task), environments.get(node.name, "")
                made = ProgramTask(lead_of(inventory), token, task.name, ports, MEMBERS[0], key)
                start_runner(node, jobs.places, made, {TASK: made.to_bytes(), "inventory.yaml": content})

    results = fleet.each(start, list(dict.fromkeys(task.node for task in workers)))
    return {name: result for name, result in results.items() if isinstance(result, ClusterError)}
