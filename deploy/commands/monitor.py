"""`fab deploy monitor`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.errors import UsageError
from cluster.logs.terminal import say
from deploy.commands.edge import at_the_edge
from deploy.commands.machine_actions import run_phases
from deploy.commands.opening import Names, Opened, open_cluster, opened_inventory

if TYPE_CHECKING:
    from cluster.inventory import Inventory


@at_the_edge
def monitor(context: Any, inventory: str | None = None, set_: Names = None, out: str | None = None) -> None:
    """Watch the cluster with a Prometheus of its own, or with --out write the files for one that exists."""
    if out is not None:
        # Files are for another Prometheus: this machine may have none of the cluster's addresses.
        _write(opened_inventory(inventory, set_, as_written=True), Path(out))
    else:
        open_cluster(inventory, set_).monitor()


def run_on_its_node(opened: Opened) -> None:
    """The part of a start that concerns the monitor's node. Raises UsageError without one."""
    from deploy.converge.deployment import MONITOR_PHASES
    from deploy.monitor.files import url

    node = opened.inventory.monitor_node
    if node is None:
        raise UsageError(
            f"{opened.inventory.path}: no node has the role `monitor`: give it to one, or write the files for a "
            "Prometheus that exists with --out DIR"
        )
    run_phases(opened, "monitor", (node,), MONITOR_PHASES, with_data=False)
    say(f"Prometheus: {url(opened.inventory)}")


def _write(opened: "Inventory", folder: Path) -> None:
    from deploy.monitor.files import all_files, write

    files = all_files(opened)
    written = write(folder, files)
    say(f"{len(files)} files in {folder}, {len(written)} new or changed; docs/monitoring.md says what reads them")


def run_here(opened: Opened) -> None:
    """A Prometheus in the foreground."""
    from deploy.monitor import local_prometheus

    state = opened.cluster.folder
    state.create()
    local_prometheus.run(opened.inventory, state.path / "monitor", lambda line: say(line))
