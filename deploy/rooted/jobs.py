"""The folder of all jobs on a node, which only root changes. For the system's Python alone."""

import base64
import contextlib
import fcntl
import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

from deploy.rooted.files import discard, put, settle
from deploy.rooted.walk import FOLDER, READ, Refused, Walk, ids, look_over, owners

ORDER = ".order"
"""In the folder of jobs: their ids in the order in which they were submitted, the oldest first."""
MOST_ORDER_BYTES = 1 << 20
JOB_ID = re.compile(r"[0-9]{8}T[0-9]{4}-[a-z]{1,40}(-[0-9]{1,3})?")


def read_order(jobs: int) -> list[str]:
    """The ids in ORDER; none where root has not written it."""
    try:
        descriptor = os.open(ORDER, READ, dir_fd=jobs)
    except OSError:
        return []
    with os.fdopen(descriptor, "rb") as stream:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid not in owners():
            return []
        words = stream.read(MOST_ORDER_BYTES).decode("ascii", errors="replace").split()
    return [word for word in words if JOB_ID.fullmatch(word)]


def in_order(jobs: int) -> list[str]:
    """The jobs that are there, the oldest first; those of versions without ORDER before all others."""
    order = read_order(jobs)
    there = {name for name in os.listdir(jobs) if JOB_ID.fullmatch(name)}
    return sorted(there - set(order)) + [name for name in order if name in there]


def alive() -> set[str] | None:
    """The jobs whose unit has not ended; None where systemd does not say."""
    words = ["systemctl", "list-units", "--plain", "--no-legend", "pscluster-job@*"]
    states = "--state=active,activating,deactivating,reloading"
    try:
        asked = subprocess.run([*words, states], stdin=subprocess.DEVNULL, capture_output=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return None
    if asked.returncode:
        return None
    said = asked.stdout.decode("utf-8", errors="replace")
    return set(re.findall(r"pscluster-job@(\S+)\.service", said))


def write_order(jobs: int, order: Sequence[str]) -> None:
    """ORDER anew."""
    put(jobs, ORDER, "".join(name + "\n" for name in order).encode(), 0o644, os.geteuid(), os.getegid())


@contextlib.contextmanager
def jobs_at(path: str) -> Iterator[int]:
    """The folder of all jobs, held against others who submit or remove one."""
    with Walk(path) as walk:
        look_over(walk.path, os.fstat(walk.here))
        fcntl.flock(walk.here, fcntl.LOCK_EX)
        yield walk.here


def new_job(path: str, owner: str, kept: str, first: str) -> None:
    """A folder for a job, named `first` or `first-2` and so on, with the files that come on stdin as JSON.

    It belongs to the account when it is complete. Of ended jobs the oldest go beyond `kept`. Prints the id.
    """
    uid, gid = ids(owner)
    files = {name: base64.b64decode(content) for name, content in json.load(sys.stdin).items()}
    if not JOB_ID.fullmatch(first):
        raise Refused(f"{first!r}: expected an id such as 20261121T2230-train")
    with jobs_at(path) as jobs:
        order = in_order(jobs)
        name = free_name(jobs, first)
        try:
            folder = os.open(name, FOLDER, dir_fd=jobs)
            try:
                for one, content in files.items():
                    put(folder, one, content, 0o644, os.geteuid(), os.getegid())
                settle(folder, 0o750, uid, gid)
            finally:
                os.close(folder)
            gone = too_old(order, int(kept) - 1)
            write_order(jobs, [*(one for one in order if one not in gone), name])
        except BaseException:
            discard(jobs, name)
            raise
        for one in gone:
            # Its account may change it meanwhile: the next submission tries again.
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                discard(jobs, one)
    print(name)


def free_name(jobs: int, first: str) -> str:
    """Makes the folder, for nobody but root yet."""
    for number in range(1, 1000):
        name = first if number == 1 else f"{first}-{number}"
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=jobs)
            return name
    raise Refused(f"{first}: a thousand jobs were submitted in one minute: wait for the next")


def too_old(order: Sequence[str], kept: int) -> set[str]:
    """Of the jobs in their order those beyond the newest `kept` that have ended; none where nobody knows."""
    old = order[: max(0, len(order) - kept)]
    live = alive() if old else set()
    return set() if live is None else {name for name in old if name not in live}


def drop_job(path: str, name: str) -> None:
    """A job that never began goes: without its state, and with no unit that runs."""
    if not JOB_ID.fullmatch(name):
        raise Refused(f"{name!r}: expected the id of a job")
    live = alive()
    if live is None or name in live:
        return
    with jobs_at(path) as jobs:
        try:
            os.stat(name + "/state.json", dir_fd=jobs, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            discard(jobs, name)
            write_order(jobs, in_order(jobs))


JOB_VERBS: Mapping[str, Callable[..., None]] = {"new-job": new_job, "drop-job": drop_job}
