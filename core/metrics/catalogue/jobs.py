"""The metrics of the coordinator while it runs a job."""

from functools import partial

from core.metrics.catalogue.entry import Metric

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

KINDS = ("train", "cv", "evaluate", "pi", "run", "sweep")
STAGES = (
    "preparing",
    "train",
    "refit",
    "validation",
    "test",
    "pi",
    "run",
    "sweep",
    "ended",
)
STATES = ("absent", "joining", "idle", "busy", "suspect", "slow", "fenced", "drained")
"""Phases of membership."""

PARTS = ("pull", "compute", "push", "wait")
STEP_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
STALENESS_BUCKETS = (0, 1, 2, 4, 8, 16, 32, 64)
CHECKPOINT_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)

EVERY_JOB = (
    _job_gauge(
        "job_info",
        labels={"kind": KINDS, "run": (), "mode": (), "model": ()},
        help=(
            "What runs: the job, the name of its folder in runs/, its mode and model (empty for"
            " pi); always 1"
        ),
    ),
    _job_gauge(
        "job_stage",
        labels={"stage": STAGES},
        help="1 for the stage the job is in, 0 for all others",
    ),
    _job_gauge("job_progress_ratio", help="Share of the present stage that is done"),
    _job_gauge(
        "job_remaining_seconds",
        help="Estimated time to the end of the present stage, at its mean speed so far",
        where="once a stage has a speed",
    ),
    _job_gauge(
        "worker_state",
        labels={"state": STATES},
        subject="worker",
        help="1 for the phase the worker is in, 0 for all others",
    ),
    _job_counter(
        "worker_departures_total",
        subject="worker",
        help="Times the worker left the cluster without being drained",
    ),
    _job_gauge(
        "queue_items",
        help="Items scheduled and not yet delivered: with a worker, or waiting for one",
    ),
    _job_gauge(
        "calibration_samples_per_second",
        subject="worker",
        help="Speed of the worker in the latest pi job of this cluster",
        where="after a pi job",
    ),
)

TRAINING = (
    _train_counter(
        "train_steps_total",
        subject="worker",
        help="Updates this worker has computed, or its part of one",
    ),
    _train_counter(
        "train_windows_total",
        subject="worker",
        help="Windows, or other examples, this worker trained on",
    ),
    _train_histogram(
        "train_step_seconds",
        subject="worker",
        labels={"part": PARTS},
        buckets=STEP_BUCKETS,
        help=(
            "Time of one step by part: pull, compute and push by the clock of the worker, wait for"
            " the rest"
        ),
    ),
    _train_histogram(
        "train_round_trip_seconds",
        subject="worker",
        buckets=STEP_BUCKETS,
        help="Time of one step as the coordinator sees it, from the dispatch to the reply",
    ),
    _train_histogram(
        "train_staleness_updates",
        subject="worker",
        buckets=STALENESS_BUCKETS,
        help="Updates applied between the pull of a worker and its push",
    ),
    _train_gauge(
        "train_windows_per_second",
        help=(
            "Windows or other examples trained on per second, over the present stretch or the"
            " latest epoch"
        ),
    ),
    _train_gauge(
        "train_loss",
        labels={"split": ("train", "validation", "test")},
        help="Mean loss after the latest epoch",
    ),
    _train_gauge(
        "train_accuracy_ratio",
        labels={"split": ("train", "validation", "test")},
        help="Accuracy after the latest epoch",
        where="of tasks that have one",
    ),
    _train_gauge(
        "train_f1_macro_ratio",
        labels={"split": ("validation", "test")},
        help="Macro F1 after the latest epoch",
        where="of tasks that have one",
    ),
    _train_gauge(
        "train_metric",
        labels={"split": ("validation", "test"), "metric": ()},
        help="Further figures of the task or the app after the latest epoch, at most 32 names",
        where="of tasks or apps that have some",
    ),
    _train_gauge(
        "train_latest_loss", help="Mean loss of the latest update", where="once there was an update"
    ),
    _train_gauge(
        "train_loss_finite",
        help=(
            "1 while the training holds; 0 once its loss or gradient is not finite, or its loss"
            " stays risen"
        ),
    ),
    _train_gauge("train_epoch", help="Epochs finished"),
    _train_gauge("train_planned_epochs", help="Epochs planned"),
    _train_gauge("train_learning_rate_ratio", help="Learning rate of the latest update"),
    _train_gauge(
        "train_remaining_seconds",
        help="Estimated time to the end of this training",
        where="after an epoch",
    ),
    _train_counter(
        "train_updates_applied_total",
        help=(
            "Updates applied so far, those included that were lost and ran again, as of the latest"
            " epoch"
        ),
    ),
    _train_counter(
        "train_duplicates_dropped_total",
        help=(
            "Updates that came twice and were dropped since the coordinator began, as of the latest"
            " epoch"
        ),
    ),
    _train_counter(
        "train_updates_rolled_back_total", help="Updates that were lost with a server and ran again"
    ),
    _train_counter("train_resumptions_total", help="Times the run was resumed"),
    _train_counter(
        "train_wire_bytes_total",
        labels={"direction": ("pull", "push"), "codec": ()},
        help=(
            "Bytes between the parameter servers and all others in training, counted at the end of"
            " each stretch"
        ),
    ),
    _train_histogram(
        "train_checkpoint_seconds", buckets=CHECKPOINT_BUCKETS, help="Time a checkpoint took"
    ),
    _train_gauge("train_checkpoint_interval_seconds", help="Time after which a checkpoint is due"),
    _train_gauge(
        "train_checkpoint_bytes", help="Size of the latest checkpoint", where="after a checkpoint"
    ),
    _train_gauge(
        "train_checkpoint_last_success_timestamp_seconds",
        help="When the latest checkpoint was kept, in seconds of the Unix epoch",
        where="after a checkpoint",
    ),
)

PI = (
    _pi_counter("pi_samples_total", subject="worker", help="Random points this worker has drawn"),
    _pi_gauge("pi_planned_samples", help="Random points of the whole job"),
    _pi_gauge("pi_estimate_ratio", help="Estimate of pi so far"),
    _pi_gauge("pi_standard_error_ratio", help="Standard error of the estimate so far"),
)

PROGRAM = (
    _program_counter(
        "program_cpu_seconds_total",
        labels={"member": ()},
        help="User and system CPU time of this process of the program and of its children",
    ),
    _program_gauge(
        "program_resident_bytes",
        labels={"member": ()},
        help="Resident memory of this process of the program and of its children",
    ),
    _program_gauge(
        "program_processes",
        labels={"member": ()},
        help="Processes of this part of the program; 0 once it has ended",
    ),
)

SWEEP_STATES = ("waiting", "running", "finished", "failed", "pruned")
"""The states of a run of a sweep."""

SWEEP = (
    _sweep_gauge(
        "sweep_runs", labels={"state": SWEEP_STATES}, help="Runs of the sweep in this state"
    ),
    _sweep_gauge(
        "sweep_remaining_seconds",
        help="Estimated time until all runs of the sweep are over",
        where="once a run has a speed",
    ),
)
