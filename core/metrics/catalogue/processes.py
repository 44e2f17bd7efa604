"""The metrics that every process of a cluster exports."""

from functools import partial

from core.metrics.catalogue.entry import Metric

_gauge = partial(Metric, kind="gauge", exporter="every process")
_counter = partial(Metric, kind="counter", exporter="every process")

SERVERS = ("lean", "stock", "client")
MOUNTS = ("root", "shared")
CONDITIONS = ("under_voltage", "frequency_capped", "throttled", "soft_temperature_limit")
"""What a Raspberry Pi's firmware reports, from its lowest bit up."""

SINCE = ("now", "boot")
SHARED = "nodes that mount the shared folder over NFS"

EVERY_PROCESS = (
    _gauge(
        "build_info",
        help=(
            "Versions of pscluster, TensorFlow and Python, and the kinds of server and processor;"
            " always 1"
        ),
        labels={"version": (), "tensorflow": (), "python": (), "server": SERVERS, "processor": ()},
    ),
    _gauge(
        "ready",
        help="1 while the process does its work, as GET /ready answers; 0 while it starts or hangs",
    ),
    _gauge(
        "process_anonymous_bytes",
        help="Resident memory that no file backs: what counts on a small node",
    ),
    _gauge(
        "process_file_backed_bytes",
        help="Resident pages of mapped files, which the kernel can drop and read again",
    ),
    _gauge("process_swap_bytes", help="Anonymous memory swapped out"),
    _counter("process_cpu_seconds_total", help="User and system CPU time"),
    _gauge(
        "process_cores",
        help="Cores the process can compute on at once: its affinity and its groups' quotas",
    ),
    _gauge("process_threads", help="Threads of the process, those of TensorFlow included"),
    _gauge("process_start_time_seconds", help="Up since, in seconds of the Unix epoch"),
    _counter(
        "exporter_cpu_seconds_total",
        help="CPU time of the threads that measure and export, part of process_cpu_seconds",
    ),
    _counter(
        "device_busy_seconds_total",
        labels={"device": ()},
        where="processes that take a GPU",
        help=(
            "Time in which a kernel ran on the device that this process takes, as its driver"
            " reports it"
        ),
    ),
    _gauge(
        "device_memory_used_bytes",
        labels={"device": ()},
        where="processes that take a GPU",
        help="Memory of that device in use, by all processes",
    ),
    _counter(
        "network_receive_bytes_total",
        help="TCP payload received as the kernel counts it, the metrics port aside",
    ),
    _counter(
        "network_transmit_bytes_total",
        help="TCP payload sent and acknowledged, the metrics port aside",
    ),
    _counter(
        "network_receive_packets_total",
        help="TCP segments received, bare acknowledgements included, the metrics port aside",
    ),
    _counter(
        "network_transmit_packets_total",
        help="TCP segments sent, bare acknowledgements included, the metrics port aside",
    ),
    _gauge("node_memory_total_bytes", help="Memory of the node"),
    _gauge("node_memory_available_bytes", help="Memory available without swapping"),
    _gauge("node_load1", help="Runnable and waiting threads, average of one minute"),
    _gauge("node_cpus", help="Logical processors"),
    _gauge(
        "node_temperature_celsius",
        help="Hottest reading of the sensor of the processor",
        where="nodes whose processor has a sensor",
    ),
    _gauge(
        "node_throttled",
        labels={"condition": CONDITIONS, "since": SINCE},
        help=(
            "1 while the firmware holds the node back; since boot: once it has, or since this"
            " process began"
        ),
        where="Raspberry Pis",
    ),
    _gauge(
        "node_filesystem_size_bytes",
        labels={"mount": MOUNTS},
        help="Size of the file system; shared: that of the folder of all nodes",
    ),
    _gauge(
        "node_filesystem_available_bytes",
        labels={"mount": MOUNTS},
        help="Free space, without the blocks reserved for root",
    ),
    _gauge(
        "node_nfs_up",
        labels={"mount": ("shared",)},
        help=(
            "1 if the server of the mount answered the latest question, 0 if not within ten seconds"
        ),
        where=SHARED,
    ),
    _gauge(
        "node_nfs_probe_seconds",
        labels={"mount": ("shared",)},
        help="Time the server of the mount took to answer, so far if it has not",
        where=SHARED,
    ),
    _gauge(
        "node_time_seconds",
        help="Clock of the node in seconds of the Unix epoch; timestamp() is when it was read",
    ),
    _gauge(
        "node_clock_synchronized",
        help="1 if systemd's time service has set the clock, or the kernel says that it is, else 0",
        where="where one of the two reports it",
    ),
)
