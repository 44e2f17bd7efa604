"""The folder of all jobs on a node, which only root changes. Runs in the system's Python."""

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

from deploy.rooted.files import (
    FOLDER,
    READ,
    Refused,
    Walk,
    account_ids,
    discard,
    look_over,
    owners,
    put,
    settle,
)

ORDER = ".order"
"""File in the folder of jobs: their ids in order of submission, the oldest first."""
MOST_ORDER_BYTES = 1 << 20
JOB_ID = re.compile(r"[0-9]{8}T[0-9]{4}-[a-z]{1,40}(-[0-9]{1,3})?")


def read_order(jobs: int) -> list[str]:
    """The ids in ORDER; empty where root has not written it."""
    try:
        descriptor = os.open(ORDER, READ, dir_fd=jobs)
    except OSError:
        return []
    with os.fdopen(descriptor, "rb") as stream:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid not in owners():
            return []
        entries = stream.read(MOST_ORDER_BYTES).decode("ascii", errors="replace").split()
    return [word for word in entries if JOB_ID.fullmatch(word)]


def in_order(jobs: int) -> list[str]:
    """Return the existing jobs, the oldest first; those without ORDER come before all."""
    order = read_order(jobs)
    existing_jobs = {name for name in os.listdir(jobs) if JOB_ID.fullmatch(name)}
    return sorted(existing_jobs - set(order)) + [name for name in order if name in existing_jobs]


def alive() -> set[str] | None:
    """The jobs whose unit has not ended; None where systemd does not answer."""
    command = ["systemctl", "list-units", "--plain", "--no-legend", "pscluster-job@*"]
    states = "--state=active,activating,deactivating,reloading"
    try:
        outcome = subprocess.run(
            [*command, states], stdin=subprocess.DEVNULL, capture_output=True, timeout=20
        )
    except (OSError, subprocess.SubprocessError):
        return None
    if outcome.returncode:
        return None
    listing = outcome.stdout.decode("utf-8", errors="replace")
    return set(re.findall(r"pscluster-job@(\S+)\.service", listing))


def write_order(jobs: int, order: Sequence[str]) -> None:
    """Replace ORDER."""
    put(
        jobs,
        ORDER,
        "".join(name + "\n" for name in order).encode(),
        0o644,
        os.geteuid(),
        os.getegid(),
    )


@contextlib.contextmanager
def jobs_at(path: str) -> Iterator[int]:
    """The folder of all jobs, locked against other submissions and removals."""
    with Walk(path) as walk:
        look_over(walk.path, os.fstat(walk.here))
        fcntl.flock(walk.here, fcntl.LOCK_EX)
        yield walk.here


def new_job(path: str, owner: str, retained_jobs: str, first: str) -> None:
    """Make a job's folder, named `first` or `first-2` and so on, with the files on stdin (JSON).

    The account owns it once it is complete. The newest `retained_jobs` ended
    jobs stay. Prints the id.
    """
    uid, gid = account_ids(owner)
    files = {name: base64.b64decode(content) for name, content in json.load(sys.stdin).items()}
    if not JOB_ID.fullmatch(first):
        raise Refused(f"{first!r}: expected an id such as 20261121T2230-train")
    with jobs_at(path) as jobs:
        order = in_order(jobs)
        name = free_name(jobs, first)
        try:
            folder = os.open(name, FOLDER, dir_fd=jobs)
            try:
                for file_name, content in files.items():
                    put(folder, file_name, content, 0o644, os.geteuid(), os.getegid())
                settle(folder, 0o750, uid, gid)
            finally:
                os.close(folder)
            gone = too_old(order, int(retained_jobs) - 1)
            write_order(jobs, [*(job for job in order if job not in gone), name])
        except BaseException:
            discard(jobs, name)
            raise
        for job in gone:
            # Its account may change it meanwhile: the next submission retries.
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                discard(jobs, job)
    print(name)


def free_name(jobs: int, first: str) -> str:
    """Make the folder, for root alone, and return its name."""
    for number in range(1, 1000):
        if number == 1:
            name = first
        else:
            name = f"{first}-{number}"
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=jobs)
            return name
    raise Refused(
        f"{first}: expected fewer than a thousand jobs a minute: wait for the next minute"
    )


def too_old(order: Sequence[str], retained_jobs: int) -> set[str]:
    """Ended jobs beyond the newest `retained_jobs`; empty where systemd does not answer."""
    old = order[: max(0, len(order) - retained_jobs)]
    if old:
        live = alive()
    else:
        live = set()
    if live is None:
        return set()
    return {name for name in old if name not in live}


def drop_job(path: str, name: str) -> None:
    """Remove a job that never started: one without a state and without a running unit."""
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
