"""systemd units of the roles, and the hardening of every unit. Pure."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cluster.control.door import MOST_DESCRIPTORS
from cluster.logs.lines import LogSettings
from cluster.server.options import logging_flags
from deploy.cluster.places import CURRENT, SERVICE_USER, UNIT_FOLDER

if TYPE_CHECKING:
    from cluster.inventory import Inventory, Task


HARDENING = (
    "NoNewPrivileges=yes",
    "CapabilityBoundingSet=",
    "AmbientCapabilities=",
    "ProtectSystem=strict",
    "ProtectHome=yes",
    "PrivateTmp=yes",
    "PrivateMounts=yes",  # mounts of the node, NFS among them, still appear in the unit
    "PrivateDevices=yes",
    "ProtectHostname=yes",
    "ProtectKernelTunables=yes",
    "ProtectKernelModules=yes",
    "ProtectKernelLogs=yes",
    "ProtectControlGroups=yes",
    "ProtectProc=invisible",  # not ProcSubset=pid: memory and processor are read from /proc
    "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK",
    "RestrictNamespaces=yes",
    "RestrictRealtime=yes",
    "RestrictSUIDSGID=yes",
    "LockPersonality=yes",
    "RemoveIPC=yes",
    "SystemCallArchitectures=native",
    "SystemCallFilter=@system-service",
    "SystemCallFilter=~@privileged",
    # Not ProtectClock: it forbids reading the clock's state too. Without CAP_SYS_TIME no process can set the clock.
    "SystemCallFilter=adjtimex clock_adjtime",
    "SystemCallErrorNumber=EPERM",
    "UMask=0027",
)
"""Lines of `[Service]` (systemd.exec(5)). Without MemoryDenyWriteExecute: TensorFlow compiles code while it runs."""


MODULES: Mapping[str, str] = {"ps": "ps_node", "worker": "worker_node"}

WATCHDOG_SECONDS = 20
"""systemd kills a stopped or hung role after this time, within the 30 s in which the engine continues without it.

By SIGKILL: after the default, SIGABRT, systemd sends SIGCONT, and a stopped role computes two more seconds (seen in the
lab) for a coordinator that has dropped it.
"""

BACKOFF_SYSTEMD = 254
_BACKOFF = "RestartSteps=5\nRestartMaxDelaySec=30\n"
_LEAST_THREADS = 16


def unit_name(task: "Task") -> str:
    """`pscluster-worker-3.service`."""
    return f"pscluster-{task.role}-{task.index}.service"


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
    words = " ".join((words, *logging_flags(LogSettings(inventory.logging.format, inventory.logging.level))))
    # Out of memory, a lost worker costs time, a lost parameter server a restart of the job.
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
    """The slice around all roles of a node; it limits their memory where the kernel has a memory controller.

    No MemoryHigh: without swap it frees no memory and only stalls the processes that allocate. One process that grows
    would trip the watchdogs of all others and never be killed itself.
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
    """The addresses that may reach the cluster's processes, as a drop-in of every unit `pscluster-*.service`.

    It is not part of the units, so that a new node in the inventory restarts no role.
    """
    allowed = sorted({*inventory.hosts.values(), *inventory.deployment.allow})
    return f"""\
# Written by pscluster: TensorFlow's port runs any graph from anyone who reaches it.
[Service]
IPAddressDeny=any
IPAddressAllow=localhost {" ".join(allowed)}
"""
