"""Every metric, as data: the exporters and docs/metrics.md are made from it.

docs/how-to-add/metric.md shows how to add one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

PREFIX = "pscluster_"
LABELS = ("role", "task")
"""Labels of every metric."""

Kind = Literal["gauge", "counter", "histogram"]
Exporter = Literal["every process", "every job", "training", "pi", "program", "sweep", "service"]
"""Which process exports it: all of them, the coordinator while such a job runs, or a service by itself."""

UNITS = ("seconds", "bytes", "celsius", "ratio")
"""Base units. A name ends in one (before `_total`); a metric whose name ends in none counts things."""


@dataclass(frozen=True)
class Metric:
    """One metric. `short` is its name without the prefix that all have."""

    short: str
    kind: Kind
    exporter: Exporter
    help: str
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    """Labels beside `role` and `task`, with all values they can have; empty where the values are facts of the run."""
    subject: Literal["itself", "worker"] = "itself"
    """What `role` and `task` name: the process that exports it, or a worker that the coordinator reports on."""
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram's buckets, without the infinite one."""
    where: str = ""
    """Where or when it exists, if not always."""

    @property
    def name(self) -> str:
        """The name as Prometheus knows it, e.g. `pscluster_train_steps_total`; of a histogram without `_bucket`."""
        return PREFIX + self.short

    @property
    def family(self) -> str:
        """The name as the Python client has it: that of a counter without `_total`."""
        return self.name.removesuffix("_total") if self.kind == "counter" else self.name

    @property
    def series(self) -> tuple[str, ...]:
        """The names that expressions use."""
        if self.kind == "histogram":
            return tuple(f"{self.name}_{part}" for part in ("bucket", "sum", "count"))
        return (self.name,)

    @property
    def label_names(self) -> tuple[str, ...]:
        """All labels in the order in which values are given."""
        return (*LABELS, *self.labels)

    @property
    def unit(self) -> str:
        """The base unit in its name, or nothing."""
        words = self.short.removesuffix("_total").removesuffix("_per_second").split("_")
        return next((unit for unit in UNITS if words[-1] == unit), "")


_gauge = partial(Metric, kind="gauge", exporter="every process")
_counter = partial(Metric, kind="counter", exporter="every process")

SERVERS = ("lean", "stock", "client")
MOUNTS = ("root", "shared")
CONDITIONS = ("under_voltage", "frequency_capped", "throttled", "soft_temperature_limit")
"""What a Raspberry Pi's firmware reports, from its lowest bit up."""

SINCE = ("now", "boot")
SHARED = "nodes that mount the shared folder over NFS"

