"""`fab init`: an inventory to start from."""

import os
import re
from pathlib import Path

from cluster.errors import UsageError
from cluster.logs.terminal import say
from deploy.commands.edge import takes
from deploy.commands.flags import Flags, whole_number
from deploy.common.command_line import command

LONGEST_NAME = 63
"""Characters of a name in an inventory (`cluster.inventory.fields`)."""


@takes("local workers ps hosts user out force")
def init(flags: Flags) -> None:
    """Write an inventory: --local for processes on this machine, --hosts for machines."""
    if flags.local == bool(flags.hosts):
        raise UsageError(
            "expected one of --local and --hosts, e.g. `fab init --local --workers 2 --out inventory.yaml`"
        )
    from cluster.inventory import templates

    if flags.hosts:
        text = templates.hosts_inventory(flags.hosts, flags.user)
    else:
        counts = whole_number("--workers", flags.workers, 1, 64), whole_number("--ps", flags.ps, 1, 64)
        text = templates.local_inventory(
            *counts, cluster="local" if flags.out is None else _cluster_name(Path(flags.out))
        )
    if flags.out is None:
        say(text, end="")
        return
    out = Path(flags.out)
    _write(out, text, flags.force)
    first = "deploy trust" if flags.hosts else "deploy start"
    say(f"wrote {out}; next: {command(first, out)}")


def _cluster_name(file: Path) -> str:
    """The file's stem as far as a cluster's name goes: clusters of one name in one folder would be one cluster."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", file.stem)[:LONGEST_NAME].strip("-_")
    return name or "local"


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
