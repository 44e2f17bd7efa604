"""`make run`: start a local cluster, run its jobs, and stop it again whatever happened in between.

Ctrl-C in a terminal reaches `fab deploy start` directly, which ends its job with the result so far; SIGTERM and SIGHUP
are passed on. Then the cluster is stopped, and the status is that of `start` (of `stop` where only that failed).
"""

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

FAB = Path(sys.executable).with_name("fab")


def run(inventory: str, extra: Sequence[str], fab: Sequence[str] = (str(FAB),)) -> int:
    """Exit status of `fab deploy start --inventory INVENTORY EXTRA`, after `fab deploy stop` of the same inventory."""
    start: subprocess.Popen[bytes] | None = None
    received: list[int] = []

    def pass_on(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        if start is not None and number != signal.SIGINT:
            start.send_signal(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, pass_on)
    # A child inherits ignored signals, not handlers: `start` meets Ctrl-C as if it had been typed by hand.
    start = subprocess.Popen([*fab, "deploy", "start", "--inventory", inventory, *extra])
    status = _shell_status(start.wait())
    # Stopping has deadlines of its own; a second Ctrl-C must not leave half a cluster behind.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    stopped = _shell_status(subprocess.run([*fab, "deploy", "stop", "--inventory", inventory], check=False).returncode)
    if status == 0 and received:
        status = 128 + received[0]
    return status or stopped


def _shell_status(returncode: int) -> int:
    return returncode if returncode >= 0 else 128 - returncode


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], sys.argv[2:]))
