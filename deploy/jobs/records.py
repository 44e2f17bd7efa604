"""The record of each job on the coordinator's node, and here what this account submitted.

The locks correct a record where the job's process died before it could write. Every field has a
type and bounds: the service account writes records, and the operator reads them from a node, whose
word on its own job proves nothing.
"""

import json
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from core.control.own_state import OTHERWISE, make_private, user_state
from core.ground.errors import ExitCode
from core.ground.files import (
    NO_LINK,
    atomic_write,
    parsed_json,
    read_json,
    record_of,
    write_refusal,
)
from core.ground.locks import held_by
from deploy.cluster.places import ACCOUNT_HOME
from deploy.rooted.jobs import JOB_ID, ORDER

DEFAULT_ROOT = Path("/var/lib/pscluster")
ROOT_VARIABLE = "PSCLUSTER_JOBS_ROOT"
"""Environment variable that names another root than DEFAULT_ROOT."""


def is_job_id(text: str) -> bool:
    """Return whether this can be a job's id: UTC time, name, and a number for a busy minute."""
    return JOB_ID.fullmatch(text) is not None


APP_FOLDER = "app"
"""Folder in the archive of a job's app, and in the job's folder."""
APP_ARCHIVE = "app.tar.gz"


class JobFolder:
    """The files of one job.

    The folder exists from the submission on; its name is the id, `20261121T2230-train`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.id = path.name
        self.request = path / "request.json"  # what to run; `fab job` writes it
        self.inventory = path / "inventory.yaml"  # the cluster's file at the time of the submission
        self.state = path / "state.json"  # the job's record; the job writes it
        self.output = path / "output.log"  # everything the job prints
        self.turn_lock = (
            path / "turn.lock"
        )  # a job that follows another one holds it with flock as long as it lives
        self.app_archive = path / APP_ARCHIVE  # `fab job` writes it, the job unpacks it
        self.app = (
            path / APP_FOLDER
        )  # the app's files as long as the job lives: its run keeps a copy
        self.run_file = path / "run"  # names the folder in `runs`, as soon as the job has one


class JobsRoot:
    """The root of all jobs of a node."""

    def __init__(self, path: Path = DEFAULT_ROOT) -> None:
        self.path = path
        self.jobs = path / "jobs"  # holds a folder for each job
        self.lock = path / ACCOUNT_HOME / "job.lock"  # the running job holds it with flock

    def job(self, name: str) -> JobFolder:
        """The folder of the job with this id."""
        return JobFolder(self.jobs / name)

    def all(self) -> list[JobFolder]:
        """Return every job in the order of submission, which need not be that of the clock."""
        if not self.jobs.is_dir():
            return []
        try:
            order = (self.jobs / ORDER).read_text("ascii").split()  # as root wrote it
        except (OSError, UnicodeDecodeError):
            order = []
        places = {name: number for number, name in enumerate(order)}
        job_paths = sorted((path for path in self.jobs.iterdir() if _is_job(path.name)), key=_age)
        return [
            JobFolder(path)
            for path in sorted(job_paths, key=lambda path: places.get(path.name, -1))
        ]


def _is_job(name: str) -> bool:
    """Return whether it is a job of the cluster, and not a program's part (`program_task`)."""
    return is_job_id(name) and name.split("-")[1] != "task"


def _age(path: Path) -> tuple[str, int, str]:
    stamp, _, rest = path.name.partition("-")
    number = rest.rpartition("-")[2]
    return stamp, int(number) if number.isdigit() else 0, rest


MOST_BYTES = 16 << 10
MOST_PATH_CHARACTERS = 1024


class JobState(StrEnum):
    """The phase of a job."""

    SUBMITTED = "submitted"  # no process runs it yet
    WAITING = "waiting"  # for the job before it
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"  # a person ended it: the run's folder holds the result so far
    INTERRUPTED = (  # its process died without writing an end: killed, or the node went down
        "interrupted"
    )

    @property
    def ended(self) -> bool:
        """Whether the state is final."""
        return self not in (JobState.SUBMITTED, JobState.WAITING, JobState.RUNNING)