_EVERY_PROCESS = (
    _gauge("build_info",
           help="Versions of pscluster, TensorFlow and Python, and the kinds of server and processor; always 1",
           labels={"version": (), "tensorflow": (), "python": (), "server": SERVERS, "processor": ()}),
    _gauge("ready", help="1 while the process does its work, as GET /ready answers; 0 while it starts or hangs"),
    _gauge("process_anonymous_bytes", help="Resident memory that no file backs: what counts on a small node"),
    _gauge("process_file_backed_bytes",
           help="Resident pages of mapped files, which the kernel can drop and read again"),
    _gauge("process_swap_bytes", help="Anonymous memory swapped out"),
    _counter("process_cpu_seconds_total", help="User and system CPU time"),
    _gauge("process_cores", help="Cores the process can compute on at once: its affinity and its groups' quotas"),
    _gauge("process_threads", help="Threads of the process, those of TensorFlow included"),
    _gauge("process_start_time_seconds", help="Up since, in seconds of the Unix epoch"),
    _counter("exporter_cpu_seconds_total",
             help="CPU time of the threads that measure and export, part of process_cpu_seconds"),
    _counter("device_busy_seconds_total", labels={"device": ()}, where="processes that take a GPU",
             help="Time in which a kernel ran on the device that this process takes, as its driver reports it"),
    _gauge("device_memory_used_bytes", labels={"device": ()}, where="processes that take a GPU",
           help="Memory of that device in use, by all processes"),
    _counter("network_receive_bytes_total",
             help="TCP payload received as the kernel counts it, the metrics port aside"),
    _counter("network_transmit_bytes_total", help="TCP payload sent and acknowledged, the metrics port aside"),
    _counter("network_receive_packets_total",
             help="TCP segments received, bare acknowledgements included, the metrics port aside"),
    _counter("network_transmit_packets_total",
             help="TCP segments sent, bare acknowledgements included, the metrics port aside"),
    _gauge("node_memory_total_bytes", help="Memory of the node"),
    _gauge("node_memory_available_bytes", help="Memory available without swapping"),
    _gauge("node_load1", help="Runnable and waiting threads, average of one minute"),
    _gauge("node_cpus", help="Logical processors"),
    _gauge("node_temperature_celsius", help="Hottest reading of the sensor of the processor",
           where="nodes whose processor has a sensor"),
    _gauge("node_throttled", labels={"condition": CONDITIONS, "since": SINCE},
           help="1 while the firmware holds the node back; since boot: once it has, or since this process began",
           where="Raspberry Pis"),
    _gauge("node_filesystem_size_bytes", labels={"mount": MOUNTS},
           help="Size of the file system; shared: that of the folder of all nodes"),
    _gauge("node_filesystem_available_bytes", labels={"mount": MOUNTS},
           help="Free space, without the blocks reserved for root"),
    _gauge("node_nfs_up", labels={"mount": ("shared",)},
           help="1 if the server of the mount answered the latest question, 0 if not within ten seconds",
           where=SHARED),
    _gauge("node_nfs_probe_seconds", labels={"mount": ("shared",)},
           help="Time the server of the mount took to answer, so far if it has not", where=SHARED),
    _gauge("node_time_seconds", help="Clock of the node in seconds of the Unix epoch; timestamp() is when it was read"),
    _gauge("node_clock_synchronized", help="1 if the kernel reports its clock as synchronized (adjtimex), else 0",
           where="where the kernel allows the query"),
)  # fmt: skip

_job_gauge = partial(Metric, kind="gauge", exporter="every job")
_job_counter = partial(Metric, kind="counter", exporter="every job")
_pi_gauge = partial(Metric, kind="gauge", exporter="pi")
_pi_counter = partial(Metric, kind="counter", exporter="pi")
_program_gauge = partial(Metric, kind="gauge", exporter="program")
_program_counter = partial(Metric, kind="counter", exporter="program")
_sweep_gauge = partial(Metric, kind="gauge", exporter="sweep")
_train_gauge = partial(Metric, kind="gauge", exporter="training")
_train_counter = partial(Metric, kind="counter", exporter="training")
_train_histogram = partial(Metric, kind="histogram", exporter="training")

KINDS = ("train", "cv", "evaluate", "recognise", "pi", "run", "sweep")
STAGES = ("preparing", "train", "refit", "validation", "test", "recognise", "pi", "run", "sweep", "ended")
STATES = ("absent", "joining", "idle", "busy", "suspect", "slow", "fenced", "drained")
"""Phases of membership."""

PARTS = ("pull", "compute", "push", "wait")
STEP_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
STALENESS_BUCKETS = (0, 1, 2, 4, 8, 16, 32, 64)
CHECKPOINT_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)

_EVERY_JOB = (
    _job_gauge("job_info", labels={"kind": KINDS, "run": (), "mode": (), "model": ()},
               help="What runs: the job, the name of its folder in runs/, its mode and model (empty for pi); always 1"),
    _job_gauge("job_stage", labels={"stage": STAGES}, help="1 for the stage the job is in, 0 for all others"),
    _job_gauge("job_progress_ratio", help="Share of the present stage that is done"),
    _job_gauge("job_remaining_seconds",
               help="Estimated time to the end of the present stage, at its mean speed so far",
               where="once a stage has a speed"),
    _job_gauge("worker_state", labels={"state": STATES}, subject="worker",
               help="1 for the phase the worker is in, 0 for all others"),
    _job_counter("worker_departures_total", subject="worker",
                 help="Times the worker left the cluster without being drained"),
    _job_gauge("queue_items", help="Items scheduled and not yet delivered: with a worker, or waiting for one"),
    _job_gauge("calibration_samples_per_second", subject="worker",
               help="Speed of the worker in the latest pi job of this cluster", where="after a pi job"),
)  # fmt: skip

