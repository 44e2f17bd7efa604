"""`pscluster-monitor.service`: Debian's Prometheus on the monitor's node, from our folder. Pure."""

from typing import TYPE_CHECKING

from cluster.control.door import MOST_DESCRIPTORS
from deploy.cluster.places import CONFIGURATION, SERVICE_USER, STATE, UNIT_FOLDER
from deploy.render.roles import HARDENING

if TYPE_CHECKING:
    from cluster.inventory import Inventory

PACKAGE = "prometheus"
PACKAGE_UNIT = "prometheus.service"
"""The package's own service, unused: its files stay as Debian ships them."""
MONITOR_UNIT = "pscluster-monitor.service"
PATH = f"{UNIT_FOLDER}/{MONITOR_UNIT}"
FOLDER = f"{CONFIGURATION}/monitor"
DATA = f"{STATE}/monitor"
START_SECONDS = 300
"""A Pi 3 first replays a write-ahead log of some hours."""
_GARBAGE_SHARE = 0.8
"""Share of its memory above which Go collects more often instead of growing."""


def monitor_unit(inventory: "Inventory", memory_controller: bool) -> str:
    """The unit's content. The drop-in of all units limits its addresses.

    The unit is up once Prometheus answers a query.
    """
    monitor = inventory.monitor
    node = inventory.monitor_node
    assert node is not None  # only a node with the monitor gets the unit
    address = f"{inventory.hosts[node]}:{monitor.port}"
    limit = f"MemoryMax={monitor.memory_megabytes}M\n" if memory_controller else ""
    garbage_megabytes = round(_GARBAGE_SHARE * monitor.memory_megabytes)
    return f"""\
# Written by pscluster from the inventory of cluster {inventory.cluster}; `fab deploy start` replaces changes made here.
[Unit]
Description=pscluster monitor (Prometheus) of cluster {inventory.cluster}
Wants=network-online.target
After=network-online.target pscluster-firewall.service
RequiresMountsFor={DATA}
StartLimitIntervalSec=600
StartLimitBurst=20

[Service]
Type=exec
User={SERVICE_USER}
Environment=GOMEMLIMIT={garbage_megabytes}MiB
ExecStartPre=/usr/bin/promtool check config {FOLDER}/prometheus.yml
ExecStart=/usr/bin/prometheus --config.file={FOLDER}/prometheus.yml --storage.tsdb.path={DATA} \
--storage.tsdb.retention.time={monitor.retention_days}d --storage.tsdb.retention.size={monitor.retention_megabytes}MB \
--web.listen-address={address} --log.level=warn
ExecStartPost=/bin/sh -c 'until /usr/bin/promtool query instant http://{address} 1 >/dev/null 2>&1; do sleep 1; done'
ExecReload=/usr/bin/promtool check config {FOLDER}/prometheus.yml
ExecReload=/bin/kill -HUP $MAINPID
Restart=always
RestartSec=5
TimeoutStartSec={START_SECONDS}
TimeoutStopSec=60
LimitCORE=0
LimitNOFILE={MOST_DESCRIPTORS}
Slice=pscluster.slice
{limit}# The first to go where a node runs out of memory: it only watches.
OOMScoreAdjust=500
TasksMax=256
{chr(10).join(HARDENING)}
ReadWritePaths={DATA}

[Install]
WantedBy=multi-user.target
"""
