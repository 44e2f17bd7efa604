"""Naming some roles of a cluster: `--role worker`, `--role worker:1`, `--node rpi03`. Pure."""

from collections.abc import Sequence

from cluster.errors import UsageError
from cluster.inventory.task import Task


def select(tasks: Sequence[Task], roles: Sequence[str], nodes: Sequence[str]) -> tuple[Task, ...]:
    """The tasks that match one of `roles` (if any are given) and one of `nodes` (if any are given).

    Raises UsageError for a name that matches nothing, with the names there are.
    """
    known_roles = [*dict.fromkeys(task.role for task in tasks), *(task.name for task in tasks)]
    known_nodes = list(dict.fromkeys(task.node for task in tasks))
    for flag, given, known in (("--role", roles, known_roles), ("--node", nodes, known_nodes)):
        for name in given:
            if name not in known:
                raise UsageError(f"{flag} {name}: expected one of {', '.join(known)}")
    chosen = tuple(
        task
        for task in tasks
        if (not roles or task.role in roles or task.name in roles) and (not nodes or task.node in nodes)
    )
    if not chosen:
        raise UsageError(f"no {' or '.join(roles)} on {' or '.join(nodes)}: leave --role or --node out")
    return chosen
