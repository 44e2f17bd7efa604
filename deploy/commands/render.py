"""`fab deploy render kubernetes`: the manifests of an inventory, without a look at any machine."""

from pathlib import Path

from cluster.errors import UsageError
from cluster.logs.terminal import say
from deploy.commands.edge import takes
from deploy.commands.flags import Flags
from deploy.commands.opening import open_cluster

KINDS = ("kubernetes",)
CORES = 4
"""Assumed for every node, as a Raspberry Pi has: they decide the memory of micro-batches `auto`."""


@takes("inventory set_ kind out")
def render(flags: Flags) -> None:
    """Write what another system deploys the inventory with: `fab deploy render kubernetes --out FOLDER`."""
    if flags.kind not in KINDS:
        got = "nothing" if flags.kind is None else repr(flags.kind)
        raise UsageError(
            f"deploy render: expected {' or '.join(KINDS)}, got {got}, e.g. `fab deploy render kubernetes`"
        )
    inventory = open_cluster(flags, as_written=True).for_machines("deploy render").inventory
    from deploy.converge.deployment import minimum_workers
    from deploy.converge.memory_estimate import of_inventory
    from deploy.monitor.files import write
    from deploy.render.kubernetes import manifests

    memory = of_inventory(inventory, {node.name: CORES for node in inventory.nodes})
    taken = {role: memory.of(role) for role in ("ps", "worker", "coordinator")}
    files = manifests(inventory, taken, minimum_workers(inventory))
    if flags.out is None:
        say("".join(f"# {name}\n---\n{text}---\n" for name, text in files.items()), end="")
        return
    folder = Path(flags.out)
    written = write(folder, files)
    say(f"{len(files)} files in {folder}, {len(written)} new or changed; docs/containers.md says what reads them")
