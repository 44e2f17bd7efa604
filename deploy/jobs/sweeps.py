"""A sweep as a job of machines: submitted to the coordinator's node, runners to workers."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from cluster.apps.files import own_digests
from core.ground.errors import ClusterError, UsageError
from core.logs import say
from deploy.cluster.fleet import Fleet
from deploy.common.waiting import waiting_for
from deploy.jobs.apps import NO_APP, AppOfJob
from deploy.jobs.node_job.program_task import MEMBERS
from deploy.jobs.node_jobs import NodeJobs
from deploy.jobs.program_runners import cancelled, program_tasks, start_runners
from deploy.jobs.request import SWEEP

if TYPE_CHECKING:
    from cluster.sweeps.sweep_file import SweepFile
    from core.inventory import Inventory

SEARCH_REQUIREMENTS = Path(__file__).with_name("search_requirements.txt")
SHARED_KEYS = ("jobs.train.data", "jobs.train.app")
"""Keys of what nodes have once for all runs: prepared windows, and an app."""


@dataclass(frozen=True)
class SweepRequest:
    """A sweep that was read and checked: its file, its content, and the inventory."""

    file: Path
    sweep: "SweepFile"
    usual: "Inventory"

    @property
    def on_roles(self) -> bool:
        """Whether its runs need the cluster's roles."""
        return self.sweep.placement == "cluster"

    @property
    def files(self) -> Mapping[str, bytes]:
        """The files that travel with its job."""
        return {SWEEP: self.file.read_bytes()}


def search_flags(request: SweepRequest, environment: Callable[[Path], str]) -> tuple[str, ...]:
    """Flags of the process that drives a search, which needs Optuna; none without a search.

    `environment` makes the one of a requirements file there and returns its key, empty where
    nothing is missing.
    """
    if request.sweep.search is None:
        return ()
    key = environment(SEARCH_REQUIREMENTS)
    if key:
        return ("--driver-environment", key)
    return ()


def refuse_on_nodes(request: SweepRequest) -> None:
    """Raise UsageError for what only a cluster on one host can do."""
    keys = {key for choice in request.sweep.choices for key in choice.settings}
    if request.sweep.search is not None:
        keys |= {dimension.key for dimension in request.sweep.search.space}
    varied = sorted(key for key in keys if key.startswith(SHARED_KEYS))
    if varied:
        if varied[0] == "jobs.train.app":
            what = "one app for all runs"
        else:
            what = "the recordings once, prepared"
        raise UsageError(
            f"{request.sweep.file}: {varied[0]}: with `connection: ssh` the nodes get {what}: write"
            " it below `base:`"
        )


def answering(fleet: Fleet, nodes: Sequence[str]) -> list[str]:
    """Return the nodes that answer: a sweep begins without the others."""
    answers = fleet.each(lambda node: node.open(), nodes)
    return [name for name in nodes if not isinstance(answers[name], ClusterError)]


def begin_on_workers(
    jobs: NodeJobs,
    fleet: Fleet,
    request: SweepRequest,
    flags: Sequence[str],
    app: AppOfJob = NO_APP,
    environments: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Submit the job that drives the sweep, and start a runner on each worker's node; the job's id.

    The driver hands the `app` to the nodes; `environments` has the key of its packages on each,
    where it has some. A node that starts no runner is a line; without any the job is cancelled.
    Raises ClusterError.
    """
    token = secrets.token_hex(32)
    with waiting_for(f"submitting {request.sweep.name} to {jobs.node}"):
        name = jobs.submit("sweep", flags, app=app.files, token=token, files=request.files)
    inventory = jobs.inventory
    tasks = program_tasks(inventory, MEMBERS[0], token, environments, own_digests())
    with waiting_for("starting the runners on the workers' nodes"):
        content = {"inventory.yaml": inventory.path.read_bytes()}
        failed = start_runners(fleet, jobs.places, tasks, content)
    if len(failed) == len({worker.node for worker, _ in tasks}):
        raise cancelled(jobs, name, failed)
    for problem in failed.values():
        say(f"{problem}; the sweep does without it", error=True)
    return name
