"""`fab init`: an inventory to start from."""

import os
import re
from pathlib import Path
from typing import Any

from cluster.errors import UsageError
from cluster.logs.terminal import say
from deploy.commands.edge import at_the_edge
from deploy.commands.flags import whole_number
from deploy.common.hints import command

LONGEST_NAME = 63
"""Characters of a name in an inventory (`cluster.inventory.fields`)."""


@at_the_edge
def init(
    context: Any,
    local: bool = False,
    workers: str = "2",
    ps: str = "1",
    hosts: str | None = None,
    user: str = "pi",
    out: str | None = None,
    force: bool = False,
) -> None:
    """Write an inventory: --local for processes on this machine, --hosts for machines."""
    if local == bool(hosts):
        raise UsageError(
            "expected one of --local and --hosts, e.g. `fab init --local --workers 2 --out inventory.yaml`"
        )
    from cluster.inventory import templates

    if hosts:
        text = templates.hosts_inventory(hosts, user)
    else:
        counts = whole_number("--workers", workers, 1, 64), whole_number("--ps", ps, 1, 64)
        text = templates.local_inventory(*counts, cluster="local" if out is None else _cluster_name(Path(out)))
    if out is None:
        say(text, end="")
        return
    _write(Path(out), text, force)
    first = "deploy trust" if hosts else "deploy start"
    say(f"wrote {out}; next: {command(first, Path(out))}")


def _cluster_name(file: Path) -> str:
    """The file's stem as far as a cluster's name goes: clusters of one name in one folder would be one cluster."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", file.stem)[:LONGEST_NAME].strip("-_")
    return name or "local"


def _write(path: Path, text: str, force: bool) -> None:
    """Write in one step; an inventory that is there stays unless `force`."""
    if not force:
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError as error:
            raise UsageError(f"{path} exists: --force overwrites it") from error
        return
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
