"""The dashboard of the whole cluster: a row a node. Pure."""

from deploy.monitor.dashboards.page import Section, page
from deploy.monitor.dashboards.parts import GOOD_IS_ZERO, Query, figure, lines, rows, states, words

_HERE = 'cluster="$cluster"'
_NODES = f'{_HERE}, node=~"$node"'


def _by_node(expression: str) -> str:
    return f"max by (node) ({expression})"


_COLUMNS = (
    ("Processes up", "none", f"sum by (node) (process:pscluster_up:max{{{_NODES}}})"),
    # Of those that "Processes up" counts: a coordinator exists only while a job runs.
    ("Ready", "none", f'sum by (node) (process:pscluster_ready:min{{{_NODES}, process!~"coordinator:.*"}})'),
    (
        "Load per processor",
        "percentunit",
        f"max by (node) (pscluster_node_load1{{{_NODES}}} / pscluster_node_cpus{{{_NODES}}})",
    ),
    ("Memory left", "percentunit", f"min by (node) (node:pscluster_node_memory_available:ratio{{{_NODES}}})"),
    ("Temperature", "celsius", _by_node(f"pscluster_node_temperature_celsius{{{_NODES}}}")),
    # Each process of a node reports the same conditions.
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


def _now() -> Section:
    return "Now", (
        figure("Processes up", "none", "Parameter servers and workers whose metrics port answers.",
               Query(f"sum(process:pscluster_up:max{{{_HERE}}})")),
        figure("Processes down", "none", "Those whose metrics port does not answer.", thresholds=GOOD_IS_ZERO,
               query=Query(f"count(process:pscluster_up:max{{{_HERE}}}) - "
                           f"sum(process:pscluster_up:max{{{_HERE}}})")),
        words("Job", "The coordinator's run, while a job runs.",
              Query(f"pscluster_job_info{{{_HERE}}}"), "run"),
        figure("Done", "percentunit", "Share of the job's present stage that is done.",
               Query(f"max(pscluster_job_progress_ratio{{{_HERE}}})")),
        figure("Time left", "s", "The job's own estimate.",
               Query(f"max(pscluster_job_remaining_seconds{{{_HERE}}})"), width=6),
    )  # fmt: skip


def _nodes() -> Section:
    return "Nodes", (
        rows("A row a node", "Present values, without the coordinator's process. A column without a value stays empty: "
             "only a Pi reports throttling, only a shared folder on NFS has a state.", "node", _COLUMNS),
    )  # fmt: skip


def _over_time() -> Section:
    return "Over time", (
        states("Processes", "none", "Whether each process is ready to work.",
               Query(f"process:pscluster_ready:min{{{_NODES}}}", "{{process}} {{node}}"), names=_UP),
        lines("Load", "percentunit", "Runnable threads per processor; above 100 % threads wait.",
              Query(f"max by (node) (pscluster_node_load1{{{_NODES}}} / pscluster_node_cpus{{{_NODES}}})",
                    "{{node}}")),
        lines("Memory left", "percentunit", "Memory available without swapping.",
              Query(f"node:pscluster_node_memory_available:ratio{{{_NODES}}}", "{{node}}")),
        lines("Network", "Bps", "What the cluster's processes of a node receive.",
              Query("sum by (node) (rate("
                    f"pscluster_network_receive_bytes_total{{{_NODES}}}[$__rate_interval]))", "{{node}}")),
        lines("Temperature", "celsius", "The processor's sensor; a Pi slows down from 80 °C on.",
              Query(f"max by (node) (pscluster_node_temperature_celsius{{{_NODES}}})", "{{node}}"),
              from_zero=False),
        lines("Workers by state", "none", "Workers in each state, as the coordinator sees them.",
              Query(f"sum by (state) (pscluster_worker_state{{{_HERE}}})", "{{state}}"), stacked=True),
        lines("Workers that left", "none", "Times a worker left the job, over a quarter of an hour.",
              Query(f"sum by (task) (increase(pscluster_worker_departures_total{{{_HERE}}}[15m]))",
                    "worker:{{task}}")),
    )  # fmt: skip


def overview() -> str:
    """The dashboard as JSON."""
    return page(
        "pscluster-overview",
        "pscluster: cluster",
        "Health and work of every node of the cluster.",
        (_now(), _nodes(), _over_time()),
        nodes="many",
    )
