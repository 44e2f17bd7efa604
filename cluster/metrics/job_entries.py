"""The part of the catalogue that the coordinator alone exports, while a job runs."""

from functools import partial

from cluster.inventory.extensions import CODECS
from cluster.metrics.metric import Metric

_job_gauge = partial(Metric, kind="gauge", exporter="every job")
_job_counter = partial(Metric, kind="counter", exporter="every job")
_pi_gauge = partial(Metric, kind="gauge", exporter="pi")
_pi_counter = partial(Metric, kind="counter", exporter="pi")
_gauge = partial(Metric, kind="gauge", exporter="training")
_counter = partial(Metric, kind="counter", exporter="training")
_histogram = partial(Metric, kind="histogram", exporter="training")

STAGES = ("preparing", "train", "refit", "validation", "test", "pi", "ended")
STATES = ("absent", "joining", "idle", "busy", "suspect", "slow", "fenced", "drained")
"""Phases of membership."""

PARTS = ("pull", "compute", "push", "wait")
STEP_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
STALENESS_BUCKETS = (0, 1, 2, 4, 8, 16, 32, 64)
CHECKPOINT_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)

_EVERY_JOB = (
    _job_gauge("job_info", labels={"kind": ("train", "evaluate", "pi"), "run": (), "mode": (), "model": ()},
               help="What runs: the job, the name of its folder in runs/, its mode and model (empty for pi); always 1"),
    _job_gauge("job_stage", labels={"stage": STAGES}, help="1 for the stage the job is in, 0 for all others"),
    _job_gauge("job_progress_ratio", help="Share of the present stage that is done"),
    _job_gauge("job_remaining_seconds",
               help="Estimated time to the end of the present stage, at its mean speed so far",
               where="once a stage has a speed"),
    _job_gauge("worker_state", labels={"state": STATES}, subject="worker",
               help="1 for the phase the worker is in, 0 for all others"),
    _job_counter("worker_departures_total", subject="worker",
                 help="Times the worker left the cluster, drained ones apart"),
    _job_gauge("queue_items", help="Items that workers are at or that wait for one: scheduled and not yet delivered"),
    _job_gauge("calibration_samples_per_second", subject="worker",
               help="Speed of the worker in the latest pi job of this cluster", where="after a pi job"),
)  # fmt: skip

_TRAINING = (
    _counter("train_steps_total", subject="worker", help="Updates this worker has computed, or its part of one"),
    _counter("train_windows_total", subject="worker", help="Windows this worker has trained on"),
    _histogram("train_step_seconds", subject="worker", labels={"part": PARTS}, buckets=STEP_BUCKETS,
               help="Time of one step by part: pull, compute and push by the clock of the worker, wait for the rest"),
    _histogram("train_round_trip_seconds", subject="worker", buckets=STEP_BUCKETS,
               help="Time of one step as the coordinator sees it, from the dispatch to the reply"),
    _histogram("train_staleness_updates", subject="worker", buckets=STALENESS_BUCKETS,
               help="Updates applied between the pull of a worker and its push"),
    _gauge("train_windows_per_second",
           help="Windows trained on per second, over the present stretch or the latest epoch"),
    _gauge("train_loss", labels={"split": ("train", "validation", "test")}, help="Mean loss after the latest epoch"),
    _gauge("train_accuracy_ratio", labels={"split": ("train", "validation", "test")},
           help="Accuracy after the latest epoch"),
    _gauge("train_f1_macro_ratio", labels={"split": ("validation", "test")}, help="Macro F1 after the latest epoch"),
    _gauge("train_latest_loss", help="Mean loss of the latest update", where="once there was an update"),
    _gauge("train_loss_finite",
           help="1 while the training holds; 0 once its loss or gradient is not finite or far above guessing"),
    _gauge("train_epoch", help="Epochs finished"),
    _gauge("train_planned_epochs", help="Epochs planned"),
    _gauge("train_learning_rate_ratio", help="Learning rate of the latest update"),
    _gauge("train_remaining_seconds", help="Estimated time to the end of this training", where="after an epoch"),
    _counter("train_updates_applied_total",
             help="Updates applied so far, those included that were lost and ran again, as of the latest epoch"),
    _counter("train_duplicates_dropped_total",
             help="Updates that came twice and were dropped since the coordinator began, as of the latest epoch"),
    _counter("train_updates_rolled_back_total", help="Updates that were lost with a server and ran again"),
    _counter("train_resumptions_total", help="Times the run was taken up again"),
    _counter("train_wire_bytes_total", labels={"direction": ("pull", "push"), "codec": CODECS.names},
             help="Bytes between the parameter servers and all others in training, counted at the end of each stretch"),
    _histogram("train_checkpoint_seconds", buckets=CHECKPOINT_BUCKETS, help="Time a checkpoint took"),
    _gauge("train_checkpoint_interval_seconds", help="Time after which a checkpoint is due, as the job was told"),
    _gauge("train_checkpoint_bytes", help="Size of the latest checkpoint", where="after a checkpoint"),
    _gauge("train_checkpoint_last_success_timestamp_seconds",
           help="When the latest checkpoint was kept, in seconds of the Unix epoch", where="after a checkpoint"),
)  # fmt: skip

_PI = (
    _pi_counter("pi_samples_total", subject="worker", help="Random points this worker has drawn"),
    _pi_gauge("pi_planned_samples", help="Random points of the whole job"),
    _pi_gauge("pi_estimate_ratio", help="Estimate of pi so far"),
    _pi_gauge("pi_standard_error_ratio", help="Standard error of the estimate so far"),
)  # fmt: skip

JOBS = (*_EVERY_JOB, *_TRAINING, *_PI)
