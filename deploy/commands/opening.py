"""From the flags of a command to its cluster, as the command has it open.

`open_cluster` alone asks for the kind of an inventory's connection.

The inventory is that of --inventory, then of $PSCLUSTER_INVENTORY, then ./inventory.yaml; a job
that needs no cluster gets one in the state folder. Its name is said first.
"""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from core.ground.errors import UsageError
from core.ground.files import atomic_write
from core.logs import say
from deploy.cluster.services import select_nodes
from deploy.commands.action import end_degraded
from deploy.commands.flags import ClusterFlags, Names
from deploy.common.state_folder import StateFolder

if TYPE_CHECKING:
    from core.inventory import Inventory
    from deploy.cluster.cluster import ManagedCluster
    from deploy.cluster.login import TunnelKeys
    from deploy.commands.flags import Names
    from deploy.commands.views import View
    from deploy.converge.deployment import Desired
    from deploy.converge.publication import JobData
    from deploy.jobs.services import JobServices


ALONE_NAME = "single"
ALONE_ORIGIN = (
    "written for this job, which needs no cluster; --inventory FILE takes the settings of another"
)


def inventory_alone(job: str, overrides: Names, folder: Path) -> Path | None:
    """Write the inventory of a job without roles below `folder`; None where it needs roles.

    Its settings are those of `fab init --local`. Raises InventoryError for overrides that do not
    fit, ClusterError where the state folder cannot be written.
    """
    from core.inventory import this_machine
    from core.inventory.loading import loads
    from core.inventory.templates import local_inventory

    state = StateFolder.of(folder / "inventory.yaml", ALONE_NAME)
    path = state.path / "inventory.yaml"
    text = local_inventory(1, 1, cluster=ALONE_NAME)
    inventory = loads(text, str(path), overrides, path=path, machine=this_machine())
    if inventory.needs_roles(job):
        return None
    state.create()
    atomic_write(path, text.encode())
    return path


@dataclass(frozen=True)
class OpenCluster:
    """One cluster for the whole of a command: nodes, services, jobs, data and view.

    `monitor` watches it with a Prometheus of its own. `has_machines`: actions such as `push` mean
    something.
    """

    cluster: "ManagedCluster"
    jobs: "JobServices"
    data: "JobData"
    view: "View"
    desired: "Callable[[], Desired]"
    monitor: "Callable[[OpenCluster], None]"
    has_machines: bool
    keys: "TunnelKeys | None" = None
    """The nodes' public keys of WireGuard; None where there are no machines."""

    @property
    def inventory(self) -> "Inventory":
        """The cluster's inventory."""
        return self.cluster.inventory

    def replace_keys(self, names: "Names") -> None:
        """Let these nodes make new keys of WireGuard. Raises UsageError where none are used."""
        if self.keys is None or not self.inventory.encrypted:
            raise UsageError("--new-keys: only nodes with `transport: wireguard` have keys")
        self.keys.replace(select_nodes(self.inventory, names))

    def for_machines(self, action: str) -> "OpenCluster":
        """This cluster, for an action of machines.

        Raises UsageError where every role is a process of this machine.
        """
        if not self.has_machines:
            raise UsageError(
                f"{self.inventory.path}: connection: local: `{action}` is for machines reached over"
                " SSH; here every role is a process of this machine: name another file with"
                " --inventory, such as one of `fab init --hosts`"
            )
        return self

    def operator(self, action: str) -> "AbstractContextManager[Sequence[str]]":
        """Keep other operators' actions from the nodes meanwhile; gives the jobs that run there.

        Processes of this machine have a supervisor, which takes one command after the other.
        """
        if not self.has_machines:
            pid = self.jobs.running_job()
            return nullcontext(() if pid is None else (f"(fab, pid {pid})",))
        from deploy.converge.coordinator import only_operator

        return only_operator(self.cluster, action)


def run_phases(
    opened: OpenCluster, action: str, limit: "Names", phases: tuple[str, ...], *, with_data: bool
) -> None:
    """A part of a start; the command ends degraded where a node failed."""
    from deploy.converge.deployment import DeploymentRequest, converge

    if with_data:
        publications = opened.data.publications
    else:
        publications = None
    order = DeploymentRequest(action, select_nodes(opened.inventory, limit), phases, publications)
    with opened.operator(action), opened.cluster.fleet() as fleet:
        with opened.view.progress(quiet=False) as progress:
            result = converge(opened.cluster, fleet, opened.desired(), order, progress)
        opened.view.result(result, fleet, idle_said=False)
    if result.recap.failures or not result.whole:
        end_degraded()


def monitor_on_its_node(opened: OpenCluster) -> None:
    """The part of a start that concerns the monitor's node. Raises UsageError without one."""
    from deploy.converge.deployment import MONITOR_PHASES
    from deploy.converge.monitor import MONITOR_PASSWORD
    from deploy.monitor.files import url
    from deploy.monitor.ready import USER

    node = opened.inventory.monitor_node
    if node is None:
        raise UsageError(
            f"{opened.inventory.path}: no node has the role `monitor`: give it to one, or write the"
            " files for a Prometheus that exists with --out DIR"
        )
    run_phases(opened, "monitor", (node,), MONITOR_PHASES, with_data=False)
    say(
        f"Prometheus: {url(opened.inventory)} (user {USER}; root of {node} reads its password in"
        f" {MONITOR_PASSWORD})"
    )


def monitor_here(opened: OpenCluster) -> None:
    """A Prometheus in the foreground."""
    from deploy.monitor.files import run_prometheus

    state = opened.cluster.folder
    state.create()
    run_prometheus(opened.inventory, state.path / "monitor", lambda line: say(line))