_TRAINING = (
    _train_counter("train_steps_total", subject="worker", help="Updates this worker has computed, or its part of one"),
    _train_counter("train_windows_total", subject="worker", help="Windows, or other examples, this worker trained on"),
    _train_histogram("train_step_seconds", subject="worker", labels={"part": PARTS}, buckets=STEP_BUCKETS,
                     help="Time of one step by part: pull, compute and push by the clock of the worker, wait for the "
                          "rest"),
    _train_histogram("train_round_trip_seconds", subject="worker", buckets=STEP_BUCKETS,
                     help="Time of one step as the coordinator sees it, from the dispatch to the reply"),
    _train_histogram("train_staleness_updates", subject="worker", buckets=STALENESS_BUCKETS,
                     help="Updates applied between the pull of a worker and its push"),
    _train_gauge("train_windows_per_second",
                 help="Windows or other examples trained on per second, over the present stretch or the latest epoch"),
    _train_gauge("train_loss", labels={"split": ("train", "validation", "test")},
                 help="Mean loss after the latest epoch"),
    _train_gauge("train_accuracy_ratio", labels={"split": ("train", "validation", "test")},
                 help="Accuracy after the latest epoch", where="of tasks that have one"),
    _train_gauge("train_f1_macro_ratio", labels={"split": ("validation", "test")},
                 help="Macro F1 after the latest epoch", where="of tasks that have one"),
    _train_gauge("train_metric", labels={"split": ("validation", "test"), "metric": ()},
                 help="Further figures of the task or the app after the latest epoch, at most 32 names",
                 where="of tasks or apps that have some"),
    _train_gauge("train_latest_loss", help="Mean loss of the latest update", where="once there was an update"),
    _train_gauge("train_loss_finite",
                 help="1 while the training holds; 0 once its loss or gradient is not finite or far above guessing"),
    _train_gauge("train_epoch", help="Epochs finished"),
    _train_gauge("train_planned_epochs", help="Epochs planned"),
    _train_gauge("train_learning_rate_ratio", help="Learning rate of the latest update"),
    _train_gauge("train_remaining_seconds", help="Estimated time to the end of this training", where="after an epoch"),
    _train_counter("train_updates_applied_total",
                   help="Updates applied so far, those included that were lost and ran again, as of the latest epoch"),
    _train_counter("train_duplicates_dropped_total",
                   help="Updates that came twice and were dropped since the coordinator began, as of the latest epoch"),
    _train_counter("train_updates_rolled_back_total", help="Updates that were lost with a server and ran again"),
    _train_counter("train_resumptions_total", help="Times the run was resumed"),
    _train_counter("train_wire_bytes_total", labels={"direction": ("pull", "push"), "codec": ()},
                   help="Bytes between the parameter servers and all others in training, counted at the end of each "
                        "stretch"),
    _train_histogram("train_checkpoint_seconds", buckets=CHECKPOINT_BUCKETS, help="Time a checkpoint took"),
    _train_gauge("train_checkpoint_interval_seconds", help="Time after which a checkpoint is due"),
    _train_gauge("train_checkpoint_bytes", help="Size of the latest checkpoint", where="after a checkpoint"),
    _train_gauge("train_checkpoint_last_success_timestamp_seconds",
                 help="When the latest checkpoint was kept, in seconds of the Unix epoch", where="after a checkpoint"),
)  # fmt: skip

_PI = (
    _pi_counter("pi_samples_total", subject="worker", help="Random points this worker has drawn"),
    _pi_gauge("pi_planned_samples", help="Random points of the whole job"),
    _pi_gauge("pi_estimate_ratio", help="Estimate of pi so far"),
    _pi_gauge("pi_standard_error_ratio", help="Standard error of the estimate so far"),
)  # fmt: skip

