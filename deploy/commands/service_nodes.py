"""`fab service` on the nodes with the role `service`, as its account."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from core.exported.description import FILES, NAME, read_description
from core.ground.errors import ClusterError, UsageError
from core.ground.parcel import tar_of
from core.logs import say
from deploy.cluster.places import CURRENT, SERVICE_ACCOUNT, NodePlaces
from deploy.commands.action import end_degraded
from deploy.commands.flags import ClusterFlags
from deploy.commands.opening import open_cluster
from deploy.render.units import SERVICE_DATA

if TYPE_CHECKING:
    from core.inventory import Inventory
    from core.inventory.sections import Service
    from deploy.cluster.connector import CommandResult, Connector

SECONDS = 120.0
"""A node opens and warms a version within it."""
LARGEST_BYTES = 256 << 20


def manage_on_nodes(
    flags: ClusterFlags, action: str, *more: str, export: Path | None = None
) -> None:
    """Run an action on each node with the role, and show what each said.

    The command ends degraded where a node failed. `export` is the folder of an export, which goes
    to every node. Raises UsageError.
    """
    opened = open_cluster(flags)
    nodes = _nodes(opened.inventory)
    sent = None
    if export is not None:
        sent = archive(export)
    command_line = command(opened.inventory.service, action, *more)

    def one(node: "Connector") -> "CommandResult":
        return node.run(command_line, stdin=sent, user=SERVICE_ACCOUNT, deadline_seconds=SECONDS)

    failed = False
    with opened.cluster.fleet() as fleet:
        for name, result in fleet.each(one, nodes).items():
            if isinstance(result, ClusterError):
                say(str(result), error=True)
                failed = True
                continue
            for line in result.text.splitlines() if result.ok else result.last_lines:
                say(line if flags.for_programs else f"{name}: {line}", error=not result.ok)
            failed = failed or not result.ok
    if failed:
        end_degraded()


def command(service: "Service", action: str, *more: str) -> list[str]:
    """The words of one action on a node."""
    return [
        "env",
        f"PYTHONPATH={CURRENT}",
        "PYTHONSAFEPATH=1",
        NodePlaces().python,
        "-m",
        "recognise.service.manage",
        action,
        "--state",
        SERVICE_DATA,
        "--name",
        service.model,
        "--memory-megabytes",
        str(service.memory_megabytes),
        *more,
    ]


def archive(export: Path) -> bytes:
    """The files of an export as a tar. Raises UsageError for one that the service takes not."""
    described = read_description(export)
    if described.file not in (FILES["onnx"], FILES["litert"]):
        raise UsageError(
            f"{export}: expected an export in onnx or litert, got {described.file}: `fab export"
            " --to onnx`"
        )
    if described.bytes > LARGEST_BYTES:
        raise UsageError(
            f"{export}: expected a model of at most {LARGEST_BYTES:,} bytes, got"
            f" {described.bytes:,}"
        )
    return tar_of((name, (export / name).read_bytes()) for name in (NAME, described.file))


def _nodes(inventory: "Inventory") -> Sequence[str]:
    if not inventory.service_nodes:
        raise UsageError(
            f"{inventory.path}: no node has the role `service`: give it to one, or leave"
            " --inventory out for the versions of this folder"
        )
    return inventory.service_nodes
