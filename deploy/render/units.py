"""systemd units of roles, jobs and the monitor, from the templates beside this module. Pure."""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from core.control.door import MOST_DESCRIPTORS
from core.logs.lines import LogSettings
from core.server.options import (
    cage_flags,
    device_flags,
    logging_flags,
    peers,
    reach,
    workers_here,
)
from deploy.cluster import places
from deploy.cluster.places import (
    CONFIGURATION,
    DATA,
    STATE,
    UNIT_FOLDER,
    NodePlaces,
    shared_folders,
)
from deploy.common.command_line import filled
from deploy.render.network import fingerprint

if TYPE_CHECKING:
    from core.inventory import Inventory, Task
    from core.inventory.sections import Service

DEVICE_FILES: Mapping[str, str] = {"cpu": "", "gpu": "char-nvidia*", "tpu": "char-accel*"}
"""The files of a kind of device, as systemd names the group that /proc/devices shows."""
MODULES: Mapping[str, str] = {"ps": "ps_node", "worker": "worker_node"}
BACKOFF_SYSTEMD = 254

JOB_UNIT = "pscluster-job@.service"
"""A job on the coordinator's node, by its id."""

NODE_EXPORTER = "prometheus-node-exporter"
"""Debian's package of the node exporter, and its unit."""
MONITOR_PACKAGE = "prometheus"
MONITOR_PACKAGE_UNIT = "prometheus.service"
"""The package's own service, unused: its files stay as Debian ships them."""
MONITOR_UNIT = "pscluster-monitor.service"
"""Debian's Prometheus on the monitor's node, from our folder."""
MONITOR_FOLDER = f"{CONFIGURATION}/monitor"
MONITOR_DATA = f"{STATE}/monitor"
SERVICE_UNIT = "pscluster-service.service"
"""The recognition service of a node with this role."""
SERVICE_DATA = f"{STATE}/service"
"""The folder of its token, versions and certificates: the account's."""
MONITOR_START_SECONDS = 300
"""The time to start: a Pi 3 first replays a write-ahead log of some hours."""


def unit_name(task: "Task") -> str:
    """`pscluster-worker-3.service`."""
    return f"pscluster-{task.role}-{task.index}.service"


def unit_of_job(job: str) -> str:
    """The unit of the job with this id."""
    return JOB_UNIT.replace("@", f"@{job}")


def unit_path(name: str) -> str:
    """The path of a unit's file."""
    return f"{UNIT_FOLDER}/{name}"


def role_unit(
    inventory: "Inventory", task: "Task", systemd: int = 0, key: str | None = None
) -> str:
    """The unit of one parameter server or worker.

    `systemd` is the node's version: 254 and newer can back off. `key` lies on the node: another one
    is another unit, which starts the role again.
    """
    flags = [
        *cage_flags(reads(inventory), reach(inventory)),
        *device_flags(inventory, task),
    ]
    count = workers_here(inventory, task)
    if count is not None:
        flags += ["--workers-here", str(count)]
    flags += logging_flags(LogSettings(inventory.logging.format, inventory.logging.level))
    device_files = ""
    if task.role == "worker":
        device_files = DEVICE_FILES[inventory.jobs.train.device.kind]
    return _filled(
        "role.service.j2",
        inventory,
        task=task,
        module=MODULES[task.role],
        peers=peers(inventory),
        coordinator=inventory.of_role("coordinator")[0].host,
        flags=flags,
        listens=(task.port, task.metrics_port),
        backs_off=systemd >= BACKOFF_SYSTEMD,
        key=None if key is None else fingerprint(key),
        device_files=device_files,
    )


def reads(inventory: "Inventory") -> tuple[str, ...]:
    """Return where roles of a node read windows: its own disk, and what the nodes share.

    The shared folder is named by the one above its mounts, which stays the same folder when they
    come and go. An external export is mounted as a whole, so there it is the one above.
    """
    if inventory.storage is None:
        return (DATA,)
    mount = PurePosixPath(inventory.storage.mount)
    if inventory.storage.server is None and len(mount.parts) > 2:
        mount = mount.parent
    return DATA, str(mount)


def job_unit(inventory: "Inventory", *, coordinates: bool = True, token: bool = False) -> str:
    """Return the unit of jobs, or of a person's program on a node that does not coordinate.

    It names no log: the job opens its log itself, as the account; systemd would open it as root,
    through any link. The drop-in of all units limits its addresses. `systemctl start` returns once
    the job holds the cluster (READY=1), or fails when another job does.
    """
    folders = shared_folders(inventory)
    if coordinates:
        runs, data = (folders.runs_mount, folders.data_mount)
    else:
        runs, data = ("", "")
    # Whatever the inventory's mode: `--mode mirrored` of one job computes there, a run of a sweep
    # on a worker's node.
    device_files = DEVICE_FILES[inventory.jobs.train.device.kind]
    return _filled(
        "job.service.j2",
        inventory,
        of=NodePlaces(),
        runs=runs,
        data=data,
        token=token,
        listens=(),
        device_files=device_files,
    )


def monitor_unit(inventory: "Inventory", memory_controller: bool) -> str:
    """The monitor's unit, up once Prometheus answers a query.

    The drop-in of all units limits its addresses.
    """
    node = inventory.monitor_node
    assert node is not None  # only a node with the monitor gets the unit
    return _filled(
        "monitor.service.j2",
        inventory,
        monitor=inventory.monitor,
        address=f"{inventory.hosts[node]}:{inventory.monitor.port}",
        data=MONITOR_DATA,
        folder=MONITOR_FOLDER,
        start_seconds=MONITOR_START_SECONDS,
        listens=(inventory.monitor.port,),
        memory_controller=memory_controller,
        device_files="",
    )


def service_unit(inventory: "Inventory", node: str, memory_controller: bool) -> str:
    """The service's unit on one node.

    It runs before the first promotion too, and opens its port after that.
    """
    service = inventory.service
    return _filled(
        "service.service.j2",
        inventory,
        service=service,
        node=node,
        pace=pace(service),
        listens=(service.port, service.metrics_port),
        data=SERVICE_DATA,
        memory_controller=memory_controller,
        device_files="",
    )


def pace(service: "Service") -> tuple[str, str]:
    """Return the service's words on batching."""
    return ("--batch-milliseconds", f"{service.batch_milliseconds:.12g}")


def slice_unit(memory_controller: bool) -> str:
    """Return the slice around a node's roles; it limits memory where the kernel can."""
    return filled("render/slice.j2", memory_controller=memory_controller)


def addresses_drop_in(inventory: "Inventory") -> str:
    """Return the addresses that may reach the cluster, as a drop-in of every unit.

    It is not part of the units, so that a new node in the inventory restarts no role.
    """
    allowed = sorted({*inventory.admitted.values(), *inventory.deployment.allow})
    return filled("render/addresses.conf.j2", allowed=allowed)


def _filled(name: str, inventory: "Inventory", **values: object) -> str:
    return filled(
        f"render/{name}",
        inventory=inventory,
        places=places,
        most_descriptors=MOST_DESCRIPTORS,
        **values,
    )
