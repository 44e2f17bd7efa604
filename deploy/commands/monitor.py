"""`fab deploy monitor`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.errors import UsageError
from cluster.logs.terminal import say
from deploy.commands.edge import at_the_edge
from deploy.commands.opening import Names, opened_inventory, ssh_cluster

if TYPE_CHECKING:
    from cluster.inventory import Inventory


@at_the_edge
def monitor(context: Any, inventory: str | None = None, set_: Names = None, out: str | None = None) -> None:
    """Watch the cluster with a Prometheus of its own, or with --out write the files for one that exists."""
    # Files are for whoever reads them: this machine may have none of the cluster's addresses.
    opened = opened_inventory(inventory, set_, as_written=out is not None)
    if out is not None:
        _write(opened, Path(out))
    elif opened.connection == "ssh":
        from deploy.commands import ssh_start

        if opened.monitor_node is None:
            raise UsageError(
                f"{opened.path}: no node has the role `monitor`: give it to one, or write the files for a Prometheus "
                "that exists with --out DIR"
            )
        ssh_start.start_monitor(ssh_cluster(opened, set_))
    else:
        _run_here(opened)


def _write(opened: "Inventory", folder: Path) -> None:
    from deploy.monitor.files import all_files, write

    files = all_files(opened)
    written = write(folder, files)
    say(f"{len(files)} files in {folder}, {len(written)} new or changed; docs/monitoring.md says what reads them")


def _run_here(opened: "Inventory") -> None:
    from deploy.common.state_folder import StateFolder
    from deploy.monitor import local_prometheus

    state = StateFolder.beside(opened.path, opened.cluster)
    state.create()
    local_prometheus.run(opened, state.path / "monitor", lambda line: say(line))
