"""`fab service` on the nodes with the role `service`: the same commands there, as the service account."""

import io
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from invoke.exceptions import Exit

from cluster.errors import ClusterError, ExitCode, UsageError
from cluster.exported.description import FILES, NAME, read
from cluster.logs.terminal import say
from deploy.cluster.places import CURRENT, SERVICE_USER, NodePlaces
from deploy.commands.flags import Flags
from deploy.commands.opening import open_cluster
from deploy.render.units import SERVICE_DATA

if TYPE_CHECKING:
    from cluster.inventory import Inventory
    from deploy.cluster.connector import CommandResult, Connector

SECONDS = 120.0
"""A node opens and warms a version within it."""
LARGEST_BYTES = 256 << 20


def manage_on_nodes(flags: Flags, action: str, *more: str, export: Path | None = None) -> None:
    """Do it on each node with the role, and show what each said. Ends degraded where a node failed. Raises UsageError.

    `export` is the folder of an export, which goes to every node.
    """
    opened = open_cluster(flags)
    nodes = _nodes(opened.inventory)
    sent = None if export is None else archive(export)
    words = command(opened.inventory.service.model, action, *more)

    def one(node: "Connector") -> "CommandResult":
        return node.run(words, stdin=sent, user=SERVICE_USER, deadline_seconds=SECONDS)

    failed = False
    with opened.cluster.fleet() as fleet:
        for name, result in fleet.each(one, nodes).items():
            if isinstance(result, ClusterError):
                say(str(result), error=True)
                failed = True
                continue
            for line in result.text.splitlines() if result.ok else result.last_lines:
                say(line if flags.json_ else f"{name}: {line}", error=not result.ok)
            failed = failed or not result.ok
    if failed:
        raise Exit(None, ExitCode.DEGRADED)


def command(model: str, action: str, *more: str) -> list[str]:
    """The words of one action on a node."""
    return [
        *("env", f"PYTHONPATH={CURRENT}", "PYTHONSAFEPATH=1", NodePlaces().python, "-m", "recognise.service.manage"),
        *(action, "--state", SERVICE_DATA, "--name", model, *more),
    ]


def archive(export: Path) -> bytes:
    """The files of an export as a tar. Raises UsageError for one that the service takes not."""
    described = read(export)
    if described.file not in (FILES["onnx"], FILES["litert"]):
        raise UsageError(
            f"{export}: expected an export in onnx or litert, got {described.file}: `fab export --to onnx`"
        )
    if described.bytes > LARGEST_BYTES:
        raise UsageError(f"{export}: expected a model of at most {LARGEST_BYTES:,} bytes, got {described.bytes:,}")
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in (NAME, described.file):
            content = (export / name).read_bytes()
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return made.getvalue()


def _nodes(inventory: "Inventory") -> Sequence[str]:
    if not inventory.service_nodes:
        raise UsageError(
            f"{inventory.path}: no node has the role `service`: give it to one, or leave --inventory out for the "
            "versions of this folder"
        )
    return inventory.service_nodes
