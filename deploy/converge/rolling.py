"""Stopping and restarting roles over a cluster, some nodes at a time. Pure."""

import shlex
from collections.abc import Iterator, Sequence

_ALIVE = "systemctl list-units --plain --no-legend --state=active,activating,failed"


def batches(names: Sequence[str], serial: int) -> Iterator[list[str]]:
    """`serial` names at a time, all at once for 0."""
    size = serial or max(1, len(names))
    for start in range(0, len(names), size):
        yield list(names[start : start + size])


def stop_script() -> str:
    """Interrupts a running job, then stops and disables every role; prints the units that ran."""
    return f"""\
jobs=$(systemctl list-units --plain --no-legend --state=active,activating 'pscluster-job@*' | awk '{{ print $1 }}')
[ -z "$jobs" ] || systemctl stop $jobs
units=$({_ALIVE} 'pscluster-ps-*' 'pscluster-worker-*' | awk '{{ print $1 }}')
[ -z "$units" ] || systemctl disable --quiet --now $units || exit 1
[ -z "$units" ] || systemctl reset-failed $units 2>/dev/null
echo $units
"""


def restart_script(units: Sequence[str]) -> str:
    """Restarts units and waits until they are up.

    SIGTERM ends a role at once. What a worker that was not drained was computing the engine gives to another one, and
    nothing is applied twice.
    """
    words = " ".join(shlex.quote(unit) for unit in units)
    units_of_journal = " ".join(f"-u {shlex.quote(unit)}" for unit in units)
    return f"systemctl restart {words} || {{ journalctl -q -o cat --no-pager -n 8 {units_of_journal} >&2; exit 1; }}"
