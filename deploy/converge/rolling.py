"""Stopping and restarting roles over a cluster, some nodes at a time. Pure."""

from collections.abc import Iterator, Sequence

from deploy.common.command_line import quoted

_RUNNING = "systemctl list-units --plain --no-legend --state=active,activating"
_ALIVE = f"{_RUNNING},failed"


def batches(names: Sequence[str], serial: int) -> Iterator[list[str]]:
    """`serial` names at a time, all at once for 0."""
    size = serial or max(1, len(names))
    for start in range(0, len(names), size):
        yield list(names[start : start + size])


def interrupt_script() -> str:
    """Interrupts the jobs of the coordinator's node, and returns when they have left what they have."""
    return f"""\
jobs=$({_RUNNING} 'pscluster-job@*' | awk '{{ print $1 }}')
[ -z "$jobs" ] || systemctl stop $jobs
"""


def stop_script() -> str:
    """Stops and disables every role; prints the units that ran. A job that is left, of an old coordinator, goes too."""
    return f"""\
{interrupt_script()}units=$({_ALIVE} 'pscluster-ps-*' 'pscluster-worker-*' | awk '{{ print $1 }}')
[ -z "$units" ] || systemctl disable --quiet --now $units || exit 1
[ -z "$units" ] || systemctl reset-failed $units 2>/dev/null
echo $units
"""


def restart_script(units: Sequence[str]) -> str:
    """Restarts units and waits until they are up.

    SIGTERM ends a role at once. What a worker that was not drained was computing the engine gives to another one, and
    nothing is applied twice.
    """
    of_units = [word for unit in units for word in ("-u", unit)]
    journal = quoted("journalctl", "-q", "-o", "cat", "--no-pager", "-n", 8, *of_units)
    return f"{quoted('systemctl', 'restart', *units)} || {{ {journal} >&2; exit 1; }}"