_TIME = (
    re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(\+00:00|Z)"),
    "a time in UTC such as 2026-11-21T22:30:00+00:00",
)
_TEXTS = {
    "id": (JOB_ID, "a job's id such as 20261121T2230-train"),
    "job": (re.compile(r"[a-z]{1,40}"), "the name of a job"),
    "state": (re.compile("|".join(JobState)), f"one of {', '.join(JobState)}"),
    "begun": _TIME,
    "ended": _TIME,
    "run_folder": (
        re.compile(r"(/(?!\.{1,2}/)[^/\x00-\x1f\x7f]+)*/[A-Za-z0-9_][A-Za-z0-9._-]{0,127}"),
        "the absolute path of a run's folder",
    ),
}
_NUMBERS = {"pid": (1, 1 << 22), "exit_code": (0, 255)}
"""The least and the most; PID_MAX_LIMIT of a 64-bit kernel (proc(5))."""
_ALWAYS = ("id", "job", "state")
"""The other fields of a record may be None."""


@dataclass(frozen=True)
class JobRecord:
    """One job: `begun` and `ended` are UTC in ISO 8601, `run_folder` is a path on its node."""

    id: str
    job: str
    state: JobState
    pid: int | None = None
    exit_code: int | None = None
    begun: str | None = None
    ended: str | None = None
    run_folder: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Any) -> "JobRecord":
        """Parse untrusted content. Raises ValueError unless it is what `to_json` makes."""
        names = [attribute.name for attribute in fields(cls)]
        if not isinstance(content, dict) or not content.keys() <= set(names):
            raise ValueError("expected the fields of a job's record and no others")
        values = {name: _checked(name, content.get(name)) for name in names}
        return cls(**{**values, "state": JobState(values["state"])})

    def write(self, folder: JobFolder) -> None:
        """Write `state.json`, whole or not at all. Raises ClusterError."""
        atomic_write(folder.state, json.dumps(self.to_json()).encode() + b"\n")


