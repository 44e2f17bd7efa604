"""Role processes that a supervisor left behind when it was killed, and clearing them away before the next start.

The kernel kills them with their supervisor; this waits until it has, and ends any that got away, so that the
ports are free when the same roles are started again.
"""

import json
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from cluster.errors import ClusterError
from deploy.common.file_lock import FileLock, LockHeldError
from deploy.common.state_folder import StateFolder
from deploy.supervisor.process_facts import ProcessIdentity


def remember(path: Path, alive: Iterable[ProcessIdentity]) -> None:
    """Write the processes now alive, replacing the file in one step."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps({"processes": [asdict(identity) for identity in alive]}) + "\n")
    partial.replace(path)


def recall(path: Path) -> tuple[ProcessIdentity, ...]:
    """The processes last written; empty when there is no file or it cannot be read."""
    try:
        records = json.loads(path.read_text())["processes"]
        return tuple(ProcessIdentity(**record) for record in records)
    except (OSError, ValueError, KeyError, TypeError):
        return ()


def clear(path: Path, deadline_seconds: float = 10.0) -> tuple[int, ...]:
    """End every remembered process that still lives and forget them all; returns the pids that had to be killed.

    The caller holds the cluster's lock: the processes of a living supervisor are remembered in the same file.
    Raises ClusterError naming the pids that survive SIGKILL until the deadline (a process hung in the kernel).
    """
    living = [identity for identity in recall(path) if identity.kill()]
    deadline = time.monotonic() + deadline_seconds
    while remaining := [identity.pid for identity in living if identity.alive()]:
        if time.monotonic() > deadline:
            raise ClusterError(
                f"processes {remaining} of an earlier supervisor do not die within {deadline_seconds:.0f} s of SIGKILL;"
                " they hang in the kernel (a dead disk or network mount): reboot the machine"
            )
        time.sleep(0.02)
    path.unlink(missing_ok=True)
    return tuple(identity.pid for identity in living)


def clear_folder(folder: StateFolder) -> bool:
    """Clear away what a dead supervisor left in `folder`; False, and nothing touched, while one lives. Raises as above.

    Under the lock, because a `start` may follow upon the end that a `stop` has waited for.
    """
    if not folder.path.exists():
        return True
    try:
        lock = FileLock(folder.lock)
    except LockHeldError:
        return False
    with lock:
        clear(folder.roles)
        folder.remove_sockets()
        folder.pid.unlink(missing_ok=True)
    return True
