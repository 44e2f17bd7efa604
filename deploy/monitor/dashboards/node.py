"""The dashboard of one node. Pure."""

from deploy.monitor.dashboards.page import Section, page
from deploy.monitor.dashboards.parts import Query, figure, lines, rows, states, words

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


def _now() -> Section:
    return "Now", (
        figure("Load per processor", "percentunit", "Above 100 % threads wait for a processor.",
               Query(f"max by (node) (pscluster_node_load1{{{_HERE}}} / pscluster_node_cpus{{{_HERE}}})")),
        figure("Memory left", "percentunit", "Memory available without swapping.",
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
        figure("Clock kept", "none", "1 while a time server synchronizes it.",
               Query(_node("clock_synchronized", how="min")), thresholds=((None, "orange"), (1, "green"))),
    )  # fmt: skip


def _processes() -> Section:
    return "Processes", (
        rows("A row a process", "A coordinator exists only while a job runs.", "process", _PROCESSES),
        words("Version", "The version of pscluster that the processes run.",
              Query(f"max by (version) (pscluster_build_info{{{_HERE}}})"), "version"),
        words("TensorFlow", "The installed wheel.",
              Query(f"max by (tensorflow) (pscluster_build_info{{{_HERE}}})"), "tensorflow"),
        words("Processor", "Nodes of one kind compute the same bits.",
              Query(f"max by (processor) (pscluster_build_info{{{_HERE}}})"), "processor"),
        words("Python", "The version that runs the processes.",
              Query(f"max by (python) (pscluster_build_info{{{_HERE}}})"), "python"),
    )  # fmt: skip


def _over_time() -> Section:
    return "Over time", (
        lines("Processor", "none", "Processors that each process keeps busy.",
              Query(_rate("process_cpu_seconds_total"), "{{process}}"), stacked=True),
        lines("Usable cores", "none", "Cores each process can compute on: affinity and quotas.",
              Query(f"max by (process) (pscluster_process_cores{{{_HERE}}})", "{{process}}")),
        lines("Own memory", "bytes", "Memory that no file backs, by process: what counts on a small node.",
              Query(f"sum by (process) (pscluster_process_anonymous_bytes{{{_HERE}}})", "{{process}}"),
              stacked=True),
        lines("Memory of the node", "bytes", "Total, and available without swapping.",
              Query(_node("memory_total_bytes"), "total"),
              Query(_node("memory_available_bytes", how="min"), "available")),
        lines("Load", "none", "Runnable and waiting threads, and the number of processors.",
              Query(_node("load1"), "load"), Query(_node("cpus"), "processors")),
        lines("Receives", "Bps", "By process.", Query(_rate("network_receive_bytes_total"), "{{process}}")),
        lines("Sends", "Bps", "By process.", Query(_rate("network_transmit_bytes_total"), "{{process}}")),
        lines("Packets", "pps", "Both ways: on a cheap switch these count more than bytes.",
              Query(_rate("network_receive_packets_total"), "in {{process}}"),
              Query(_rate("network_transmit_packets_total"), "out {{process}}")),
        lines("Cost of monitoring", "none", "Processors that the exporter and the observers keep busy.",
              Query(_rate("exporter_cpu_seconds_total"), "{{process}}")),
    )  # fmt: skip


def _health() -> Section:
    return "A Pi's health, disk and shared folder", (
        states("Voltage and heat", "none", "The conditions that a Pi's firmware reports.",
               Query(f'max by (condition) (pscluster_node_throttled{{{_HERE}, since="now"}})',
                     "{{condition}}"),
               Query(f'max by (condition) (pscluster_node_throttled{{{_HERE}, since="boot"}})',
                     "{{condition}} since boot"), names=_YES),
        lines("Temperature", "celsius", "The processor's sensor.",
              Query(_node("temperature_celsius"), "processor"), from_zero=False),
        lines("Disk left", "bytes", "Free space, and size.",
              Query(f"min by (mount) (pscluster_node_filesystem_available_bytes{{{_HERE}}})",
                    "{{mount}} available"),
              Query(f"max by (mount) (pscluster_node_filesystem_size_bytes{{{_HERE}}})", "{{mount}} size")),
        lines("Shared folder", "s", "Time of one access to it; only on NFS.",
              Query(f"node:pscluster_node_nfs_probe_seconds:max{{{_HERE}}}", "{{mount}}")),
        lines("Clock", "s", "Against the clock of Prometheus.",
              Query(f"node:pscluster_node_clock_offset_seconds:min{{{_HERE}}}", "offset"),
              from_zero=False),
    )  # fmt: skip


def node() -> str:
    """The dashboard as JSON."""
    return page(
        "pscluster-node",
        "pscluster: node",
        "One machine: its processes and its health.",
        (_now(), _processes(), _over_time(), _health()),
        nodes="one",
    )
