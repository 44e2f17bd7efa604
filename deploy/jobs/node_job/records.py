"""What became of each job: `state.json`, and what it cannot say itself because its process is gone."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from typing import Any

from cluster.atomic_write import atomic_write
from cluster.errors import ExitCode
from deploy.common.file_lock import held_by
from deploy.jobs.node_job.folders import JobFolder, JobsRoot, is_job_id
from deploy.jobs.node_job.record_fields import (
    MOST_EXIT_CODE,
    MOST_PID,
    job_name,
    read_object,
    read_small,
    run_folder_of,
    time_of,
    whole_number,
)


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
        """The inverse of `to_json`, for content from somebody else. Raises ValueError for anything else."""
        if not isinstance(content, dict) or not content.keys() <= {one.name for one in fields(cls)}:
            raise ValueError("expected the fields of a job's record and no others")
        name, state = content.get("id"), content.get("state")
        if not isinstance(name, str) or not is_job_id(name):
            raise ValueError(f"id: expected a job's id such as 20261121T2230-train, got {name!r:.60}")
        if not isinstance(state, str):
            raise ValueError(f"state: expected one of {', '.join(JobState)}, got {state!r:.60}")
        return cls(
            id=name,
            job=job_name(content),
            state=JobState(state),
            pid=whole_number(content, "pid", 1, MOST_PID),
            exit_code=whole_number(content, "exit_code", 0, MOST_EXIT_CODE),
            begun=time_of(content, "begun"),
            ended=time_of(content, "ended"),
            run_folder=run_folder_of(content),
        )

    def write(self, folder: JobFolder) -> None:
        """Write `state.json`, whole or not at all. Raises ClusterError."""
        atomic_write(folder.state, json.dumps(self.to_json()).encode() + b"\n")


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
    """The folder that the job's coordinator named; None before it has one, or where that is no such path."""
    try:
        return run_folder_of({"run_folder": read_small(folder.run_file).decode().strip() or None})
    except (OSError, ValueError):
        return None


def _read(folder: JobFolder) -> JobRecord:
    try:
        # The id is the folder's name: only root makes those.
        record = JobRecord.from_json({**read_object(folder.state), "id": folder.id})
    except (OSError, ValueError):
        name = folder.id.split("-")[1]
        return JobRecord(folder.id, name, JobState.SUBMITTED)
    return record if record.run_folder else replace(record, run_folder=run_folder(folder))
