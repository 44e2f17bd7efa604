"""`fab deploy sbom`: what a release ships to the nodes, without a look at any of them."""

from pathlib import Path

from core.logs.terminal import say
from deploy.commands.action import takes
from deploy.commands.flags import ClusterFlags, path, text
from deploy.commands.opening import open_cluster
from deploy.release.requirements import MACHINES, PYTHONS


class SbomFlags(ClusterFlags):
    """The flags of `deploy sbom`."""

    machine: str = text("kind of the nodes' processor", "aarch64", choices=MACHINES)
    python: str = text("Python of the nodes", "3.11", choices=PYTHONS)
    requirements: str | None = path("file of further packages of an app or a program")
    out: str | None = path("file for the CycloneDX document; else only the licences are listed")


@takes(SbomFlags)
def sbom(flags: SbomFlags) -> None:
    """List the licences of all that a release ships, and write its parts as CycloneDX."""
    from core.atomic_write import atomic_write
    from deploy.release.code_wheel import build_code_wheel
    from deploy.release.extras import Base, locked
    from deploy.release.requirements import Target, committed
    from deploy.release.sbom import by_licence, document, parts_of
    from deploy.release.wheelhouse import make_wheelhouse

    inventory = open_cluster(flags, as_written=True).for_machines("deploy sbom").inventory
    service = bool(inventory.service_nodes)
    cuda = inventory.jobs.train.device.kind == "gpu"
    lists = [committed(cuda=cuda, service=each) for each in sorted({False, service})]
    if flags.requirements is not None:
        base = Base.of_nodes(Target(flags.python, flags.machine), cuda=cuda)
        lists.append(locked(Path(flags.requirements), base).wheelhouse_list())
    houses = [
        make_wheelhouse(each, flags.python, flags.machine, say=lambda line: say(line, error=True))
        for each in lists
    ]
    code = build_code_wheel()
    parts = parts_of(code, houses)
    for licence, names in by_licence(parts).items():
        say(f"{licence}: {', '.join(names)}")
    if flags.out is not None:
        atomic_write(Path(flags.out), document(code, parts).encode())
        say(f"{len(parts)} parts of release {code.key} in {flags.out}")
