"""The alerts a Pi owner wants; docs/runbook.md has a section for each. Pure."""

from deploy.monitor.recordings import CHECKPOINT_AGE_LIMIT
from deploy.monitor.rule import Alert

_OF_ROLES = (
    Alert(
        "PsclusterRoleDown", "process:pscluster_up:max", "== 0", "30s", "critical",
        "{{ $labels.process }} on {{ $labels.node }} does not answer",
        """The metrics port of {{ $labels.process }} on {{ $labels.node }} has not answered for 30 s. Look at
        `fab deploy status` and `fab deploy logs --node {{ $labels.node }}`; `fab deploy start --no-jobs` brings back
        what can be brought back.""",
        "role-down",
    ),
    Alert(
        "PsclusterRoleNotReady", "process:pscluster_ready:min", "== 0", "2m", "critical",
        "{{ $labels.process }} on {{ $labels.node }} is up and not ready",
        """The process answers, and its TensorFlow server has not been ready for two minutes. Its log says what it waits
        for: `fab deploy logs --role {{ $labels.process }}`.""",
        "role-not-ready",
    ),
    Alert(
        "PsclusterRoleKeepsRestarting", "process:pscluster_restarts:changes15m", "> 3", "0s", "warning",
        "{{ $labels.process }} on {{ $labels.node }} keeps restarting",
        """It was started anew {{ $value | humanize }} times within 15 minutes. Its log has the line in which it says
        why: `fab deploy logs --role {{ $labels.process }}`. Memory is the usual reason.""",
        "role-keeps-restarting",
    ),
)  # fmt: skip

_OF_TRAINING = (
    Alert(
        "PsclusterTrainingStalled", "cluster:pscluster_train_pace:ratio", "== 0", "1m", "critical",
        "training on {{ $labels.cluster }} stands still",
        """No worker has answered for two minutes (ten, where replies are rare), a time in which five replies and
        more are usual. `fab deploy status` says who is frozen or gone; `fab deploy logs --follow` what the
        coordinator does about it.""",
        "training-stalled",
    ),
    Alert(
        "PsclusterStepTimeUp", "run:pscluster_train_slowdown:ratio", "> 1.5", "2m", "warning",
        "steps of {{ $labels.run }} take {{ $value | humanize }} times as long as before",
        """The mean time from a step's dispatch to its reply is more than half above this run's own median of the
        last hour. The training dashboard shows which part grew (pull and push are the network, compute is a node)
        and whether it is one worker or all.""",
        "step-time-up",
    ),
    Alert(
        "PsclusterStraggler", "worker:pscluster_train_straggling:ratio", "> 2", "5m", "warning",
        "worker:{{ $labels.task }} takes {{ $value | humanize }} times as long as the others",
        """Its mean step of five minutes is over twice the median of the workers. Look at its node's temperature,
        throttling, power and load; `fab deploy restart --role worker:{{ $labels.task }}` when the node is
        well.""",
        "straggler",
    ),
    Alert(
        "PsclusterLossNotFinite", "cluster:pscluster_train_loss_finite:min10m", "== 0", "0s", "critical",
        "the loss on {{ $labels.cluster }} is not finite",
        """The job ends with it. Train again from the last checkpoint with a lower learning rate, a smaller
        `clip_norm`, or a mode with less staleness (`ssp`, `sync`).""",
        "loss-not-finite",
    ),
    Alert(
        # For two minutes: the first one comes that much after a long preparation, and the next after a long validation.
        "PsclusterCheckpointStale", "cluster:pscluster_train_checkpoint_age_seconds:min", f"> {CHECKPOINT_AGE_LIMIT}",
        "2m", "warning",
        "no checkpoint on {{ $labels.cluster }} for {{ $value | humanizeDuration }}",
        """One is due about every `checkpoint.every_seconds` of the job, and what was trained since the last one is lost
        if a parameter server goes. Is the runs folder's disk full, or its server away? The coordinator's log names the
        reason.""",
        "checkpoint-stale",
    ),
)  # fmt: skip

_OF_NODES = (
    Alert(
        "PsclusterNodeMemoryShort", "node:pscluster_node_memory_available:ratio", "< 0.1", "2m", "warning",
        "{{ $labels.node }} has little memory left",
        """Less than a tenth of the memory of {{ $labels.node }} can be had. Next the kernel ends a worker. Move a role
        to another node, or train a smaller model; `fab deploy check` adds up what the roles take.""",
        "node-short-of-memory",
    ),
    Alert(
        "PsclusterUnderVoltage", "node:pscluster_node_under_voltage:max2m", "== 1", "0s", "warning",
        "{{ $labels.node }} gets too little voltage",
        """A Pi slows down below 4.63 V, and then its card gets damaged. Use a stronger supply or a shorter, thicker
        cable; a hub rarely feeds more than one.""",
        "under-voltage",
    ),
    Alert(
        "PsclusterThrottled", "node:pscluster_node_slowed:max", "== 1", "1m", "warning",
        "{{ $labels.node }} slows itself down",
        """Its firmware caps the frequency because of heat or power. Cool it: a heat sink, a fan, room between the
        boards. If under-voltage is told too, mend that first.""",
        "throttled",
    ),
    Alert(
        "PsclusterSharedFolderGone", "node:pscluster_node_nfs_up:min", "== 0", "1m", "critical",
        "{{ $labels.node }} does not reach {{ $labels.mount }}",
        """The NFS server has not answered {{ $labels.node }} for a minute. A training goes on, and its checkpoints wait
        for the server. Look at the server first: `fab deploy status --limit storage`.""",
        "shared-folder-gone",
    ),
    Alert(
        "PsclusterSharedFolderSlow", "node:pscluster_node_nfs_probe_seconds:max", "> 1", "5m", "warning",
        "{{ $labels.mount }} is slow on {{ $labels.node }}",
        """One look at the shared folder took {{ $value | humanizeDuration }}. A card that wears out, a busy server or a
        bad cable: compare the nodes, then look at the server's load.""",
        "shared-folder-slow",
    ),
    Alert(
        "PsclusterClocksApart", "node:pscluster_node_clock_apart_seconds:abs", "> 2", "5m", "warning",
        "the clock of {{ $labels.node }} is {{ $value | humanizeDuration }} off",
        """Off against the median of the nodes: logs are in a wrong order, and new files look old. `timedatectl`
        there says whether a time server is reached; `sudo timedatectl set-ntp true` asks for one.""",
        "clocks-apart",
    ),
    Alert(
        "PsclusterDiskNearlyFull", "node:pscluster_node_filesystem_available:ratio", "< 0.1", "5m", "warning",
        "{{ $labels.mount }} of {{ $labels.node }} is nearly full",
        """Less than a tenth is free. Checkpoints and results are refused when nothing is. Old runs, `apt clean`, the
        journal and old releases are what can go.""",
        "disk-nearly-full",
    ),
)  # fmt: skip

ALERTS: tuple[Alert, ...] = (*_OF_ROLES, *_OF_TRAINING, *_OF_NODES)
