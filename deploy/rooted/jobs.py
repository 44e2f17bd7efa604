"""The folder of all jobs on a node, which only root changes. Runs in the system's Python."""

import contextlib
import fcntl
import json
import os
import re
import signal
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
    receive,
    settle,
)

ORDER = ".order"
"""File in the folder of jobs: their ids in order of submission, the oldest first."""
MOST_ORDER_BYTES = 1 << 20
PARTIAL = ".partial"
"""Ends the name of what comes from a submission under way."""
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
        ["".join(name + "\n" for name in order).encode()],
        0o644,
        os.geteuid(),
        os.getegid(),
    )


@contextlib.contextmanager
def jobs_at(path: str) -> Iterator[int]:
    """The folder of all jobs. With flock on it, no other submission or removal changes it."""
    with Walk(path) as walk:
        look_over(walk.path, os.fstat(walk.here))
        yield walk.here


def new_job(path: str, owner: str, retained_jobs: str, first: str, listed: str) -> None:
    """Make a job's folder, named `first` or `first-2` and so on, with files that come on stdin.

    `listed`: JSON, name, SHA-256 and bytes of each file; stdin has one after the other and no more.
    The account owns the folder once it is complete. The newest `retained_jobs` ended jobs stay.
    Prints the id.
    """
    uid, gid = account_ids(owner)
    if not JOB_ID.fullmatch(first):
        raise Refused(f"{first!r}: expected an id such as 20261121T2230-train")
    # `timeout` ends this program so; what came goes then too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with jobs_at(path) as jobs:
        partial = f".{first}.{os.getpid()}{PARTIAL}"
        try:
            os.mkdir(partial, 0o700, dir_fd=jobs)
            folder = os.open(partial, FOLDER, dir_fd=jobs)
            try:
                receive_files(folder, listed)
                settle(folder, 0o750, uid, gid)
            finally:
                os.close(folder)
            # Not before: a slow submission holds up no other one.
            fcntl.flock(jobs, fcntl.LOCK_EX)
            order = in_order(jobs)
            name = free_name(jobs, first)
            gone = too_old(order, int(retained_jobs) - 1)
            write_order(jobs, [*(job for job in order if job not in gone), name])
            os.rename(partial, name, src_dir_fd=jobs, dst_dir_fd=jobs)
        except BaseException:
            discard(jobs, partial)
            raise
        for job in gone | abandoned(jobs):
            # Its account may change it meanwhile: the next submission retries.
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                discard(jobs, job)
    print(name)


def receive_files(folder: int, listed: str) -> None:
    """Write the listed files of stdin into the folder."""
    for name, sha256, size in json.loads(listed):
        received, digest = receive(sys.stdin.fileno(), folder, name, size)
        if received != size:
            raise Refused(f"{name}: expected {size:,} bytes, {received:,} came: submit it again")
        if digest != sha256:
            raise Refused(f"{name}: other bytes came than were sent: submit it again")
    if os.read(sys.stdin.fileno(), 1):
        raise Refused("more bytes came than the files have: submit the job again")


def free_name(jobs: int, first: str) -> str:
    """Return the first name that no entry has."""
    existing = set(os.listdir(jobs))
    for name in (first, *(f"{first}-{number}" for number in range(2, 1000))):
        if name not in existing:
            return name
    raise Refused(
        f"{first}: expected fewer than a thousand jobs a minute: wait for the next minute"
    )


def abandoned(jobs: int) -> set[str]:
    """What submissions left whose process is gone."""
    partials = {name for name in os.listdir(jobs) if name.endswith(PARTIAL)}
    return {name for name in partials if not os.path.exists(f"/proc/{name.split('.')[-2]}")}


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
        fcntl.flock(jobs, fcntl.LOCK_EX)
        try:
            os.stat(name + "/state.json", dir_fd=jobs, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            discard(jobs, name)
            write_order(jobs, in_order(jobs))


JOB_VERBS: Mapping[str, Callable[..., None]] = {"new-job": new_job, "drop-job": drop_job}
