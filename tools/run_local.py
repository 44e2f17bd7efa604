"""`make run`: start a local cluster, run its jobs, and stop it in any case.

Ctrl-C in a terminal reaches `fab deploy start` directly, which ends its job with the result so far;
this program passes SIGTERM and SIGHUP on. Then it stops the cluster; the status is that of `start`
(of `stop` where only that failed). A cluster that ran before runs the jobs and stays up. A second
`make run` of the same inventory is refused: its stop would end the first one's jobs.
"""

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

FAB = Path(sys.executable).with_name("fab")
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
USAGE = 2
STATUS_KNOWN = (0, 3)
"""Exit codes with which `fab deploy status` has an answer: every role ready, or not."""


def is_alone(inventory: str) -> bool:
    """Lock the inventory until this process ends; False while another process has the lock.

    An inventory that cannot be opened is `fab`'s to refuse.
    """
    try:
        fcntl.flock(os.open(inventory, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def run(inventory: str, extra: Sequence[str], fab: Sequence[str] = (str(FAB),)) -> int:
    """Return the exit status of `fab deploy start --inventory INVENTORY EXTRA`, after a stop.

    It is that of a usage error while another `make run` uses this inventory.
    """
    if not is_alone(inventory):
        print(
            f"another `make run` uses the cluster of {inventory}: wait for its end, or start one"
            " of your own: fab init --local --out mine.yaml; make run INVENTORY=mine.yaml",
            file=sys.stderr,
        )
        return USAGE
    start: subprocess.Popen[bytes] | None = None
    received: list[int] = []

    def pass_on(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        if start is not None and number != signal.SIGINT:
            start.send_signal(number)

    for number in SIGNALS:
        signal.signal(number, pass_on)
    looked = _looked(inventory, fab)
    if received:
        return 128 + received[0]
    if looked.returncode not in STATUS_KNOWN:
        sys.stderr.write(looked.stderr)
        return _shell_status(looked.returncode)
    was_running = not _is_stopped(looked)
    if was_running:
        extra = [*extra, "--jobs"]
    # A child inherits ignored signals, not handlers: `start` handles Ctrl-C as if typed by hand.
    environment = dict(os.environ)
    if not was_running:
        environment["PSCLUSTER_STOPS_AFTER"] = "1"  # for the line of an interrupted start
    start = subprocess.Popen(
        [*fab, "deploy", "start", "--inventory", inventory, *extra], env=environment
    )
    # Signals from before `start`, a terminal's Ctrl-C included: twice this early does no harm.
    for early in tuple(received):
        start.send_signal(early)
    status = _shell_status(start.wait())
    if received and status == 0:
        status = 128 + received[0]
    if was_running:
        print(
            "the cluster ran before and stays up; to end it: fab deploy stop --inventory"
            f" {inventory}"
        )
        return status
    if status == USAGE and _is_stopped(_looked(inventory, fab)):
        return status  # nothing was started, and the refusal is the last line
    # Stopping has deadlines of its own; a second Ctrl-C must not leave half a cluster behind.
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    stop = subprocess.run([*fab, "deploy", "stop", "--inventory", inventory])
    return status or _shell_status(stop.returncode)


def _looked(inventory: str, fab: Sequence[str]) -> subprocess.CompletedProcess[str]:
    words = [*fab, "deploy", "status", "--inventory", inventory, "--json"]
    return subprocess.run(words, capture_output=True, text=True)


def _is_stopped(looked: subprocess.CompletedProcess[str]) -> bool:
    return looked.returncode in STATUS_KNOWN and json.loads(looked.stdout)["state"] == "stopped"


def _shell_status(returncode: int) -> int:
    if returncode >= 0:
        return returncode
    return 128 - returncode


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], sys.argv[2:]))
