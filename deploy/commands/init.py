"""`fab init`: an inventory to start from."""

import os
from pathlib import Path
from typing import Any

from cluster.errors import UsageError
from deploy.commands.edge import at_the_edge
from deploy.commands.flags import whole_number


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
        text = templates.local_inventory(whole_number("--workers", workers, 1, 64), whole_number("--ps", ps, 1, 64))
    if out is None:
        print(text, end="")
        return
    _write(Path(out), text, force)
    print(f"wrote {out}; next: fab deploy start --inventory {out}")


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
