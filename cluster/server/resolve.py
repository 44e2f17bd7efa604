"""From an inventory to the explicit flags of one role."""

import argparse

from cluster.errors import UsageError
from cluster.logs.lines import LogSettings, given_or
from cluster.server.options import RoleName, RoleOptions
from cluster.server.unprivileged import account_for_roles


def resolve(role: RoleName, parsed: argparse.Namespace) -> RoleOptions:
    """The options of a task that an inventory places.

    Raises InventoryError listing all problems of the file, UsageError when it has no such task.
    """
    # Here, because pydantic and what it loads cost a third of what a whole lean server does; see role.main.
    from cluster.inventory import load

    inventory = load(parsed.inventory, parsed.set)
    tasks = {task.index: task for task in inventory.of_role(role)}
    if parsed.task not in tasks:
        raise UsageError(f"--task {parsed.task}: {parsed.inventory} has {role} tasks {sorted(tasks)}")
    task = tasks[parsed.task]
    return RoleOptions(
        role=role,
        task=task.index,
        host=task.host,
        port=task.port,
        metrics_port=task.metrics_port,
        peers=len(inventory.of_role("worker")),
        guard=parsed.guard or ("loopback" if inventory.connection == "local" else "none"),
        server=parsed.server,
        intra_op_threads=parsed.intra_op_threads,
        coordinator=parsed.coordinator,
        shared=parsed.shared or inventory.shared_folder,
        logging=given_or(
            parsed.log_format, parsed.log_level, LogSettings(inventory.logging.format, inventory.logging.level)
        ),
        account=parsed.account or (account_for_roles() if inventory.connection == "local" else None),
    )