_PROGRAM = (
    _program_counter("program_cpu_seconds_total", labels={"member": ()},
                     help="User and system CPU time of this process of the program and of its children"),
    _program_gauge("program_resident_bytes", labels={"member": ()},
                   help="Resident memory of this process of the program and of its children"),
    _program_gauge("program_processes", labels={"member": ()},
                   help="Processes of this part of the program; 0 once it has ended"),
)  # fmt: skip

SWEEP_STATES = ("waiting", "running", "finished", "failed", "pruned")
"""Of a run of a sweep."""

_SWEEP = (
    _sweep_gauge("sweep_runs", labels={"state": SWEEP_STATES}, help="Runs of the sweep in this state"),
    _sweep_gauge("sweep_remaining_seconds", help="Estimated time until all runs of the sweep are over",
                 where="once a run has a speed"),
)  # fmt: skip

_service_gauge = partial(Metric, kind="gauge", exporter="service")
_service_counter = partial(Metric, kind="counter", exporter="service")
_service_histogram = partial(Metric, kind="histogram", exporter="service")

CODES = ("101", "200", "400", "401", "403", "404", "405", "408", "413", "415", "421", "500", "503", "504")
LATENCY_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
BATCH_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
LATELY = "once a version has answered a hundred windows within ten minutes"
SESSIONS = ("stream", "sensor_logger", "mqtt")
FAULTS = ("bad_value", "doubled", "late", "gap", "clock_jump", "sparse", "implausible")
CLOSES = ("1007", "1008", "1009", "1011", "1013")

_SERVICE = (
    _service_counter("service_requests_total", labels={"code": CODES}, help="Requests answered, by HTTP status"),
    _service_histogram("service_request_seconds", buckets=LATENCY_BUCKETS,
                       help="Time of a request for an inference, from its head to its answer, refused ones included"),
    _service_histogram("service_batch_windows", buckets=BATCH_BUCKETS,
                       help="Windows of one batch; a larger request is one by itself"),
    _service_gauge("service_waiting_windows", help="Windows that no thread computes yet"),
    _service_gauge("service_model_version", help="Number of the version that is served"),
    _service_counter("service_takeovers_total", labels={"result": ("taken", "refused")},
                     help="Promotions and rollbacks that this service took over, or refused"),
    _service_counter("service_shadow_windows_total", labels={"result": ("agreed", "differed", "failed", "left")},
                     help="Windows of promoted versions in the shadow, by how they compare with the served version's "
                          "answers; `left` were not computed"),
    _service_gauge("service_low_confidence_ratio", labels={"version": ()}, where=LATELY,
                   help="Share of the windows answered lately whose class got less than halfway from guessing to "
                        "certainty"),
    _service_gauge("service_input_distance_ratio", labels={"version": (), "channel": ()}, where=LATELY,
                   help="Distance of the inputs answered lately from those of the training, in the training's standard "
                        "deviations of the channel"),
    _service_gauge("service_sessions", labels={"kind": SESSIONS}, help="Live sessions that are open"),
    _service_counter("service_session_windows_total", labels={"kind": SESSIONS},
                     help="Windows of live sessions that were answered"),
    _service_histogram("service_session_seconds", buckets=LATENCY_BUCKETS,
                       help="From the message that completed a window of a live session to its answer"),
    _service_counter("service_session_faults_total", labels={"kind": FAULTS},
                     help="Faults of the readings of live sessions"),
    _service_counter("service_sessions_refused_total", labels={"code": CLOSES},
                     help="Live sessions that were closed with a reason, by code"),
)  # fmt: skip

CATALOGUE: tuple[Metric, ...] = (*_EVERY_PROCESS, *_EVERY_JOB, *_TRAINING, *_PI, *_PROGRAM, *_SWEEP, *_SERVICE)

_BY_NAME = {entry.name: entry for entry in CATALOGUE}


def metric(short: str) -> Metric:
    """The entry of `pscluster_{short}`. Raises KeyError for an unknown name."""
    return _BY_NAME[PREFIX + short]


def exported_by(*exporters: Exporter) -> tuple[Metric, ...]:
    """The metrics of these exporters, in the catalogue's order."""
    return tuple(entry for entry in CATALOGUE if entry.exporter in exporters)
