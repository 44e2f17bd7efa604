"""The dashboards of the training and the pi job. Pure."""

from deploy.monitor.dashboards.page import Section, page
from deploy.monitor.dashboards.parts import Query, figure, lines, rows, words

_HERE = 'cluster="$cluster"'
_COMPUTE = ', part="compute"'


def _train(name: str, more: str = "") -> str:
    return f"pscluster_train_{name}{{{_HERE}{more}}}"


def _rate(name: str, more: str = "") -> str:
    return f"rate({_train(name, more)}[$__rate_interval])"


def _mean(name: str, by: str, more: str = "") -> str:
    return f"sum by ({by}) ({_rate(name + '_sum', more)}) / sum by ({by}) ({_rate(name + '_count', more)})"


def _of_each(recorded: str) -> str:
    """One series a worker: any label beside `task` would give the table a second row for it."""
    return f"max by (task) ({recorded}{{{_HERE}}})"


def _within(share: float) -> str:
    return f"histogram_quantile({share}, sum by (le) ({_rate('round_trip_seconds_bucket')}))"


_WORKERS = (
    ("Windows a second", "none", _of_each("worker:pscluster_train_windows:rate1m")),
    ("Mean step", "s", _of_each("worker:pscluster_train_round_trip_seconds:mean5m")),
    ("Against the others", "none", _of_each("worker:pscluster_train_straggling:ratio")),
    ("Steps", "none", f"sum by (task) ({_train('steps_total')})"),
    ("Left the job", "none", f'sum by (task) (pscluster_worker_departures_total{{{_HERE}, role="worker"}})'),
)


def _now() -> Section:
    return "Now", (
        words("Run", "Folder of the training run.", Query(f"pscluster_job_info{{{_HERE}}}"), "run"),
        figure("Epoch", "none", "Epochs finished.", Query(_train("epoch")), width=3),
        figure("Planned", "none", "Epochs planned.", Query(_train("planned_epochs")), width=3),
        figure("Time left", "s", "The training's own estimate.", Query(_train("remaining_seconds"))),
        figure("Windows a second", "none", "Windows trained on per second, all workers together.",
               Query(f"cluster:pscluster_train_windows:rate1m{{{_HERE}}}")),
        figure("Loss is finite", "none", "1 while it is finite; otherwise the job ends.",
               Query(_train("loss_finite")), thresholds=((None, "red"), (1, "green"))),
    )  # fmt: skip


def _learning() -> Section:
    return "What it learns", (
        lines("Loss", "none", "Mean loss of the latest epoch by split, and of the latest updates.",
              Query(_train("loss"), "{{split}}"), Query(_train("latest_loss"), "latest updates")),
        lines("Accuracy", "percentunit", "Share of windows classified correctly, by split.",
              Query(_train("accuracy_ratio"), "{{split}}"), from_zero=False),
        lines("Macro F1", "percentunit", "Mean F1 of the classes, by split.",
              Query(_train("f1_macro_ratio"), "{{split}}"), from_zero=False),
        lines("Learning rate", "sci", "Of the latest update.",
              Query(_train("learning_rate_ratio"), "rate")),
    )  # fmt: skip


def _speed() -> Section:
    return "How fast", (
        lines("Throughput", "none", "Windows trained on per second, by worker.",
              Query(f"sum by (task) ({_rate('windows_total')})", "worker:{{task}}"), stacked=True),
        lines("Throughput of the epoch", "none", "Windows per second by the job's own count, over "
              "the present epoch.", Query(_train("windows_per_second"), "windows/s")),
        lines("Anatomy of a step", "s", "Mean time of a worker's step by part: pull and push are the "
              "network and the parameter servers, compute is the worker, wait is the rest until its reply.",
              Query(_mean("step_seconds", "part"), "{{part}}"), stacked=True),
        lines("Compute by worker", "s", "Mean compute time of a worker in a step: it shows a slow node.",
              Query(_mean("step_seconds", "task", _COMPUTE), "worker:{{task}}")),
        lines("From dispatch to reply", "s", "Half of the replies, and 95 % of them, come within this time.",
              Query(_within(0.5), "median"), Query(_within(0.95), "95 %")),
        lines("Staleness", "none", "Mean updates applied between a worker's pull and its push.",
              Query(_mean("staleness_updates", "task"), "worker:{{task}}")),
        lines("Slowdown", "none", "Step time against this run's own median of the last hour.",
              Query(f"run:pscluster_train_slowdown:ratio{{{_HERE}}}", "{{run}}")),
        lines("Work in hand", "none", "Items scheduled and not yet delivered.",
              Query(f"pscluster_queue_items{{{_HERE}}}", "queue")),
    )  # fmt: skip


