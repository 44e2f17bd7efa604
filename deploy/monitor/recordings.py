"""The recorded series: expressions that alerts and dashboards share, or that span a longer time. Pure.

Levels: `process` is (cluster, node, process), `node` is (cluster, node), `worker` is (cluster, task), `run` is
(cluster, run), `cluster` is (cluster). The coordinator exports the metrics of a job, so their target labels `node` and
`process` are the coordinator's, and `task` names the worker.
"""

from deploy.monitor.rule import Recording

TRAINING = '(pscluster_job_stage{stage=~"train|refit"} == 1)'
"""One series while a model is trained; for `and on (cluster)`."""

_SILENT_REPLIES = 5
"""Missing replies that make a stall: a Pi 3 may need a minute for one step."""


def _mean(metric: str, level: str, window: str) -> str:
    count = f"sum by ({level}) (rate({metric}_count[{window}]))"
    return f"sum by ({level}) (rate({metric}_sum[{window}])) / ({count} > 0)"


def _pace(window: str, seconds: int) -> str:
    """Replies a second over the window against the usual rate, where the window spans enough replies."""
    usual = "cluster:pscluster_train_steps:rate30m"
    recent = f"sum by (cluster) (rate(pscluster_train_steps_total[{window}]))"
    return f"{recent} / ({usual} >= {_SILENT_REPLIES / seconds:g})"


CHECKPOINT_AGE_LIMIT = "cluster:pscluster_train_checkpoint_age_limit_seconds:max"
_LEAST_CHECKPOINT_AGE_SECONDS = 600
_MISSED_CHECKPOINTS = 10
_NAMES = "pscluster_train_checkpoint_last_success_timestamp_seconds|pscluster_process_start_time_seconds"
# A killed Prometheus never marks the series of a finished run stale: it shows both runs for five minutes.
_LATEST_RUN = "topk by (cluster) (1, timestamp(pscluster_job_info))"
_OFFSET = "node:pscluster_node_clock_offset_seconds:min"
_ROUND = "pscluster_train_round_trip_seconds"
_ROUND_OF_RUN = f"run:{_ROUND}:mean2m"
_ROUND_OF_WORKER = f"worker:{_ROUND}:mean5m"
_LEVEL_OF_MOUNT = "cluster, node, mount"

RECORDINGS: tuple[Recording, ...] = (
    # A coordinator exists only while a job runs, so its absence means nothing.
    Recording(
        "process:pscluster_up:max",
        'max by (cluster, node, process) (up{job="pscluster", process!~"coordinator:.*"})',
    ),
    Recording("process:pscluster_ready:min", "min by (cluster, node, process) (pscluster_ready)"),
    Recording(
        "process:pscluster_restarts:changes15m",
        'max by (cluster, node, process) (changes(pscluster_process_start_time_seconds{role!="coordinator"}[15m]))',
    ),
    Recording("cluster:pscluster_train_windows:rate1m", "sum by (cluster) (rate(pscluster_train_windows_total[1m]))"),
    Recording(
        "worker:pscluster_train_windows:rate1m", "sum by (cluster, task) (rate(pscluster_train_windows_total[1m]))"
    ),
    Recording("cluster:pscluster_train_steps:rate30m", "sum by (cluster) (rate(pscluster_train_steps_total[30m]))"),
    Recording(
        "cluster:pscluster_train_pace:ratio",
        f"({_pace('2m', 120)} or {_pace('10m', 600)}) and on (cluster) {TRAINING}",
    ),
    # By run: the next run may have another model, and is not slower for that.
    Recording(
        _ROUND_OF_RUN,
        f"({_mean(_ROUND, 'cluster', '2m')}) * on (cluster) group_left (run) group by (cluster, run) ({_LATEST_RUN})",
    ),
    Recording("run:pscluster_train_slowdown:ratio", f"{_ROUND_OF_RUN} / quantile_over_time(0.5, {_ROUND_OF_RUN}[1h])"),
    Recording(_ROUND_OF_WORKER, _mean(_ROUND, "cluster, task", "5m")),
    # The median of two workers would be the mean of both: compare with the other one.
    Recording(
        "worker:pscluster_train_straggling:ratio",
        f"{_ROUND_OF_WORKER} / on (cluster) group_left () "
        f"((quantile by (cluster) (0.5, {_ROUND_OF_WORKER}) and count by (cluster) ({_ROUND_OF_WORKER}) > 2) "
        f"or min by (cluster) ({_ROUND_OF_WORKER}))",
    ),
    # Ten minutes long, because the coordinator that exports it soon ends.
    Recording(
        "cluster:pscluster_train_loss_finite:min10m",
        "min by (cluster) (min_over_time(pscluster_train_loss_finite[10m]))",
    ),
    # Before the first checkpoint: the time since the coordinator started.
    Recording(
        "cluster:pscluster_train_checkpoint_age_seconds:min",
        f'(time() - max by (cluster) ({{__name__=~"{_NAMES}", role="coordinator"}})) and on (cluster) {TRAINING}',
    ),
    # By the job's own setting, which may differ from its inventory's; each cluster by its own.
    Recording(
        CHECKPOINT_AGE_LIMIT,
        f"clamp_min({_MISSED_CHECKPOINTS} * max by (cluster) (pscluster_train_checkpoint_interval_seconds), "
        f"{_LEAST_CHECKPOINT_AGE_SECONDS})",
    ),
    Recording(
        "node:pscluster_node_memory_available:ratio",
        "min by (cluster, node) (pscluster_node_memory_available_bytes / pscluster_node_memory_total_bytes)",
    ),
    Recording(
        "node:pscluster_node_under_voltage:max2m",
        'max by (cluster, node) (max_over_time(pscluster_node_throttled{condition="under_voltage", since="now"}[2m]))',
    ),
    Recording(
        "node:pscluster_node_slowed:max",
        'max by (cluster, node) (pscluster_node_throttled{condition!="under_voltage", since="now"})',
    ),
    Recording("node:pscluster_node_nfs_up:min", f"min by ({_LEVEL_OF_MOUNT}) (pscluster_node_nfs_up)"),
    Recording(
        "node:pscluster_node_nfs_probe_seconds:max", f"max by ({_LEVEL_OF_MOUNT}) (pscluster_node_nfs_probe_seconds)"
    ),
    # Against Prometheus's clock, late by the time of the answer: the smallest delay is the most exact.
    Recording(_OFFSET, "min by (cluster, node) (pscluster_node_time_seconds - timestamp(pscluster_node_time_seconds))"),
    Recording(
        "node:pscluster_node_clock_apart_seconds:abs",
        f"abs({_OFFSET} - on (cluster) group_left () quantile by (cluster) (0.5, {_OFFSET}))",
    ),
    Recording(
        "node:pscluster_node_filesystem_available:ratio",
        f"min by ({_LEVEL_OF_MOUNT}) "
        "(pscluster_node_filesystem_available_bytes / pscluster_node_filesystem_size_bytes)",
    ),
)
