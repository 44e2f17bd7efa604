"""The flags of the commands: what `--help` says of each, and reading the ones that are numbers."""

from cluster.errors import UsageError
from cluster.inventory.extensions import CODECS, MODELS, MODES

HELP = {
    "action": "what to do",
    "job": "id of the job, as `fab job list` shows it; else the one that runs, or the newest",
    "checkpoints": "fetch the checkpoints of the run too",
    "inventory": "the cluster's file; else $PSCLUSTER_INVENTORY, else ./inventory.yaml",
    "set_": "override a key of the inventory for this call, e.g. jobs.train.epochs=3 (repeatable)",
    "json_": "one JSON object for programs instead of text for people",
    "quiet": "no progress of jobs",
    "log_format": "of the logs: text, or json for one JSON object a line",
    "log_level": "the least that is logged: debug, info, warning or error",
    "jobs": "run the inventory's jobs also when the cluster is running already",
    "no_jobs": "only start the roles",
    "role": "only this role: ps, worker or e.g. worker:1 (repeatable)",
    "node": "only the roles of this node (repeatable)",
    "limit": "only these nodes, by name or by role (repeatable, or with commas)",
    "retry": "only the nodes that failed in the last deployment; all of one that was cut short",
    "dry_run": "show the plan, change nothing",
    "serial": "restart so many nodes at a time; 0 is all at once",
    "since": "lines from then on, e.g. '10 min ago', 'today' or '22:45'",
    "yes": "do not ask",
    "with_data": "remove the shared data and the runs too",
    "run_command": "a command line for the node; else a shell",
    "watch": "show it again every so many seconds (2) until Ctrl-C",
    "follow": "then show every later line until Ctrl-C",
    "lines": "how many last lines; 20, or all with --since and --run",
    "mode": f"how updates meet: {MODES.words()}",
    "codec": f"numbers on the wire: {CODECS.words()}",
    "model": MODELS.words(),
    "hidden": "units of each recurrent layer, 8 to 256",
    "epochs": "passes over the training windows",
    "seed": "of everything random in the job",
    "data": "recordings: a zip, a folder, an .npz, or `synthetic`",
    "refit": "train with some subjects held out, then once more on all of them",
    "resume": "resume the newest unfinished training run, or that of --run",
    "chaos": "faults to inject, e.g. kill-worker:0.1,stop-worker:0.05",
    "samples": "random points of the pi job",
    "run": "folder of the run: of the training to evaluate or to resume, else the newest; or whose logs are meant",
    "local": "a cluster of processes on this machine",
    "workers": "how many workers",
    "ps": "how many parameter servers",
    "hosts": "a cluster of machines: addresses and ranges, e.g. 192.168.1.16-31",
    "user": "account on every host",
    "out": "where to write: a file (`init`; else it is printed), a folder (`deploy monitor`)",
    "force": "overwrite the file",
}
"""By parameter name; `set_` and `json_` are the flags --set and --json, which Python already uses as names."""

REPEATABLE = frozenset({"set_", "role", "node", "limit"})

OPTIONAL = frozenset({"watch"})
"""Flags that may stand without a value."""


def whole_number(flag: str, text: str, low: int, high: int) -> int:
    """The value of a flag: `1000000`, `1_000_000` or `1e6`. Raises UsageError unless it is from `low` to `high`."""
    try:
        number = int(text)
    except ValueError:
        try:
            real = float(text)
            number = int(real) if real == int(real) else low - 1
        except (ValueError, OverflowError):
            number = low - 1
    if not low <= number <= high:
        raise UsageError(f"{flag}: expected a whole number from {low} to {high}, got {text!r}")
    return number