def _workers() -> Section:
    return "Workers", (
        rows("A row a worker", "Against the others: its mean step over the median of all; over 2 is a "
             "straggler.", "task", _WORKERS),
    )  # fmt: skip


def _updates() -> Section:
    return "Updates, wire and checkpoints", (
        lines("Steps", "none", "Steps of all workers, each counted at its end. In some modes a step is only a part "
              "of an update.", Query(f"sum({_rate('steps_total')})", "steps a second")),
        lines("Updates", "none", "Updates applied, and duplicates dropped; as of the end of each epoch.",
              Query(_train("updates_applied_total"), "applied"),
              Query(_train("duplicates_dropped_total"), "dropped")),
        lines("Set back", "none", "Updates lost in rollbacks to a checkpoint, and the number of resumptions.",
              Query(_train("updates_rolled_back_total"), "updates rolled back"),
              Query(_train("resumptions_total"), "resumptions")),
        lines("On the wire", "Bps", "What processes send, by role: parameter servers send what workers pull, "
              "workers send what they push; validations included.",
              Query(f"sum by (role) (rate(pscluster_network_transmit_bytes_total{{{_HERE}}}"
                    "[$__rate_interval]))", "{{role}}")),
        lines("Carried in training", "bytes", "Bytes pulled from and pushed to the parameter servers, by "
              "codec; as of the end of each stretch, about as often as a checkpoint is due.",
              Query(f"sum by (direction, codec) ({_train('wire_bytes_total')})",
                    "{{direction}} {{codec}}")),
        lines("Checkpoint time", "s", "Mean time to write a checkpoint.",
              Query(f"increase({_train('checkpoint_seconds_sum')}[5m]) / "
                    f"increase({_train('checkpoint_seconds_count')}[5m])", "write")),
        lines("Checkpoint size", "bytes", "Of the latest checkpoint.",
              Query(_train("checkpoint_bytes"), "size")),
        lines("Checkpoint age", "s", "The training that the loss of a parameter server would cost now, and "
              "the limit of the alert.",
              Query(f"cluster:pscluster_train_checkpoint_age_seconds:min{{{_HERE}}}", "age"),
              Query(f"cluster:pscluster_train_checkpoint_age_limit_seconds:max{{{_HERE}}}", "too old")),
    )  # fmt: skip


def training() -> str:
    """The dashboard as JSON."""
    return page(
        "pscluster-training",
        "pscluster: training",
        "Progress of a training, and where the time of a step goes.",
        (_now(), _learning(), _speed(), _workers(), _updates()),
    )


_DRAWN = f"sum(pscluster_pi_samples_total{{{_HERE}}})"
_ESTIMATE = f"max(pscluster_pi_estimate_ratio{{{_HERE}}})"
_ERROR = f"max(pscluster_pi_standard_error_ratio{{{_HERE}}})"


def _pi_now() -> Section:
    return "Now", (
        figure("Estimate", "none", "Of pi, so far.", Query(_ESTIMATE), width=6),
        figure("Standard error", "sci", "Of the estimate, so far.", Query(_ERROR), width=6),
        figure("Drawn", "short", "Random points so far, all workers together.", Query(_DRAWN), width=6),
        figure("Done", "percentunit", "Share of the planned points.",
               Query(f"{_DRAWN} / max(pscluster_pi_planned_samples{{{_HERE}}})"), width=6),
    )  # fmt: skip


def _pi_over_time() -> Section:
    return "Over time", (
        lines("Estimate with its error band", "none", "The estimate, and two standard errors to both sides.",
              Query(_ESTIMATE, "estimate"), Query(f"{_ESTIMATE} + 2 * {_ERROR}", "+ 2 standard errors"),
              Query(f"{_ESTIMATE} - 2 * {_ERROR}", "- 2 standard errors"), Query("pi()", "pi"),
              from_zero=False),
        lines("Distance from pi", "sci", "Error of the estimate, and its standard error.",
              Query(f"abs({_ESTIMATE} - pi())", "distance"), Query(_ERROR, "standard error")),
        lines("Points a second", "short", "Drawn by each worker.",
              Query(f"sum by (task) (rate(pscluster_pi_samples_total{{{_HERE}}}[$__rate_interval]))",
                    "worker:{{task}}"), stacked=True),
        lines("Calibrated speed", "short", "Points a second of each worker, as the job measured them.",
              Query(f"max by (task) (pscluster_calibration_samples_per_second{{{_HERE}}})",
                    "worker:{{task}}")),
    )  # fmt: skip


def pi_job() -> str:
    """The dashboard as JSON."""
    return page(
        "pscluster-pi",
        "pscluster: pi job",
        "The Monte Carlo job: how its estimate converges, and how fast each worker draws.",
        (_pi_now(), _pi_over_time()),
    )
