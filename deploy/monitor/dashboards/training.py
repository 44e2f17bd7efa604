"""The dashboard of a training. Pure."""

from deploy.monitor.dashboards.page import page
from deploy.monitor.dashboards.parts import Query, figure, lines, rows, words

UID = "pscluster-training"
_HERE = 'cluster="$cluster"'
_COMPUTE = ', part="compute"'


def _train(name: str, more: str = "") -> str:
    return f"pscluster_train_{name}{{{_HERE}{more}}}"


def _rate(name: str, more: str = "") -> str:
    return f"rate({_train(name, more)}[$__rate_interval])"


def _mean(name: str, by: str, more: str = "") -> str:
    return f"sum by ({by}) ({_rate(name + '_sum', more)}) / sum by ({by}) ({_rate(name + '_count', more)})"


def _of_each(recorded: str) -> str:
    """Of each worker: no label beside `task` is left, or the table would have a row of its own for it."""
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


def training() -> str:
    """The dashboard as JSON."""
    return page(
        UID,
        "pscluster: training",
        "How a training gets on, and where the time of a step goes.",
        (
            (
                "Now",
                (
                    words("Run", "Folder of the run that trains.", Query(f"pscluster_job_info{{{_HERE}}}"), "run"),
                    figure("Epoch", "none", "Epochs finished.", Query(_train("epoch")), width=3),
                    figure("Planned", "none", "Epochs planned.", Query(_train("planned_epochs")), width=3),
                    figure("Time left", "s", "The training's own estimate.", Query(_train("remaining_seconds"))),
                    figure("Windows a second", "none", "Windows trained on per second, all workers together.",
                           Query(f"cluster:pscluster_train_windows:rate1m{{{_HERE}}}")),
                    figure("Loss is finite", "none", "1 while it is; the job ends when it is not.",
                           Query(_train("loss_finite")), thresholds=((None, "red"), (1, "green"))),
                ),
            ),
            (
                "What it learns",
                (
                    lines("Loss", "none", "Mean loss of the latest epoch by split, and of the latest updates.",
                          Query(_train("loss"), "{{split}}"), Query(_train("latest_loss"), "latest updates")),
                    lines("Accuracy", "percentunit", "Share of windows classified rightly, by split.",
                          Query(_train("accuracy_ratio"), "{{split}}"), from_zero=False),
                    lines("Macro F1", "percentunit", "Mean F1 of the classes, by split.",
                          Query(_train("f1_macro_ratio"), "{{split}}"), from_zero=False),
                    lines("Learning rate", "sci", "Of the latest update.",
                          Query(_train("learning_rate_ratio"), "rate")),
                ),
            ),
            (
                "How fast",
                (
                    lines("Throughput", "none", "Windows trained on per second, by worker.",
                          Query(f"sum by (task) ({_rate('windows_total')})", "worker:{{task}}"), stacked=True),
                    lines("Throughput of the epoch", "none", "Windows per second as the job counts them, over the "
                          "present epoch.", Query(_train("windows_per_second"), "windows/s")),
                    lines("Anatomy of a step", "s", "Mean time of a worker's step by part: pull and push are the "
                          "network and the parameter servers, compute is the worker, wait is the rest until its reply.",
                          Query(_mean("step_seconds", "part"), "{{part}}"), stacked=True),
                    lines("Compute by worker", "s", "Mean time a worker computes in a step: who is slow by itself.",
                          Query(_mean("step_seconds", "task", _COMPUTE), "worker:{{task}}")),
                    lines("From dispatch to reply", "s", "Half and 95 % of the replies come within this time.",
                          Query(_within(0.5), "median"), Query(_within(0.95), "95 %")),
                    lines("Staleness", "none", "Mean updates applied between a worker's pull and its push.",
                          Query(_mean("staleness_updates", "task"), "worker:{{task}}")),
                    lines("Slowdown", "none", "Step time against this run's own median of the last hour.",
                          Query(f"run:pscluster_train_slowdown:ratio{{{_HERE}}}", "{{run}}")),
                    lines("Work in hand", "none", "Pieces of work that wait for a worker.",
                          Query(f"pscluster_queue_items{{{_HERE}}}", "queue")),
                ),
            ),
            ("Workers", (
                rows("A row a worker", "Against the others: its mean step over the median of all; over 2 is a "
                     "straggler.", "task", _WORKERS),
            )),
            (
                "Updates, wire and checkpoints",
                (
                    lines("Steps", "none", "Of all workers, each told as it is done. In some modes a step is a part of "
                          "an update only.", Query(f"sum({_rate('steps_total')})", "steps a second")),
                    lines("Updates", "none", "So many are applied, and so many were dropped because they came twice; "
                          "told at the end of each epoch.",
                          Query(_train("updates_applied_total"), "applied"),
                          Query(_train("duplicates_dropped_total"), "dropped")),
                    lines("Set back", "none", "Updates lost with a checkpoint that was gone back to, and how often.",
                          Query(_train("updates_rolled_back_total"), "updates rolled back"),
                          Query(_train("resumptions_total"), "resumptions")),
                    lines("On the wire", "Bps", "What processes send, by role: parameter servers what is pulled, "
                          "workers what they push; what is sent for a validation is in it.",
                          Query(f"sum by (role) (rate(pscluster_network_transmit_bytes_total{{{_HERE}}}"
                                "[$__rate_interval]))", "{{role}}")),
                    lines("Carried in training", "bytes", "So much was pulled from the parameter servers and pushed to "
                          "them, by codec; told at the end of each stretch, about as often as a checkpoint is due.",
                          Query(f"sum by (direction, codec) ({_train('wire_bytes_total')})",
                                "{{direction}} {{codec}}")),
                    lines("Checkpoint time", "s", "Mean time to write a checkpoint.",
                          Query(f"increase({_train('checkpoint_seconds_sum')}[5m]) / "
                                f"increase({_train('checkpoint_seconds_count')}[5m])", "write")),
                    lines("Checkpoint size", "bytes", "Of the latest checkpoint.",
                          Query(_train("checkpoint_bytes"), "size")),
                    lines("Checkpoint age", "s", "What would be lost if a parameter server went now, and what is too "
                          "old.",
                          Query(f"cluster:pscluster_train_checkpoint_age_seconds:min{{{_HERE}}}", "age"),
                          Query(f"cluster:pscluster_train_checkpoint_age_limit_seconds:max{{{_HERE}}}", "too old")),
                ),
            ),
        ),
    )  # fmt: skip
