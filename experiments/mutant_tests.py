"""The draw of `experiments.mutants`, and the tests nearest to each drawn module then."""

from collections.abc import Mapping, Sequence

CORE = {
    "atomic_write",
    "asking",
    "checkpoints",
    "consistency",
    "control",
    "data",
    "engine",
    "errors",
    "exported",
    "host_names",
    "inventory",
    "json_file",
    "lazy",
    "logs",
    "metrics",
    "models",
    "parameters",
    "plausible",
    "registry",
    "server",
    "shell",
    "status",
    "user_cache",
}
"""Rooms of cluster/ that become core/."""

DRAWN = {"core": 4, "cluster": 3, "deploy": 3, "recognise": 1, "roles": 1}
"""Modules by floor, in the order of drawing; `roles` is ps_node, worker_node and pscluster."""


def _of(folder: str, *names: str) -> list[str]:
    return [f"tests/{folder}/test_{name}.py" for name in names]


TESTS: Mapping[str, Sequence[str]] = {
    "cluster/checkpoints/manifest.py": _of("checkpoints", "superseded", "round_trip", "damage"),
    "cluster/exported/timed/turns.py": _of("benchmarks", "inference") + _of("exported", "timed"),
    "cluster/models/network.py": _of(
        "models", "initial", "batch_norm", "instance_norm", "distillation", "augmentation"
    ),
    "cluster/status/thinning.py": _of("status", "thinning", "state", "figures"),
    "cluster/export/trained_run.py": _of("export", "refusals"),
    "cluster/apps/compiled.py": _of("apps", "compiled"),
    "cluster/jobs/sweep_places.py": _of("sweeps", "shown", "from_python", "sweep_of_an_app"),
    "deploy/converge/memory_estimate.py": [
        *_of("deploy/converge", "new_subject", "publication", "devices_of_nodes", "preflight"),
        *_of("sweeps", "outlook"),
        *_of("deploy/apps", "outlook"),
        *_of("deploy/converge", "check_of_this_machine"),
    ],
    "deploy/commands/inference.py": _of("deploy/commands", "inference_command"),
    "deploy/logs/sources.py": _of("deploy/logs", "chosen", "journal", "node_logs"),
    "recognise/service/page/files.py": _of("service", "page"),
    "ps_node/shards.py": _of("ps_node", "shards"),
}
"""Tests by module: those that import it or reach most of its lines, within about eight seconds.

These import the module too and are slower: test_export.py for trained_run; test_networks.py,
test_spectral.py and test_no_collapse.py, and tests of jobs/ and worker_node/, for network;
test_optimizers.py and tests of engine/ for shards; test_log_merge.py and test_ssh_logs.py for
sources. test_plan.py, test_mounts.py and two more pass an estimate of memory_estimate along.
"""