ENVIRONMENT = "PSCLUSTER_INVENTORY"
DEFAULT = "inventory.yaml"
EXAMPLE_SHA256 = "84c69653b0dc9d8ffbb99c354a8674df804c0527a1b72aba06c78ec09c5462e1"
"""The hash of the shipped `inventory.yaml`; a test compares the two."""


def choose(flag: str | None, environ: Mapping[str, str], folder: Path) -> tuple[Path, str]:
    """The inventory file of this call, and what named it. Raises UsageError when nothing does."""
    if flag == "":  # as `--inventory=$UNSET` is
        raise UsageError("--inventory: expected a file, got an empty name")
    if flag is not None:
        return Path(flag), "--inventory"
    if environ.get(ENVIRONMENT):
        return Path(environ[ENVIRONMENT]), f"${ENVIRONMENT}"
    if (folder / DEFAULT).exists():
        if is_example(folder / DEFAULT):
            example = ", the example that pscluster ships"
        else:
            example = ""
        return Path(DEFAULT), f"./{DEFAULT}{example}"
    raise UsageError(
        f"no inventory: expected --inventory FILE, ${ENVIRONMENT} or ./{DEFAULT}; "
        "`fab init --local --out inventory.yaml` writes one"
    )


def is_example(path: Path) -> bool:
    """Return whether a file is the inventory of Pis that pscluster ships, unchanged.

    No such machines exist.
    """
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() == EXAMPLE_SHA256
    except OSError:
        return False


def is_named(flags: ClusterFlags) -> bool:
    """Return whether a flag, a variable or a person's own ./inventory.yaml names an inventory."""
    if flags.inventory is not None or os.environ.get(ENVIRONMENT):
        return True
    return Path(DEFAULT).exists() and not is_example(Path(DEFAULT))


def open_inventory(
    flags: ClusterFlags, as_written: bool = False, alone: Path | None = None
) -> "Inventory":
    """Load the inventory of this call, and say it (on stderr for programs).

    `alone` is the file of a job that needs no cluster and for which no inventory was named.

    `as_written` holds no address against this machine: a cluster whose cable was pulled can be
    stopped. Raises UsageError, also the inventory's own with all of its problems.
    """
    # pydantic takes half a second on a Pi: not for `fab --list`
    from core.inventory import load, located, this_machine
    from deploy.cluster.cluster import known_hosts_of, with_trusted_addresses

    if alone:
        file = alone
        why = ALONE_ORIGIN
    else:
        file, origin = choose(flags.inventory, os.environ, Path.cwd())
        why = f"from {origin}"
    machine = replace(this_machine(), resolves_nodes=False)
    inventory = load(file, flags.set_, check_interfaces=not as_written, machine=machine)
    if as_written:
        inventory = located(inventory, machine)
    inventory = with_trusted_addresses(inventory, known_hosts_of(inventory))
    say(f"cluster {inventory.cluster}: {file} ({why})", error=flags.for_programs)
    return inventory


def open_cluster(
    flags: ClusterFlags,
    as_written: bool = False,
    loaded: "Inventory | None" = None,
    alone: Path | None = None,
) -> OpenCluster:
    """The cluster of this call; see `open_inventory`. Raises UsageError.

    `loaded` is the inventory with the overrides of the flags, where the caller has it.
    """
    opened = loaded or open_inventory(flags, as_written, alone)
    kinds = {"local": _this_machine, "ssh": _machines}
    return kinds[opened.connection](opened, flags.set_)


def _this_machine(inventory: "Inventory", overrides: Names) -> OpenCluster:
    from deploy.cluster.cluster import local_cluster
    from deploy.commands.views import ViewOfThisMachine
    from deploy.converge.publication import DataHere
    from deploy.converge.this_machine import ThisMachine
    from deploy.jobs.services import ForegroundJobs
    from deploy.supervisor.services import Supervised

    services = Supervised(inventory, overrides)
    cluster = local_cluster(inventory, overrides, services)
    jobs = ForegroundJobs(cluster, lambda: services.restart_in_place(()))
    view = ViewOfThisMachine(cluster, jobs)
    desired = cache(lambda: ThisMachine(inventory, services))
    return OpenCluster(
        cluster, jobs, DataHere(inventory), view, desired, monitor_here, has_machines=False
    )


def _machines(inventory: "Inventory", overrides: Names) -> OpenCluster:
    from deploy.cluster.cluster import over_ssh
    from deploy.cluster.login import TUNNEL_KEYS_FILE, TunnelKeys
    from deploy.commands.views import ViewOfMachines
    from deploy.converge.code import NodeExtras, ReleaseChoice
    from deploy.converge.desired import Machines
    from deploy.converge.publication import PublishedData
    from deploy.converge.systemd import Systemd
    from deploy.jobs.attached_job import SubmittedJobs

    if inventory.storage is None:
        raise UsageError(
            f"{inventory.path}: no section `storage`: the nodes share data and runs through it; add"
            " `storage: {server: NODE}` and give that node the role storage"
        )
    cluster = over_ssh(inventory, overrides, Systemd(inventory))
    cuda = inventory.jobs.train.device.kind == "gpu"
    keys = TunnelKeys(cluster.folder.path / TUNNEL_KEYS_FILE)
    machines = cache(
        lambda: Machines(inventory, ReleaseChoice.of_this_checkout(cuda=cuda), keys=keys)
    )  # it takes a second
    data = PublishedData(inventory)
    view = ViewOfMachines(cluster, machines)
    jobs = SubmittedJobs(cluster, data.bring, NodeExtras(inventory).bring)
    return OpenCluster(
        cluster, jobs, data, view, machines, monitor_on_its_node, has_machines=True, keys=keys
    )
