"""Where jobs keep their files on the coordinator's node: `jobs/<id>/`, and one lock for all of them."""

from dataclasses import dataclass
from pathlib import Path

from deploy.cluster.places import ACCOUNT_HOME
from deploy.rooted.jobs import JOB_ID, ORDER

DEFAULT_ROOT = Path("/var/lib/pscluster")
ROOT_VARIABLE = "PSCLUSTER_JOBS_ROOT"
"""Environment variable that names another root than DEFAULT_ROOT."""


def is_job_id(text: str) -> bool:
    """Whether this can be a job's id: UTC time and name, and a number where several began in one minute."""
    return JOB_ID.fullmatch(text) is not None


@dataclass(frozen=True)
class JobFolder:
    """The files of one job. The folder exists from the submission on."""

    path: Path

    @property
    def id(self) -> str:
        """The job's id, e.g. `20261121T2230-train`."""
        return self.path.name

    @property
    def request(self) -> Path:
        """What to run; `fab job` writes it."""
        return self.path / "request.json"

    @property
    def inventory(self) -> Path:
        """The cluster's file at the time of the submission."""
        return self.path / "inventory.yaml"

    @property
    def state(self) -> Path:
        """The job's record; the job writes it."""
        return self.path / "state.json"

    @property
    def output(self) -> Path:
        """Everything the job prints."""
        return self.path / "output.log"

    @property
    def turn_lock(self) -> Path:
        """A job that follows another one holds it with flock as long as it lives."""
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
    def lock(self) -> Path:
        """The running job holds it with flock."""
        before = self.path / "job.lock"  # of earlier versions, whose job may run while this one is deployed
        return before if before.exists() else self.path / ACCOUNT_HOME / "job.lock"

    def job(self, name: str) -> JobFolder:
        """The folder of the job with this id."""
        return JobFolder(self.jobs / name)

    def all(self) -> list[JobFolder]:
        """Every job in the order of submission, which need not be that of the clock."""
        if not self.jobs.is_dir():
            return []
        places = {name: number for number, name in enumerate(self._order())}
        there = sorted((path for path in self.jobs.iterdir() if is_job_id(path.name)), key=_age)
        return [JobFolder(path) for path in sorted(there, key=lambda path: places.get(path.name, -1))]

    def _order(self) -> list[str]:
        """Ids as root wrote them; earlier versions did not."""
        try:
            return (self.jobs / ORDER).read_text("ascii").split()
        except (OSError, UnicodeDecodeError):
            return []


def _age(path: Path) -> tuple[str, int, str]:
    stamp, _, rest = path.name.partition("-")
    number = rest.rpartition("-")[2]
    return stamp, int(number) if number.isdigit() else 0, rest
