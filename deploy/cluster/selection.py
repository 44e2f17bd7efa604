"""Naming some roles or nodes of a cluster: `--role worker:1`, `--node rpi03`, `--limit storage`.

Pure.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from core.ground.errors import UsageError
from core.inventory import Task

if TYPE_CHECKING:
    from core.inventory import Inventory

SERVICE = "service"
"""The role that is no task: a service knows nothing of jobs."""


def select(tasks: Sequence[Task], roles: Sequence[str], nodes: Sequence[str]) -> tuple[Task, ...]:
    """The tasks that match one of `roles` (if any are given) and one of `nodes` (if any are given).

    Raises UsageError for a name that matches nothing, with the names there are.
    """
    return select_with_services(tasks, (), roles, nodes)[0]


def select_with_services(
    tasks: Sequence[Task], services: Sequence[str], roles: Sequence[str], nodes: Sequence[str]
) -> tuple[tuple[Task, ...], tuple[str, ...]]:
    """Select as `select` does, and add the nodes `services` whose service matches.

    The role of such a node is `service`.
    """
    if services:
        of_service = [SERVICE]
    else:
        of_service = []
    known_roles = [
        *dict.fromkeys(task.role for task in tasks),
        *(task.name for task in tasks),
        *of_service,
    ]
    known_nodes = list(dict.fromkeys([*(task.node for task in tasks), *services]))
    for flag, requested, choices in (
        ("--role", roles, known_roles),
        ("--node", nodes, known_nodes),
    ):
        for name in requested:
            if name not in choices:
                raise UsageError(f"{flag} {name}: expected one of {', '.join(choices)}")
    chosen = tuple(
        task
        for task in tasks
        if (not roles or task.role in roles or task.name in roles)
        and (not nodes or task.node in nodes)
    )
    serving = tuple(
        name
        for name in services
        if (not roles or SERVICE in roles) and (not nodes or name in nodes)
    )
    if not chosen and not serving:
        raise UsageError(
            f"no {' or '.join(roles)} on {' or '.join(nodes)}: leave --role or --node out"
        )
    return chosen, serving


def select_nodes(inventory: "Inventory", limit: Sequence[str]) -> tuple[str, ...]:
    """The nodes that `--limit` names, by node or by role; all without it.

    Raises UsageError for an unknown name, and where it names no node.
    """
    names = [node.name for node in inventory.nodes]
    if not limit:
        return tuple(names)
    of_role: dict[str, set[str]] = {"storage": set()}
    for node in inventory.nodes:
        for entry in node.roles:
            of_role.setdefault(entry.role, set()).add(node.name)
    for task in inventory.tasks():
        of_role[task.name] = {task.node}
    chosen: set[str] = set()
    for word in [part for value in limit for part in value.split(",") if part]:
        if word in names:
            chosen.add(word)
        elif word in of_role:
            chosen |= of_role[word]
        else:
            raise UsageError(
                f"--limit {word}: expected a node or a role: {', '.join([*names, *of_role])}"
            )
    if not chosen:
        value = ",".join(limit)
        raise UsageError(
            f"--limit {value!r}: names no node: expected a node or a role:"
            f" {', '.join([*names, *of_role])}"
        )
    return tuple(name for name in names if name in chosen)


def kept_tasks(inventory: "Inventory") -> tuple[Task, ...]:
    """The parameter servers and workers, which a service manager keeps.

    A coordinator lives as long as its job.
    """
    return tuple(task for task in inventory.tasks() if task.role != "coordinator")
