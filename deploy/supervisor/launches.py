"""From an inventory to the command line of each of its role processes."""

from collections.abc import Sequence
from pathlib import Path

from cluster.inventory.task import Task
from deploy.common.project import ROOT, module_command
from deploy.common.state_folder import StateFolder
from deploy.supervisor.role_process import LaunchPlan

MODULES = {"ps": "ps_node", "worker": "worker_node"}
"""The roles that stay up, by the module that is one. The coordinator lives as long as a job and is started with it."""


def kept_tasks(tasks: Sequence[Task]) -> tuple[Task, ...]:
    """The tasks a service manager keeps running, in the order given."""
    return tuple(task for task in tasks if task.role in MODULES)


def role_launches(
    tasks: Sequence[Task], inventory: Path, overrides: Sequence[str], folder: StateFolder, held: Sequence[str] = ()
) -> list[tuple[Task, LaunchPlan]]:
    """How to start each kept task of the inventory in the file `inventory`; the tasks named `held` wait."""
    settings = [word for override in overrides for word in ("--set", override)]
    return [
        (
            task,
            LaunchPlan(
                command=module_command(
                    MODULES[task.role], "--inventory", str(inventory), "--task", str(task.index), *settings
                ),
                environment=(("NOTIFY_SOCKET", str(folder.notify_socket)), ("PYTHONUNBUFFERED", "1")),
                folder=ROOT,
                log=folder.log(task.name),
                held=task.name in held,
            ),
        )
        for task in kept_tasks(tasks)
    ]
