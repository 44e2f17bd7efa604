"""Before roles are restarted under a job that runs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cluster.errors import ClusterError
from cluster.logs.terminal import say
from deploy.cluster.fleet import Fleet
from deploy.converge.draining import (
    DRAIN_SECONDS,
    SCRIPT,
    SPARE_SECONDS,
    Drained,
    drain_words,
    lost_parameters,
    nothing_drained,
    read_answers,
    workers_to_drain,
)

if TYPE_CHECKING:
    from cluster.inventory import Inventory, Task


def drain(inventory: "Inventory", fleet: Fleet, tasks: Sequence["Task"], seconds: float = DRAIN_SECONDS) -> None:
    """Have the workers among `tasks`, about to be restarted, drained if a job runs; print what could not be.

    That ends nothing: the engine goes on without a worker that was not drained.
    """
    servers = [task.name for task in tasks if task.role == "ps"]
    workers = workers_to_drain(tasks, inventory.of_role("worker"))
    if not servers and not workers:
        return
    found = _asked(inventory, fleet, workers, seconds)
    if found.workers:
        say(f"drained {', '.join(found.workers)}")
    for line in found.trouble:
        say(line)
    if found.job and servers:
        say(lost_parameters(servers))


def _asked(inventory: "Inventory", fleet: Fleet, workers: Sequence[str], seconds: float) -> Drained:
    coordinator = inventory.of_role("coordinator")[0]
    try:
        done = fleet.nodes[coordinator.node].run(
            drain_words(coordinator, workers, seconds),
            stdin=SCRIPT,
            root=True,  # a firewall may let the cluster's own account and root alone reach the port
            deadline_seconds=seconds + SPARE_SECONDS,
        )
    except ClusterError as error:
        return Drained(job=False, trouble=(nothing_drained(error),))
    if not done.ok:
        return Drained(job=False, trouble=(nothing_drained(" | ".join(done.last_lines[-1:])),))
    return read_answers(done.text, workers)
