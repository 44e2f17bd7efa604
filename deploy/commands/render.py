"""`fab deploy render kubernetes`: the manifests of an inventory, without a look at any machine."""

from pathlib import Path

from core.ground.errors import UsageError
from core.logs import say
from deploy.commands.action import takes
from deploy.commands.flags import ClusterFlags, path, text, word
from deploy.commands.opening import open_cluster

KINDS = ("kubernetes",)
CORES = 4
"""Assumed for every node, as a Raspberry Pi has: they decide the memory of slots `auto`."""


class RenderFlags(ClusterFlags):
    """The flags of `deploy render`."""

    kind: str | None = word("what to write: kubernetes", needed=False, choices=KINDS)
    image: str | None = text("the image of all pods, NAME@sha256:DIGEST; else a tag")
    out: str | None = path("folder to write the files into; else they are printed")


@takes(RenderFlags)
def render(flags: RenderFlags) -> None:
    """Write what another system deploys the inventory with: `fab deploy render kubernetes`."""
    if flags.kind not in KINDS:
        if flags.kind is None:
            kind = "nothing"
        else:
            kind = repr(flags.kind)
        raise UsageError(
            f"deploy render: expected {' or '.join(KINDS)}, got {kind}, e.g. `fab deploy render"
            " kubernetes`"
        )
    inventory = open_cluster(flags, as_written=True).for_machines("deploy render").inventory
    if inventory.encrypted:
        raise UsageError(
            f"{inventory.path}: transport: wireguard is for machines over SSH: here the cluster's"
            " network plugin encrypts; give `--set transport=plain`"
        )
    from deploy.converge.deployment import minimum_workers
    from deploy.converge.machine_facts import memory_of_roles
    from deploy.monitor.files import write
    from deploy.render.kubernetes import manifests

    memory = memory_of_roles(inventory, {node.name: CORES for node in inventory.nodes})
    memory_of_role = {role: memory.of(role) for role in ("ps", "worker", "coordinator")}
    files = manifests(inventory, memory_of_role, minimum_workers(inventory), flags.image or "")
    if flags.image is None:
        say(
            "the image is a tag, localhost/pscluster:latest, which may be another image tomorrow:"
            " --image NAME@sha256:DIGEST names one",
            error=True,
        )
    if flags.out is None:
        say("".join(f"# {name}\n---\n{text}---\n" for name, text in files.items()), end="")
        return
    folder = Path(flags.out)
    written = write(folder, files)
    say(
        f"{len(files)} files in {folder}, {len(written)} new or changed; docs/containers.md says"
        " what reads them"
    )
