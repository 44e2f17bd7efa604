"""Jobs that a `start` has still to submit, noted on the operator's machine before a node is changed."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cluster.atomic_write import atomic_write
from deploy.jobs.node_job.records import JobRecord, JobState

_GOES_ON = (JobState.WAITING, JobState.RUNNING, JobState.DONE)


class PendingJobs:
    """The note in one file: it is there from before the first change until every job is submitted."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def noted(self) -> bool:
        """Whether jobs are to be run, whatever a plan says."""
        return self._path.exists()

    @property
    def submitted(self) -> tuple[str, ...]:
        """Ids of the first jobs of the order, which are on the coordinator's node; empty for a note nobody can read."""
        try:
            note: Any = json.loads(self._path.read_text(encoding="utf-8"))
            return tuple(str(name) for name in note["submitted"])
        except (OSError, ValueError, LookupError, TypeError):
            return ()

    def note(self, submitted: Sequence[str] = ()) -> None:
        """All jobs are to be run but these. Raises ClusterError."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(self._path, json.dumps({"submitted": list(submitted)}).encode() + b"\n")

    def forget(self) -> None:
        """Every job is submitted."""
        self._path.unlink(missing_ok=True)


def still_good(submitted: Sequence[str], order: Sequence[str], records: Sequence[JobRecord]) -> tuple[str, ...]:
    """Of the ids noted those after which the rest of `order` can be submitted: all, or none. Pure.

    None when the order is another one by now, or one of them is not there, has failed or was cancelled: the rest would
    never begin.
    """
    there = {record.id: record for record in records}
    found = [there[name] for name in submitted if name in there]
    whole = len(found) == len(submitted) and [record.job for record in found] == list(order[: len(found)])
    return tuple(submitted) if whole and all(record.state in _GOES_ON for record in found) else ()
