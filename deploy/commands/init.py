"""`fab init`: an inventory to start from."""

import os
import re
from pathlib import Path

from core.ground.errors import UsageError
from core.logs import say
from deploy.commands.action import takes
from deploy.commands.flags import ActionFlags, number, path, switch, text
from deploy.common.command_line import command

DEFAULT_NAME = "local"
LONGEST_NAME = 63
"""Characters of a name in an inventory (`core.inventory.fields`)."""


MOST_ROLES = 64


class InitFlags(ActionFlags):
    """The flags of `init`."""

    local: bool = switch("a cluster of processes on this machine")
    workers: int = number("how many workers of --local; 2", 1, MOST_ROLES, 2)
    ps: int = number("how many parameter servers of --local; 1", 1, MOST_ROLES, 1)
    hosts: str | None = text("a cluster of machines: addresses and ranges, e.g. 192.168.1.16-31")
    user: str = text("account on every host; pi", "pi")
    out: str | None = path("file to write; else the inventory is printed")
    force: bool = switch("overwrite the file")


@takes(InitFlags)
def init(flags: InitFlags) -> None:
    """Write an inventory: --local for processes on this machine, --hosts for machines."""
    if flags.local == bool(flags.hosts):
        raise UsageError(
            "expected one of --local and --hosts, e.g. `fab init --local --workers 2 --out"
            " inventory.yaml`"
        )
    from core.inventory import templates

    if flags.hosts:
        inventory_text = templates.hosts_inventory(flags.hosts, flags.user)
    else:
        cluster = _cluster_name(Path(flags.out or DEFAULT_NAME))
        inventory_text = templates.local_inventory(
            flags.workers, flags.ps, cluster=cluster, recipe="unseen"
        )
    if flags.out is None:
        say(inventory_text, end="")
        return
    out = Path(flags.out)
    _write(out, inventory_text, flags.force)
    if flags.hosts:
        first = "deploy trust"
    else:
        first = "deploy start"
    say(f"wrote {out}; next: {command(first, out)}")


def _cluster_name(file: Path) -> str:
    """Return the file's stem as far as it can be a cluster's name.

    Clusters of one name in one folder would be one cluster.
    """
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", file.stem)[:LONGEST_NAME].strip("-_")
    return name or DEFAULT_NAME


def _write(path: Path, text: str, force: bool) -> None:
    """Write in one step; an inventory that is there stays unless `force`."""
    if not force and os.path.lexists(path):
        raise UsageError(f"{path} exists: --force overwrites it")
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
