"""The alerts; docs/runbook.md has a section for each, docs/how-to-add/alert.md shows how to add one. Pure."""

from deploy.monitor.recordings import CHECKPOINT_AGE_LIMIT
from deploy.monitor.rule import Alert

_OF_ROLES = (
    Alert(
        "PsclusterRoleDown", "process:pscluster_up:max", "== 0", "30s", "critical",
        "{{ $labels.process }} on {{ $labels.node }} does not answer",
        """The metrics port of {{ $labels.process }} on {{ $labels.node }} has not answered for 30 s. Look at
        `fab deploy status` and `fab deploy logs --node {{ $labels.node }}`; `fab deploy start --no-jobs` starts the
        roles that are down.""",
        "role-down",
    ),
    Alert(
        "PsclusterRoleNotReady", "process:pscluster_ready:min", "== 0", "2m", "critical",
        "{{ $labels.process }} on {{ $labels.node }} is up and not ready",
        """The process answers, but its TensorFlow server has not been ready for two minutes. Its log says why:
        `fab deploy logs --role {{ $labels.process }}`.""",
        "role-not-ready",
    ),
    Alert(
        "PsclusterRoleKeepsRestarting", "process:pscluster_restarts:changes15m", "> 3", "0s", "warning",
        "{{ $labels.process }} on {{ $labels.node }} keeps restarting",
        """It restarted {{ $value | humanize }} times within 15 minutes. Its log has the reason:
        `fab deploy logs --role {{ $labels.process }}`. The usual one is a lack of memory.""",
        "role-keeps-restarting",
    ),
)  # fmt: skip

_OF_TRAINING = (
    Alert(
        "PsclusterTrainingStalled", "cluster:pscluster_train_pace:ratio", "== 0", "1m", "critical",
        "training on {{ $labels.cluster }} has stalled",
        """No worker has answered for two minutes (ten, where replies are rare), a time in which five or more replies
        are usual. `fab deploy status` names the frozen and the lost workers; `fab deploy logs --follow` shows how
        the coordinator reacts.""",
        "training-stalled",
    ),
    Alert(
        "PsclusterStepTimeUp", "run:pscluster_train_slowdown:ratio", "> 1.5", "2m", "warning",
        "steps of {{ $labels.run }} take {{ $value | humanize }} times as long as before",
        """The mean time from a step's dispatch to its reply is over 1.5 times this run's median of the last hour.
        The training dashboard shows which part grew (pull and push are the network, compute is a node), and
        whether one worker or all of them are slower.""",
        "step-time-up",
    ),
    Alert(
        "PsclusterStraggler", "worker:pscluster_train_straggling:ratio", "> 2", "5m", "warning",
        "worker:{{ $labels.task }} takes {{ $value | humanize }} times as long as the others",
        """Its mean step of five minutes is over twice the median of the workers. Check its node's temperature,
        throttling, power and load; `fab deploy restart --role worker:{{ $labels.task }}` if the node is
        healthy.""",
        "straggler",
    ),
    Alert(
        "PsclusterLossNotFinite", "cluster:pscluster_train_loss_finite:min10m", "== 0", "0s", "critical",
        "the loss on {{ $labels.cluster }} is not finite",
        """The job has ended. Train again from the last checkpoint with a lower learning rate, a smaller
        `clip_norm`, or a mode with less staleness (`ssp`, `sync`).""",
        "loss-not-finite",
    ),
    Alert(
        # Two minutes: a checkpoint comes that late after a long preparation or a long validation.
        "PsclusterCheckpointStale", "cluster:pscluster_train_checkpoint_age_seconds:min", f"> {CHECKPOINT_AGE_LIMIT}",
        "2m", "warning",
        "no checkpoint on {{ $labels.cluster }} for {{ $value | humanizeDuration }}",
        """One is due about every `checkpoint.every_seconds` of the job. A lost parameter server would cost all training
        since the latest one. Check whether the disk of the runs folder is full or its server down; the coordinator's
        log names the reason.""",
        "checkpoint-stale",
    ),
)  # fmt: skip

_OF_NODES = (
    Alert(
        "PsclusterNodeMemoryShort", "node:pscluster_node_memory_available:ratio", "< 0.1", "2m", "warning",
        "{{ $labels.node }} has little memory left",
        """Less than a tenth of the memory of {{ $labels.node }} is available. Next the kernel kills a worker. Move a
        role to another node, or train a smaller model; `fab deploy check` adds up the memory of the roles.""",
        "node-short-of-memory",
    ),
    Alert(
        "PsclusterUnderVoltage", "node:pscluster_node_under_voltage:max2m", "== 1", "0s", "warning",
        "{{ $labels.node }} gets too little voltage",
        """A Pi slows down below 4.63 V, and its card may be damaged. Use a stronger power supply or a shorter, thicker
        cable; a hub rarely feeds more than one Pi.""",
        "under-voltage",
    ),
    Alert(
        "PsclusterThrottled", "node:pscluster_node_slowed:max", "== 1", "1m", "warning",
        "{{ $labels.node }} is throttled",
        """Its firmware caps the frequency because of heat or power. Cool it: a heat sink, a fan, space between the
        boards. If the under-voltage alert fires too, fix that first.""",
        "throttled",
    ),
    Alert(
        "PsclusterSharedFolderGone", "node:pscluster_node_nfs_up:min", "== 0", "1m", "critical",
        "{{ $labels.node }} does not reach {{ $labels.mount }}",
        """The NFS server has not answered {{ $labels.node }} for a minute. A training continues, and its checkpoints
        wait for the server. Check the server first: `fab deploy status --limit storage`.""",
        "shared-folder-gone",
    ),
    Alert(
        "PsclusterSharedFolderSlow", "node:pscluster_node_nfs_probe_seconds:max", "> 1", "5m", "warning",
        "{{ $labels.mount }} is slow on {{ $labels.node }}",
        """One access to the shared folder took {{ $value | humanizeDuration }}. The cause is a worn card, a busy server
        or a bad cable: compare the nodes, then check the server's load.""",
        "shared-folder-slow",
    ),
    Alert(
        "PsclusterClocksApart", "node:pscluster_node_clock_apart_seconds:abs", "> 2", "5m", "warning",
        "the clock of {{ $labels.node }} is {{ $value | humanizeDuration }} off",
        """It differs from the median of the nodes: logs are out of order, and new files look old. `timedatectl` there
        shows whether it reaches a time server; `sudo timedatectl set-ntp true` turns the synchronization on.""",
        "clocks-apart",
    ),
    Alert(
        "PsclusterDiskNearlyFull", "node:pscluster_node_filesystem_available:ratio", "< 0.1", "5m", "warning",
        "{{ $labels.mount }} of {{ $labels.node }} is nearly full",
        """Less than a tenth is free. On a full disk checkpoints and results fail. Remove old runs and old releases,
        shrink the journal, or run `apt clean`.""",
        "disk-nearly-full",
    ),
)  # fmt: skip

ALERTS: tuple[Alert, ...] = (*_OF_ROLES, *_OF_TRAINING, *_OF_NODES)
