"""The dashboard of one node. Pure."""

from deploy.monitor.dashboards.page import page
from deploy.monitor.dashboards.parts import Query, figure, lines, rows, states, words

UID = "pscluster-node"
_HERE = 'cluster="$cluster", node="$node"'


def _node(name: str, more: str = "", how: str = "max") -> str:
    return f"{how} by (node) (pscluster_node_{name}{{{_HERE}{more}}})"


def _rate(name: str) -> str:
    return f"sum by (process) (rate(pscluster_{name}{{{_HERE}}}[$__rate_interval]))"


_PROCESSES = (
    ("Ready", "none", f"sum by (process) (pscluster_ready{{{_HERE}}})"),
    ("Own memory", "bytes", f"sum by (process) (pscluster_process_anonymous_bytes{{{_HERE}}})"),
    ("Files mapped", "bytes", f"sum by (process) (pscluster_process_file_backed_bytes{{{_HERE}}})"),
    ("Swapped out", "bytes", f"sum by (process) (pscluster_process_swap_bytes{{{_HERE}}})"),
    ("Threads", "none", f"sum by (process) (pscluster_process_threads{{{_HERE}}})"),
    ("Up for", "s", f"time() - max by (process) (pscluster_process_start_time_seconds{{{_HERE}}})"),
    ("Restarts in 15 min", "none", f"max by (process) (process:pscluster_restarts:changes15m{{{_HERE}}})"),
)
_YES = {"0": ("no", "green"), "1": ("yes", "red")}


def node() -> str:
    """The dashboard as JSON."""
    return page(
        UID,
        "pscluster: node",
        "One machine: what runs on it and how it is.",
        (
            (
                "Now",
                (
                    figure("Load per processor", "percentunit", "Above 100 % somebody waits for a processor.",
                           Query(f"max by (node) (pscluster_node_load1{{{_HERE}}} / pscluster_node_cpus{{{_HERE}}})")),
                    figure("Memory left", "percentunit", "Memory that can be had without swapping.",
                           Query(f"node:pscluster_node_memory_available:ratio{{{_HERE}}}"),
                           thresholds=((None, "red"), (0.1, "orange"), (0.2, "green"))),
                    figure("Temperature", "celsius", "The processor's sensor; a Pi slows down from 80 °C on.",
                           Query(_node("temperature_celsius")),
                           thresholds=((None, "green"), (70, "orange"), (80, "red"))),
                    figure("Disk left", "percentunit", "The fullest of the root file system and the shared folder.",
                           Query(f"min by (node) (node:pscluster_node_filesystem_available:ratio{{{_HERE}}})"),
                           thresholds=((None, "red"), (0.1, "orange"), (0.2, "green"))),
                    figure("Clock off", "s", "Against the median of the nodes.",
                           Query(f"node:pscluster_node_clock_apart_seconds:abs{{{_HERE}}}")),
                    figure("Clock kept", "none", "1 while a time server keeps it right.",
                           Query(_node("clock_synchronized", how="min")), thresholds=((None, "orange"), (1, "green"))),
                ),
            ),
            ("Processes", (
                rows("A row a process", "A coordinator is there for the time of a job only.", "process", _PROCESSES),
                words("Version", "What the processes run.",
                      Query(f"max by (version) (pscluster_build_info{{{_HERE}}})"), "version"),
                words("TensorFlow", "The wheel that is installed.",
                      Query(f"max by (tensorflow) (pscluster_build_info{{{_HERE}}})"), "tensorflow"),
                words("Processor", "Nodes of one kind compute the same bits.",
                      Query(f"max by (processor) (pscluster_build_info{{{_HERE}}})"), "processor"),
                words("Python", "That the processes run on.",
                      Query(f"max by (python) (pscluster_build_info{{{_HERE}}})"), "python"),
            )),
            (
                "Over time",
                (
                    lines("Processor", "none", "Processors that each process keeps busy.",
                          Query(_rate("process_cpu_seconds_total"), "{{process}}"), stacked=True),
                    lines("Usable cores", "none", "Cores each process can compute on: affinity and quotas.",
                          Query(f"max by (process) (pscluster_process_cores{{{_HERE}}})", "{{process}}")),
                    lines("Own memory", "bytes", "Memory that no file backs, by process: what counts on a small node.",
                          Query(f"sum by (process) (pscluster_process_anonymous_bytes{{{_HERE}}})", "{{process}}"),
                          stacked=True),
                    lines("Memory of the node", "bytes", "All there is, and what can be had without swapping.",
                          Query(_node("memory_total_bytes"), "total"),
                          Query(_node("memory_available_bytes", how="min"), "available")),
                    lines("Load", "none", "Runnable and waiting threads, and the processors there are.",
                          Query(_node("load1"), "load"), Query(_node("cpus"), "processors")),
                    lines("Receives", "Bps", "By process.", Query(_rate("network_receive_bytes_total"), "{{process}}")),
                    lines("Sends", "Bps", "By process.", Query(_rate("network_transmit_bytes_total"), "{{process}}")),
                    lines("Packets", "pps", "Both ways: on a cheap switch these count more than bytes.",
                          Query(_rate("network_receive_packets_total"), "in {{process}}"),
                          Query(_rate("network_transmit_packets_total"), "out {{process}}")),
                    lines("Cost of being watched", "none", "Processors that exporter and observers keep busy.",
                          Query(_rate("exporter_cpu_seconds_total"), "{{process}}")),
                ),
            ),
            (
                "A Pi's health, disk and shared folder",
                (
                    states("Voltage and heat", "none", "What the firmware says is so now; a Pi only.",
                           Query(f'max by (condition) (pscluster_node_throttled{{{_HERE}, since="now"}})',
                                 "{{condition}}"),
                           Query(f'max by (condition) (pscluster_node_throttled{{{_HERE}, since="boot"}})',
                                 "{{condition}} since it was switched on"), names=_YES),
                    lines("Temperature", "celsius", "The processor's sensor.",
                          Query(_node("temperature_celsius"), "processor"), from_zero=False),
                    lines("Disk left", "bytes", "What can still be written, and how much there is.",
                          Query(f"min by (mount) (pscluster_node_filesystem_available_bytes{{{_HERE}}})",
                                "{{mount}} available"),
                          Query(f"max by (mount) (pscluster_node_filesystem_size_bytes{{{_HERE}}})", "{{mount}} size")),
                    lines("Shared folder", "s", "How long one look at it takes; only where it is on NFS.",
                          Query(f"node:pscluster_node_nfs_probe_seconds:max{{{_HERE}}}", "{{mount}}")),
                    lines("Clock", "s", "Against the clock of whoever scrapes.",
                          Query(f"node:pscluster_node_clock_offset_seconds:min{{{_HERE}}}", "offset"),
                          from_zero=False),
                ),
            ),
        ),
        nodes="one",
    )  # fmt: skip
