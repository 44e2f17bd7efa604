"""systemd units of roles, jobs and the monitor, from the templates beside this module. Pure."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cluster.control.door import MOST_DESCRIPTORS
from cluster.logs.lines import LogSettings
from cluster.server.options import device_flags, logging_flags
from deploy.cluster import places
from deploy.cluster.places import CONFIGURATION, CURRENT, STATE, UNIT_FOLDER, NodePlaces, shared_folders
from deploy.common.texts import filled

if TYPE_CHECKING:
    from cluster.inventory import Inventory, Task
    from cluster.inventory.schema import Service

DEVICE_FILES: Mapping[str, str] = {"cpu": "", "gpu": "char-nvidia*", "tpu": "char-accel*"}
"""The files of a kind of device, as systemd names the group that /proc/devices shows."""
MODULES: Mapping[str, str] = {"ps": "ps_node", "worker": "worker_node"}
BACKOFF_SYSTEMD = 254
_LEAST_THREADS = 16

JOB_UNIT = "pscluster-job@.service"
"""A job on the coordinator's node, by its id."""

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
"""Its token, its versions and its certificates: the account's."""
MONITOR_START_SECONDS = 300
"""A Pi 3 first replays a write-ahead log of some hours."""


def unit_name(task: "Task") -> str:
    """`pscluster-worker-3.service`."""
    return f"pscluster-{task.role}-{task.index}.service"


def unit_of_job(job: str) -> str:
    """The unit of the job with this id."""
    return JOB_UNIT.replace("@", f"@{job}")


def unit_path(name: str) -> str:
    """The path of a unit's file."""
    return f"{UNIT_FOLDER}/{name}"


def peers(inventory: "Inventory") -> int:
    """The number of workers that a server's thread pool allows: a power of two, at least 16.

    A server needs a thread for each worker (docs/engine.md). The power of two leaves room, so that one worker more
    does not restart every role.
    """
    return max(_LEAST_THREADS, 1 << (len(inventory.of_role("worker")) - 1).bit_length())


def role_unit(inventory: "Inventory", task: "Task", systemd: int = 0) -> str:
    """The unit of one parameter server or worker. `systemd` is the node's version: 254 and newer can back off."""
    coordinator = inventory.of_role("coordinator")[0]
    words = (
        f"{CURRENT}/environment/bin/python -m {MODULES[task.role]} --task {task.index} --host {task.host} "
        f"--port {task.port} --metrics-port {task.metrics_port} --peers {peers(inventory)} --guard none "
        f"--coordinator {coordinator.host}"
    )
    if inventory.shared_folder is not None:
        words += f" --shared {inventory.shared_folder}"
    words = " ".join((words, *device_flags(inventory, task)))
    words = " ".join((words, *logging_flags(LogSettings(inventory.logging.format, inventory.logging.level))))
    return _filled(
        "role.service.j2", inventory, task=task, words=words, backs_off=systemd >= BACKOFF_SYSTEMD,
        device_files=DEVICE_FILES[inventory.jobs.train.device.kind] if task.role == "worker" else "",
    )  # fmt: skip


def job_unit(
    inventory: "Inventory",
    of: NodePlaces = NodePlaces(),  # noqa: B008  frozen
    *,
    coordinates: bool = True,
) -> str:
    """The unit of jobs; on a node that does not coordinate, that of the part which a person's program has there.

    It names no log: the job opens its log itself, as the account; systemd would open it as root, through any link. The
    drop-in of all units limits its addresses. `systemctl start` returns once the job holds the cluster (READY=1), or
    fails when another job does.
    """
    folders = shared_folders(inventory)
    runs, data = (folders.runs_mount, folders.data_mount) if coordinates else ("", "")
    # Whatever the inventory's mode: `--mode mirrored` of one job computes there, a run of a sweep on a worker's node.
    device_files = DEVICE_FILES[inventory.jobs.train.device.kind]
    return _filled("job.service.j2", inventory, of=of, runs=runs, data=data, device_files=device_files)


def monitor_unit(inventory: "Inventory", memory_controller: bool) -> str:
    """The monitor's unit, up once Prometheus answers a query. The drop-in of all units limits its addresses."""
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
        memory_controller=memory_controller,
        device_files="",
    )


def service_unit(inventory: "Inventory", node: str, memory_controller: bool) -> str:
    """The service's unit on one node. It runs before the first promotion too, and opens its port after that."""
    service = inventory.service
    words = (
        f"{CURRENT}/environment/bin/python -m recognise.service --state {SERVICE_DATA} --name {service.model} "
        f"--listen {inventory.hosts[node]} --port {service.port} --metrics-port {service.metrics_port} "
        f"--threads {service.threads} {' '.join(pace(service))} --wait"
    )
    words += "".join(f" --host-name {name}" for name in service.names)
    if service.certificate is not None:
        words += " --certificate ${CREDENTIALS_DIRECTORY}/certificate --key ${CREDENTIALS_DIRECTORY}/key"
    elif service.tls:
        words += " --tls"
    return _filled(
        "service.service.j2",
        inventory,
        service=service,
        words=words,
        data=SERVICE_DATA,
        memory_controller=memory_controller,
        device_files="",
    )


def pace(service: "Service") -> tuple[str, ...]:
    """Words of the service on how long requests wait for others, and how a promoted version is compared."""
    given = {
        "--batch-milliseconds": service.batch_milliseconds,
        "--shadow-seconds": service.shadow_seconds,
        "--least-agreement": service.least_agreement,
    }
    return tuple(word for flag, value in given.items() for word in (flag, f"{value:.12g}"))


def slice_unit(memory_controller: bool) -> str:
    """The slice around all roles of a node; it limits their memory where the kernel has a memory controller."""
    return filled("render/slice.j2", memory_controller=memory_controller)


def addresses_drop_in(inventory: "Inventory") -> str:
    """The addresses that may reach the cluster's processes, as a drop-in of every unit `pscluster-*.service`.

    It is not part of the units, so that a new node in the inventory restarts no role.
    """
    allowed = sorted({*inventory.hosts.values(), *inventory.deployment.allow})
    return filled("render/addresses.conf.j2", allowed=allowed)


def _filled(name: str, inventory: "Inventory", **values: object) -> str:
    return filled(f"render/{name}", inventory=inventory, places=places, most_descriptors=MOST_DESCRIPTORS, **values)
