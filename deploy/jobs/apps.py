"""What a job takes along of its app, and the run that comes back.

Along go the app's files and its environment. Back comes a run with its owner, what it may replace,
and its mark: the node names the run and fills it, so neither is believed.
"""

import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.apps.copy import FETCHED, FOLDER, RECORD, app_path, named_app
from cluster.apps.files import AppFiles, files_of_app, is_own
from cluster.pages.files import REPORT
from cluster.programs.frames import bytes_fetched
from core.ground.errors import ClusterError, UsageError
from core.ground.files import atomic_write, json_object
from core.logs import say
from deploy.cluster.connector import Connector
from deploy.jobs.records import Submission

if TYPE_CHECKING:
    from core.inventory import Inventory


DATA_FUNCTION = "data"
"""The function of an app that reads its data."""


@dataclass(frozen=True)
class AppOfJob:
    """`files` travel with the job, None where none do; `flags` are for its coordinator.

    `reads_data`: by itself.
    """

    files: AppFiles | None = None
    flags: tuple[str, ...] = ()
    reads_data: bool = False


NO_APP = AppOfJob()


def app_of_job(
    inventory: "Inventory", job: str, flags: Sequence[str], environment: Callable[[Path], str]
) -> AppOfJob:
    """The app of a job with these flags of `python -m cluster`, looked over before anything begins.

    `environment` makes the one of a requirements file and returns its key. A job on a run that
    exists, a resumed one or an evaluation, uses the copy of that run: what is wrong with the app as
    it is now is a line then, else an error. Raises ClusterError.
    """
    path = app_path(inventory)
    if path is None or job not in ("train", "cv", "evaluate"):
        return NO_APP
    has_copy = job == "evaluate" or "--resume" in flags
    try:
        if job == "evaluate":
            files = files_of_app(path)
        else:
            files = named_app(path)
        if files.requirements is None:
            key = ""
        else:
            key = environment(files.requirements)
    except ClusterError as problem:
        if not has_copy:
            raise
        say(f"{problem}; the run's own copy and environment are used", error=True)
        return NO_APP
    of_coordinator = ("--environment", key) if key else ()
    return AppOfJob(
        files if job != "evaluate" else None, of_coordinator, files.defines(DATA_FUNCTION)
    )


def reads_its_data(inventory: "Inventory") -> bool:
    """Whether the trainings of the inventory are of an app that reads its data itself.

    Raises UsageError.
    """
    path = app_path(inventory)
    return path is not None and files_of_app(path).defines(DATA_FUNCTION)


def refuse_missing_data(inventory: "Inventory", node: Connector, user: str) -> None:
    """Refuse an app whose `jobs.train.data.source` is not on the node that trains it.

    Raises UsageError.
    """
    source = inventory.jobs.train.data.source
    if source is None or _can_read(node, source, user):
        return
    raise UsageError(
        f"--data {source}: the app reads its data on {node.name}, where the account {user} cannot"
        " read such a path: copy it there and give its absolute path, or put it into the app"
    )


def _can_read(node: Connector, path: str, user: str) -> bool:
    return path.startswith("/") and node.run(["test", "-r", path], user=user).ok


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
            begun = _parsed_time(stamp, _MINUTE)
        stamped_at = _parsed_time(match["stamp"], _STAMP)
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
        mark = _read_mark(target)
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


def _parsed_time(text: str, form: str) -> datetime | None:
    try:
        return datetime.strptime(text, form).replace(tzinfo=UTC)
    except ValueError:
        return None


def _read_mark(run: Path) -> dict[str, Any]:
    return json_object(run / FETCHED) or {}


def _is_done(run: Path) -> bool:
    return (json_object(run / "result.json") or {}).get("status") == "done"