def now() -> str:
    """The time as records have it: UTC in ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def state_of(exit_code: int) -> JobState:
    """The state of a job that ended with this code."""
    if exit_code == ExitCode.DONE:
        return JobState.DONE
    if exit_code == ExitCode.CANCELLED:
        return JobState.CANCELLED
    return JobState.FAILED


def read_all(root: JobsRoot) -> list[JobRecord]:
    """Return every job, the oldest first; one that runs without the lock was interrupted."""
    records = [_read_record(folder) for folder in root.all()]
    # The lock comes last: a job that ends meanwhile releases it only after it wrote its end.
    holder = held_by(root.lock)
    return [
        record if _alive(record, holder, root) else _reread(root.job(record.id))
        for record in records
    ]


def run_folder(folder: JobFolder) -> str | None:
    """Return the folder that the coordinator named; None before, or where it is no path."""
    try:
        return run_folder_of(read_small(folder.run_file).decode().strip() or None)
    except (OSError, ValueError):
        return None


def run_folder_of(content: Any) -> str | None:
    """The absolute path of a run's folder, with no `..` in it and a plain name at its end.

    Raises ValueError.
    """
    path: str | None = _checked("run_folder", content)
    return path


def read_small(path: Path) -> bytes:
    """The content of a plain file. Raises OSError, and ValueError beyond MOST_BYTES."""
    descriptor = os.open(path, NO_LINK)
    with os.fdopen(descriptor, "rb") as stream:
        content = stream.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"{path}: expected at most {MOST_BYTES} bytes")
    return content


def _alive(record: JobRecord, holder: int | None, root: JobsRoot) -> bool:
    """Whether the locks agree with the record."""
    if record.state is JobState.WAITING:
        return held_by(root.job(record.id).turn_lock) is not None
    return record.state is not JobState.RUNNING or record.pid == holder


def _reread(folder: JobFolder) -> JobRecord:
    record = _read_record(folder)
    claims = record.state in (JobState.RUNNING, JobState.WAITING)
    if claims:
        return replace(record, state=JobState.INTERRUPTED)
    return record


def _read_record(folder: JobFolder) -> JobRecord:
    try:
        content = parsed_json(read_small(folder.state))
        # The id is the folder's name: only root makes those.
        record = JobRecord.from_json(
            {**content, "id": folder.id} if isinstance(content, dict) else None
        )
    except (OSError, ValueError):
        name = folder.id.split("-")[1]
        return JobRecord(folder.id, name, JobState.SUBMITTED)
    if record.run_folder:
        return record
    return replace(record, run_folder=run_folder(folder))


def _checked(name: str, value: Any) -> Any:
    if name in _NUMBERS:
        least, most = _NUMBERS[name]
        what = f"a whole number from {least} to {most}"
        good = type(value) is int and least <= value <= most  # a bool is an int
    else:
        pattern, what = _TEXTS[name]
        good = (
            isinstance(value, str)
            and len(value) <= MOST_PATH_CHARACTERS
            and pattern.fullmatch(value) is not None
        )
    if not good and (value is not None or name in _ALWAYS):
        raise ValueError(f"{name}: expected {what}, got {value!r:.60}")
    return value


def records_listed(stdout: bytes) -> list[JobRecord]:
    """Parse what `deploy.jobs.node_job --list` printed. Raises ValueError for anything else."""
    content = parsed_json(stdout)
    if not isinstance(content, dict) or not isinstance(content.get("jobs"), list):
        raise ValueError("expected the report of jobs")
    return [JobRecord.from_json(record) for record in content["jobs"]]


MOST_SUBMISSIONS = 1000
"""Submissions that stay, the latest ones."""


@dataclass(frozen=True)
class Submission:
    """A job as it was submitted, at `begun`, seconds since the epoch by the clock of this machine.

    `app` is the digest of its app, empty without one. `resumes`: it continues a run that exists,
    the one named `run` or the newest there.
    """

    job: str
    begun: float
    app: str = ""
    resumes: bool = False
    run: str = ""

    @classmethod
    def of(cls, job: str, begun: float, app: str, flags: Sequence[str]) -> "Submission":
        """Describe a job with these flags of `python -m cluster`."""
        if "--resume" not in flags:
            return cls(job, begun, app)
        (run,) = flags[flags.index("--resume") + 1 :][:1] or ("",)
        return cls(
            job, begun, app, resumes=True, run="" if run.startswith("--") else Path(run).name
        )


def keep_submission(cluster: str, node: str, job_id: str, submission: Submission) -> None:
    """Write it down. Raises ClusterError."""
    path = _submission_path(cluster, node, job_id)
    try:
        make_private(path.parent)
    except OSError as problem:
        raise write_refusal(
            path.parent, "the list of your jobs cannot be written", problem, OTHERWISE
        ) from None
    atomic_write(path, json.dumps(asdict(submission)).encode() + b"\n", OTHERWISE)
    with suppress(OSError):
        paths = sorted(path.parent.glob("*.json"), key=lambda entry: entry.stat().st_mtime_ns)
        for old in paths[:-MOST_SUBMISSIONS]:
            old.unlink()


def read_submission(cluster: str, node: str, job_id: str) -> Submission | None:
    """Return the submission of a job; None for one of another account, machine or version."""
    path = _submission_path(cluster, node, job_id)
    try:
        if path.stat().st_uid != os.geteuid():
            return None
        return record_of(Submission, read_json(path))
    except (OSError, ValueError):
        return None


def _submission_path(cluster: str, node: str, job_id: str) -> Path:
    return user_state() / "jobs" / f"{cluster}.{node}.{job_id}.json"
