"""The dashboard of the whole cluster: a row a node. Pure."""

from deploy.monitor.dashboards.page import page
from deploy.monitor.dashboards.parts import GOOD_IS_ZERO, Query, figure, lines, rows, states, words

UID = "pscluster-overview"
_HERE = 'cluster="$cluster"'
_NODES = f'{_HERE}, node=~"$node"'


def _by_node(expression: str) -> str:
    return f"max by (node) ({expression})"


_COLUMNS = (
    ("Processes up", "none", f"sum by (node) (process:pscluster_up:max{{{_NODES}}})"),
    # Of those that "Processes up" counts: a coordinator is there for the time of a job only.
    ("Ready", "none", f'sum by (node) (process:pscluster_ready:min{{{_NODES}, process!~"coordinator:.*"}})'),
    (
        "Load per processor",
        "percentunit",
        f"max by (node) (pscluster_node_load1{{{_NODES}}} / pscluster_node_cpus{{{_NODES}}})",
    ),
    ("Memory left", "percentunit", f"min by (node) (node:pscluster_node_memory_available:ratio{{{_NODES}}})"),
    ("Temperature", "celsius", _by_node(f"pscluster_node_temperature_celsius{{{_NODES}}}")),
    # Each process of a node tells of the same conditions.
    (
        "Throttled now",
        "none",
        f'sum by (node) (max by (node, condition) (pscluster_node_throttled{{{_NODES}, since="now"}}))',
    ),
    (
        "Receives",
        "Bps",
        f"sum by (node) (rate(pscluster_network_receive_bytes_total{{{_NODES}}}[$__rate_interval]))",
    ),
    (
        "Sends",
        "Bps",
        f"sum by (node) (rate(pscluster_network_transmit_bytes_total{{{_NODES}}}[$__rate_interval]))",
    ),
    ("Disk left", "percentunit", f"min by (node) (node:pscluster_node_filesystem_available:ratio{{{_NODES}}})"),
    ("Shared folder", "none", f"min by (node) (node:pscluster_node_nfs_up:min{{{_NODES}}})"),
    ("Clock off", "s", _by_node(f"node:pscluster_node_clock_apart_seconds:abs{{{_NODES}}}")),
)

_UP = {"0": ("not ready", "red"), "1": ("ready", "green")}


def overview() -> str:
    """The dashboard as JSON."""
    return page(
        UID,
        "pscluster: cluster",
        "What every node of the cluster is and does.",
        (
            (
                "Now",
                (
                    figure("Processes up", "none", "Parameter servers and workers whose metrics port answers.",
                           Query(f"sum(process:pscluster_up:max{{{_HERE}}})")),
                    figure("Processes down", "none", "Those that do not answer.", thresholds=GOOD_IS_ZERO,
                           query=Query(f"count(process:pscluster_up:max{{{_HERE}}}) - "
                                       f"sum(process:pscluster_up:max{{{_HERE}}})")),
                    words("Job", "The run that the coordinator works on, while there is one.",
                          Query(f"pscluster_job_info{{{_HERE}}}"), "run"),
                    figure("Done", "percentunit", "Share of the job's present stage that is done.",
                           Query(f"max(pscluster_job_progress_ratio{{{_HERE}}})")),
                    figure("Time left", "s", "The job's own estimate.",
                           Query(f"max(pscluster_job_remaining_seconds{{{_HERE}}})"), width=6),
                ),
            ),
            ("Nodes", (
                rows("A row a node", "Figures as they are now, processes without the coordinator. A column that a node "
                     "has nothing for stays empty: throttling is told by a Pi only, the shared folder only where it is "
                     "on NFS.", "node", _COLUMNS),
            )),
            (
                "Over time",
                (
                    states("Processes", "none", "Whether each process is ready to work.",
                           Query(f"process:pscluster_ready:min{{{_NODES}}}", "{{process}} {{node}}"), names=_UP),
                    lines("Load", "percentunit", "Runnable threads per processor; above 100 % somebody waits.",
                          Query(f"max by (node) (pscluster_node_load1{{{_NODES}}} / pscluster_node_cpus{{{_NODES}}})",
                                "{{node}}")),
                    lines("Memory left", "percentunit", "Memory that can be had without swapping.",
                          Query(f"node:pscluster_node_memory_available:ratio{{{_NODES}}}", "{{node}}")),
                    lines("Network", "Bps", "What the cluster's processes of a node receive.",
                          Query("sum by (node) (rate("
                                f"pscluster_network_receive_bytes_total{{{_NODES}}}[$__rate_interval]))", "{{node}}")),
                    lines("Temperature", "celsius", "The processor's sensor; a Pi slows down from 80 °C on.",
                          Query(f"max by (node) (pscluster_node_temperature_celsius{{{_NODES}}})", "{{node}}"),
                          from_zero=False),
                    lines("Workers by state", "none", "How many workers the coordinator sees in each state.",
                          Query(f"sum by (state) (pscluster_worker_state{{{_HERE}}})", "{{state}}"), stacked=True),
                    lines("Workers that left", "none", "Times a worker left the job, over a quarter of an hour.",
                          Query(f"sum by (task) (increase(pscluster_worker_departures_total{{{_HERE}}}[15m]))",
                                "worker:{{task}}")),
                ),
            ),
        ),
        nodes="many",
    )  # fmt: skip
