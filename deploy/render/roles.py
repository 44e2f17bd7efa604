"""systemd units of the roles. Pure."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cluster.control.door import MOST_DESCRIPTORS
from cluster.logs import LogSettings
from cluster.server.options import logging_flags
from deploy.cluster.places import CURRENT, SERVICE_USER, UNIT_FOLDER
from deploy.render.hardening import HARDENING

if TYPE_CHECKING:
    from cluster.inventory import Inventory, Task

MODULES: Mapping[str, str] = {"ps": "ps_node", "worker": "worker_node"}

WATCHDOG_SECONDS = 20
"""A role that is stopped or hung is killed after it, within the 30 s that the engine needs to go on without it.

By SIGKILL: after the default, SIGABRT, systemd sends SIGCONT, and a role that was stopped computes for two more seconds
(seen in the lab) for a coordinator that has gone on without it.
"""

BACKOFF_SYSTEMD = 254
_BACKOFF = "RestartSteps=5\nRestartMaxDelaySec=30\n"
_LEAST_THREADS = 16


def unit_name(task: "Task") -> str:
    """`pscluster-worker-3.service`."""
    return f"pscluster-{task.role}-{task.index}.service"


def unit_path(name: str) -> str:
    """Where a unit's file lies."""
    return f"{UNIT_FOLDER}/{name}"


def peers(inventory: "Inventory") -> int:
    """Workers that a server's thread pool is made for: a power of two from 16 up.

    A server needs a thread for each worker (docs/engine.md). The step leaves room, so that a worker more or less does
    not restart every role.
    """
    return max(_LEAST_THREADS, 1 << (len(inventory.of_role("worker")) - 1).bit_length())


def role_unit(inventory: "Inventory", task: "Task", systemd: int = 0) -> str:
    """The unit of one parameter server or worker. `systemd` is the node's version: from 254 on it can back off."""
    coordinator = inventory.of_role("coordinator")[0]
    words = (
        f"{CURRENT}/environment/bin/python -m {MODULES[task.role]} --task {task.index} --host {task.host} "
        f"--port {task.port} --metrics-port {task.metrics_port} --peers {peers(inventory)} --guard none "
        f"--coordinator {coordinator.host}"
    )
    if inventory.shared_folder is not None:
        words += f" --shared {inventory.shared_folder}"
    words = " ".join((words, *logging_flags(LogSettings(inventory.logging.format, inventory.logging.level))))
    # When a node runs out of memory, a worker costs its time and a parameter server costs a restart of the job.
    score = {"ps": 100, "worker": 300}[task.role]
    return f"""\
# Written by pscluster from the inventory of cluster {inventory.cluster}; `fab deploy start` replaces changes made here.
[Unit]
Description=pscluster {task.name} of cluster {inventory.cluster}
Wants=network-online.target
After=network-online.target pscluster-firewall.service
StartLimitIntervalSec=600
StartLimitBurst=20

[Service]
Type=notify
NotifyAccess=main
User={SERVICE_USER}
WorkingDirectory={CURRENT}
Environment=PYTHONPATH={CURRENT} PYTHONSAFEPATH=1 PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
ExecStart={words}
Restart=always
RestartSec=1
{_BACKOFF if systemd >= BACKOFF_SYSTEMD else ""}TimeoutStartSec=300
TimeoutStopSec=15
WatchdogSec={WATCHDOG_SECONDS}
WatchdogSignal=SIGKILL
SuccessExitStatus=25
RestartForceExitStatus=25
LimitCORE=0
LimitNOFILE={MOST_DESCRIPTORS}
Slice=pscluster.slice
OOMScoreAdjust={score}
TasksMax=1024
{chr(10).join(HARDENING)}

[Install]
WantedBy=multi-user.target
"""


def slice_unit(memory_controller: bool) -> str:
    """The slice around all roles of a node: the memory they may have together, where the kernel can hold them to it.

    No MemoryHigh: without swap it does not bring the slice's memory down, it only stops whoever asks for more, so that
    one process that grows takes all the others' watchdogs with it and is itself never killed.
    """
    limits = "MemoryMax=90%\n" if memory_controller else ""
    return f"""\
# Written by pscluster.
[Unit]
Description=pscluster: everything the cluster runs on this node

[Slice]
{limits}CPUWeight=50
"""


def addresses_drop_in(inventory: "Inventory") -> str:
    """The addresses that may talk to the cluster's processes, as a drop-in of every unit `pscluster-*.service`.

    Apart from the units, so that another node in the inventory changes it without restarting a role.
    """
    allowed = sorted({*inventory.hosts.values(), *inventory.deployment.allow})
    return f"""\
# Written by pscluster: TensorFlow's port runs any graph from anyone who reaches it.
[Service]
IPAddressDeny=any
IPAddressAllow=localhost {" ".join(allowed)}
"""
