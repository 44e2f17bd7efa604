"""What became of each job: `state.json`, and what it cannot say itself because its process is gone."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from cluster.errors import ExitCode
from cluster.whole_file import write_whole
from deploy.file_lock import held_by
from deploy.node_job.folders import JobFolder, JobsRoot


class JobState(StrEnum):
    """Where a job is in its life."""

    SUBMITTED = "submitted"  # no process has taken it up
    WAITING = "waiting"  # for the end of the job it was to follow
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"  # somebody asked for its end: its result so far is in the run's folder
    INTERRUPTED = "interrupted"  # its process is gone without having said how it ended: killed, or the node went down

    @property
    def ended(self) -> bool:
        """Whether nothing more will come of it."""
        return self not in (JobState.SUBMITTED, JobState.WAITING, JobState.RUNNING)


@dataclass(frozen=True)
class JobRecord:
    """One job: `begun` and `ended` are UTC in ISO 8601, `run_folder` a path on the coordinator's node."""

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
        """The inverse of `to_json`. Raises KeyError, TypeError or ValueError for anything else."""
        return cls(**{**content, "state": JobState(content["state"])})

    def write(self, folder: JobFolder) -> None:
        """Write `state.json`, whole or not at all. Raises ClusterError."""
        write_whole(folder.state, json.dumps(self.to_json()).encode() + b"\n")


def state_of(exit_code: int) -> JobState:
    """The state of a job that ended with this code."""
    return {ExitCode.DONE: JobState.DONE, ExitCode.CANCELLED: JobState.CANCELLED}.get(
        ExitCode(exit_code) if exit_code in set(ExitCode) else ExitCode.FAILED, JobState.FAILED
    )


def read_all(root: JobsRoot) -> list[JobRecord]:
    """Every job, the oldest first; one whose process does not hold the lock of running jobs has been interrupted."""
    records = [_read(folder) for folder in root.all()]
    # Asked last: a job that ends while we read has let go of the lock only after it wrote how it ended.
    return settled(records, held_by(root.lock), root)


def settled(records: Sequence[JobRecord], holder: int | None, root: JobsRoot) -> list[JobRecord]:
    """`records` with those that claim to live, and do not, looked at once more and then taken as interrupted."""
    result = []
    for record in records:
        if not _alive(record, holder, root):
            record = _read(root.job(record.id))
            if record.state in (JobState.RUNNING, JobState.WAITING):
                record = replace(record, state=JobState.INTERRUPTED)
        result.append(record)
    return result


def _alive(record: JobRecord, holder: int | None, root: JobsRoot) -> bool:
    """Whether the record is not contradicted by who holds which lock."""
    if record.state is JobState.WAITING:
        return held_by(root.job(record.id).turn_lock) is not None
    return record.state is not JobState.RUNNING or record.pid == holder


def run_folder(folder: JobFolder) -> str | None:
    """The folder that the job's coordinator named; None before it has one."""
    try:
        return folder.run_file.read_text().strip() or None
    except OSError:
        return None


def _read(folder: JobFolder) -> JobRecord:
    content = _json(folder.state)
    try:
        record = JobRecord.from_json(content)
    except (KeyError, TypeError, ValueError):
        name = folder.id.split("-")[1]
        return JobRecord(folder.id, name, JobState.SUBMITTED)
    return record if record.run_folder else replace(record, run_folder=run_folder(folder))


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
