"""A run on its way from a node to here: its owner, what it may replace, and its mark.

The node names the run and fills it, so neither is believed.
"""

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cluster.apps.copy import FETCHED, FOLDER, RECORD
from cluster.apps.files import files_of_app, is_own
from cluster.pages.files import REPORT
from cluster.programs.frames import bytes_fetched
from core.ground.errors import ClusterError, UsageError
from core.ground.files import atomic_write, json_object
from deploy.jobs.submissions import Submission

CLOCKS_APART = timedelta(minutes=5)
"""Time that a node's clock may be behind ours; `fab deploy check` refuses more than a minute."""
_STAMP = "%Y%m%dT%H%M%SZ"
_MINUTE = "%Y%m%dT%H%M"
_NAME = re.compile(r"(?P<stamp>[0-9]{8}T[0-9]{6}Z)-(?P<job>[a-z]+)(-[0-9]{1,3})?")


@dataclass(frozen=True)
class FetchedRun:
    """The run of a job.

    `submission` is what was asked for from here; None for a job of another machine.
    """

    node: str
    job_id: str
    submission: Submission | None
    left_out: list[str] = field(default_factory=list)
    """Files that no run has, which stay on the node."""

    def refuse_name(self, name: str) -> None:
        """Raise ClusterError unless the run can be the one that the job made or resumed."""
        submission = self.submission
        stamp, job, *_ = self.job_id.split("-")
        run = ""
        if submission is not None:
            job = submission.job
            run = submission.run
        match = _NAME.fullmatch(name)
        if match is None or match["job"] != job or run not in ("", name):
            raise ClusterError(
                f"{self._who}: names {name} as its run, expected {run or f'<time>-{job}'}:"
                f" {_NOT_FETCHED}"
            )
        if submission is not None and submission.resumes:
            return
        if submission is not None:
            begun: datetime | None = datetime.fromtimestamp(submission.begun, UTC)
        else:
            begun = _time(stamp, _MINUTE)
        stamped_at = _time(match["stamp"], _STAMP)
        if begun is None or stamped_at is None or stamped_at < begun - CLOCKS_APART:
            raise ClusterError(
                f"{self._who}: names {name} as its run, which is older than the job:"
                f" {_NOT_FETCHED}; `fab deploy check` compares the node's clock, and a run that a"
                " job resumed is fetched where that was submitted"
            )

    def refuse_target(self, target: Path) -> None:
        """Raise ClusterError if there is a run of that name here that did not come from this job.

        A job that resumes a run also replaces the copy of it that was fetched before, as long as
        that is unfinished.
        """
        if not os.path.lexists(target):
            return
        mark = _mark(target)
        submission = self.submission
        resumed = submission is not None and submission.resumes and not _is_done(target)
        if mark.get("node") == self.node and (resumed or mark.get("job") == self.job_id):
            return
        raise ClusterError(
            f"{target}: is here already and did not come from job {self.job_id} of {self.node}: it"
            f" stays as it is; move it elsewhere, and `fab job attach --job {self.job_id}` fetches"
            " the run"
        )

    def most_bytes_of(self, path_segments: Sequence[str]) -> int:
        """Return how long a file of the run may be, 0 for one that no run has: it stays there."""
        most = bytes_fetched(path_segments)
        if not most and not path_segments[-1].startswith(".") and path_segments[-1] != REPORT:
            self.left_out.append("/".join(path_segments))
        return most

    def checked(self, run: Path) -> None:
        """Look at the unpacked run and mark it.

        Raises ClusterError for code that was not sent with the job.
        """
        for place in (run, *sorted(run.glob("runs/*/*"))):
            self._refuse_code(place)
        mark = {"schema": 1, "node": self.node, "job": self.job_id}
        atomic_write(run / FETCHED, json.dumps(mark).encode() + b"\n")

    def _refuse_code(self, run: Path) -> None:
        """Raise ClusterError for code that was not sent with the job.

        What lies in `app/` beside the files of its digest is removed: a person may name that folder
        with --app.
        """
        submission = self.submission
        if not any(os.path.lexists(run / name) for name in (FOLDER, RECORD)):
            return
        try:
            app = files_of_app(run / FOLDER)
            digest = app.digest
            names = {file.name for file in app.files}
        except UsageError as problem:
            digest = str(problem)
            names = set()
        # Of a job of another machine: its code does not run here, whatever it is.
        if (
            submission is not None
            and digest != submission.app
            and not (submission.resumes and is_own(digest))
        ):
            raise ClusterError(
                f"{self._who}: its run has code that was not sent with it ({digest}):"
                f" {_NOT_FETCHED}"
            )
        for path in (run / FOLDER).rglob("*"):
            if not path.is_dir() and str(path.relative_to(run / FOLDER)) not in names:
                path.unlink()

    @property
    def _who(self) -> str:
        return f"{self.node}: job {self.job_id}"


_NOT_FETCHED = "it is not fetched; another person or program may have written on that node"


def _time(text: str, form: str) -> datetime | None:
    try:
        return datetime.strptime(text, form).replace(tzinfo=UTC)
    except ValueError:
        return None


def _mark(run: Path) -> dict[str, Any]:
    return json_object(run / FETCHED) or {}


def _is_done(run: Path) -> bool:
    return (json_object(run / "result.json") or {}).get("status") == "done"
