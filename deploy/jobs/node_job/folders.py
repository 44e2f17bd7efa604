"""Where jobs keep their files on the coordinator's node: `jobs/<id>/`, and one lock for all of them."""

import re
from dataclasses import dataclass
from pathlib import Path

from deploy.rooted.jobs import ORDER

DEFAULT_ROOT = Path("/var/lib/pscluster")
ROOT_VARIABLE = "PSCLUSTER_JOBS_ROOT"
"""Environment variable that names another root than DEFAULT_ROOT."""

HOME = "home"
"""In the root: what the account keeps for itself."""

_ID = re.compile(r"[0-9]{8}T[0-9]{4}-[a-z]{1,40}(-[0-9]{1,3})?")


def is_job_id(text: str) -> bool:
    """Whether this could be a job's id: UTC time and name, and a number where several began in one minute."""
    return _ID.fullmatch(text) is not None


@dataclass(frozen=True)
class JobFolder:
    """The files of one job. Nothing exists until it is submitted."""

    path: Path

    @property
    def id(self) -> str:
        """The job's id, e.g. `20261121T2230-train`."""
        return self.path.name

    @property
    def request(self) -> Path:
        """What to run, written by who submits it."""
        return self.path / "request.json"

    @property
    def inventory(self) -> Path:
        """The cluster's file as it was when the job was submitted."""
        return self.path / "inventory.yaml"

    @property
    def state(self) -> Path:
        """What became of it, written by the job itself."""
        return self.path / "state.json"

    @property
    def output(self) -> Path:
        """Everything it says."""
        return self.path / "output.log"

    @property
    def turn_lock(self) -> Path:
        """Held with flock by a job that was to wait for another one, as long as it lives."""
        return self.path / "turn.lock"

    @property
    def run_file(self) -> Path:
        """Names the folder in `runs`, as soon as the job has one."""
        return self.path / "run"


@dataclass(frozen=True)
class JobsRoot:
    """The root of all jobs of a node."""

    path: Path = DEFAULT_ROOT

    @property
    def jobs(self) -> Path:
        """Holds a folder for each job."""
        return self.path / "jobs"

    @property
    def home(self) -> Path:
        """The one folder here that is the account's own: the others are root's (docs/architecture.md)."""
        return self.path / HOME

    @property
    def lock(self) -> Path:
        """Held with flock by the one job that runs."""
        before = self.path / "job.lock"  # of earlier versions: a job of one of them may run while the node is deployed
        return before if before.exists() else self.home / "job.lock"

    def job(self, name: str) -> JobFolder:
        """The folder of the job with this id."""
        return JobFolder(self.jobs / name)

    def all(self) -> list[JobFolder]:
        """The jobs there are, in the order in which they were submitted; the clock may have been set back meanwhile."""
        if not self.jobs.is_dir():
            return []
        places = {name: number for number, name in enumerate(self._order())}
        there = sorted((path for path in self.jobs.iterdir() if is_job_id(path.name)), key=_age)
        return [JobFolder(path) for path in sorted(there, key=lambda path: places.get(path.name, -1))]

    def _order(self) -> list[str]:
        """Ids as root wrote them down; earlier versions did not."""
        try:
            return (self.jobs / ORDER).read_text("ascii").split()
        except (OSError, UnicodeDecodeError):
            return []


def _age(path: Path) -> tuple[str, int, str]:
    stamp, _, rest = path.name.partition("-")
    number = rest.rpartition("-")[2]
    return stamp, int(number) if number.isdigit() else 0, rest
