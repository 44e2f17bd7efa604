"""What this account has asked nodes for, kept here: a node's word on its own job proves nothing."""

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from core.control.own_state import OTHERWISE, make_private, user_state
from core.ground.files import atomic_write, read_json, write_refusal

MOST = 1000
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


def keep(cluster: str, node: str, job_id: str, submission: Submission) -> None:
    """Write it down. Raises ClusterError."""
    path = _path(cluster, node, job_id)
    try:
        make_private(path.parent)
    except OSError as problem:
        raise write_refusal(
            path.parent, "the list of your jobs cannot be written", problem, OTHERWISE
        ) from None
    atomic_write(path, json.dumps(asdict(submission)).encode() + b"\n", OTHERWISE)
    with suppress(OSError):
        paths = sorted(path.parent.glob("*.json"), key=lambda entry: entry.stat().st_mtime_ns)
        for old in paths[:-MOST]:
            old.unlink()


def kept(cluster: str, node: str, job_id: str) -> Submission | None:
    """Return the submission of a job; None for one of another account, machine or version."""
    path = _path(cluster, node, job_id)
    try:
        if path.stat().st_uid != os.geteuid():
            return None
        content = read_json(path)
        return Submission(
            str(content["job"]),
            float(content["begun"]),
            str(content["app"]),
            bool(content["resumes"]),
            str(content["run"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _path(cluster: str, node: str, job_id: str) -> Path:
    return user_state() / "jobs" / f"{cluster}.{node}.{job_id}.json"
