"""A person's program on a worker's node: what its runner has to know, and its life as a unit."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from cluster.apps.environments import ON_NODES, hold, is_there, python_of
from cluster.errors import ClusterError, ExitCode, UsageError
from cluster.logs.terminal import say
from cluster.programs.runner import RunnerTask
from cluster.programs.runner import run as serve
from cluster.server.systemd import notify
from deploy.common.interrupts import interruptible
from deploy.jobs.node_job.records import JobFolder
from deploy.jobs.program_files import ARCHIVE, FOLDER
from deploy.jobs.run_archive import unpack

NAME = "task"
"""The word for such a job in its id: `20261121T2230-task`. It is no job that `fab job list` shows."""
TASK = "task.json"
FILES = "files"
MEMBERS = ("cluster.jobs.member",)
"""Modules of ours that a runner may run: a training of a sweep."""
SCHEMA = 1


@dataclass(frozen=True)
class ProgramTask:
    """One member of a program: `lead` is `host:port`, `ports` those of this node that it may take.

    `environment` is the key of the one with the program's packages on this node; empty for the common one. A `program`
    of MEMBERS is a module of ours, which comes without an archive.
    """

    lead: str
    token: str
    member: str
    ports: Sequence[int]
    program: str
    environment: str = ""

    def to_bytes(self) -> bytes:
        """The content of `task.json`."""
        return json.dumps({"schema": SCHEMA, **asdict(self)}).encode() + b"\n"

    @classmethod
    def read(cls, path: Path) -> "ProgramTask":
        """Read what `to_bytes` wrote. Raises UsageError for anything else."""
        try:
            content = json.loads(path.read_bytes())
            if content["schema"] != SCHEMA:
                raise ValueError(f"schema {content['schema']}, this version reads {SCHEMA}")
            ports = tuple(int(port) for port in content["ports"])
            texts = [str(content[name]) for name in ("lead", "token", "member", "program")]
            return cls(texts[0], texts[1], texts[2], ports, texts[3], str(content.get("environment", "")))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"{path}: expected the task that `fab job run` writes, got {type(error).__name__}: {error}; "
                "`fab deploy start --no-jobs` brings the node to the version of `fab` that wrote it"
            ) from error


def run_task(folder: JobFolder) -> int:
    """Run the member of a program in this job's folder until the lead says that all is over. Main thread only."""
    try:
        with interruptible():
            task, here = ProgramTask.read(folder.path / TASK), folder.path.resolve()
            ours = task.program in MEMBERS
            program = Path(task.program) if ours else _program(here, task)
            host, _, port = task.lead.rpartition(":")
            python = _held(task.environment) if task.environment else this_python() if ours else ""
            notify(f"READY=1\nSTATUS={task.member} of {task.program}")
            serve(
                RunnerTask(
                    (host, int(port)), task.token, task.member, task.ports, program, here / FILES, python,
                    module=task.program if ours else "",
                )
            )  # fmt: skip
    except KeyboardInterrupt:
        return ExitCode.CANCELLED
    except (ClusterError, OSError, ValueError) as problem:
        say(problem, error=True)
        return ExitCode.FAILED
    return ExitCode.DONE


def this_python() -> str:
    """Our Python, by a name that stays valid when `current` changes to another release while the job runs."""
    python = Path(sys.executable)
    return str(python.parent.resolve() / python.name)  # not resolved itself: the link makes it the environment's


def _program(here: Path, task: ProgramTask) -> Path:
    with (here / ARCHIVE).open("rb") as archive:
        return unpack(archive, FOLDER, here) / Path(task.program).name


def _held(key: str) -> str:
    """The Python of the environment, which stays as long as this process. Raises ClusterError."""
    if not is_there(ON_NODES, key):
        raise ClusterError(f"{ON_NODES / key}: expected the packages of the program, they are gone: run it again")
    hold(ON_NODES / key)
    return str(python_of(ON_NODES, key))
