"""A person's program on a worker's node: what its runner has to know, and its life as a unit."""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from cluster.apps.environments import ON_NODES, hold, is_there, python_of
from cluster.apps.files import digests_variable
from cluster.programs.runner import RunnerTask
from cluster.programs.runner import run as serve
from core.ground.errors import ClusterError, ExitCode
from core.logs import say
from core.server.process import notify
from deploy.common.interrupts import interruptible
from deploy.jobs.node_job.cage import cage_of
from deploy.jobs.node_job.records import JobFolder
from deploy.jobs.program_files import ARCHIVE, FOLDER
from deploy.jobs.request import SCHEMA, content_of, unreadable
from deploy.jobs.run_archive import unpack

NAME = "task"
"""The word for such a job in its id: `20261121T2230-task`. It is no job that `fab job list` shows.
"""
TASK = "task.json"
FILES = "files"
MEMBERS = ("cluster.sweeps.member",)
"""Modules of ours that a runner may run: a training of a sweep."""


@dataclass(frozen=True)
class ProgramTask:
    """One member of a program, with its own `key`.

    `lead` is `host:port`, `ports` are those of this node that it may take.

    `environment` is the key of the one with the program's packages on this node; empty for the
    common one. A `program` of MEMBERS is a module of ours, which comes without an archive; it runs
    the code of the operator's own `apps` alone, by their digests.
    """

    lead: str
    key: str
    member: str
    ports: Sequence[int]
    program: str
    environment: str = ""
    apps: tuple[str, ...] = ()

    def to_bytes(self) -> bytes:
        """The content of `task.json`."""
        return json.dumps({"schema": SCHEMA, **asdict(self)}).encode() + b"\n"

    @classmethod
    def read(cls, path: Path) -> "ProgramTask":
        """Read what `to_bytes` wrote. Raises UsageError for anything else."""
        try:
            content = content_of(path)
            return cls(
                str(content["lead"]),
                str(content["key"]),
                str(content["member"]),
                tuple(map(int, content["ports"])),
                str(content["program"]),
                str(content.get("environment", "")),
                tuple(map(str, content.get("apps", ()))),
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise unreadable(path, "the task that `fab job run`", error) from error


def run_task(folder: JobFolder, writes: Sequence[str] = ()) -> int:
    """Run the member of a program in this job's folder until the lead says that all is over.

    Its processes change `writes` and the folder alone, where there are any.

    Main thread only.
    """
    try:
        with interruptible():
            task = ProgramTask.read(folder.path / TASK)
            job_path = folder.path.resolve()
            is_member_module = task.program in MEMBERS
            if is_member_module:
                program = Path(task.program)
            else:
                program = _program(job_path, task)
            host, _, port = task.lead.rpartition(":")
            if task.environment:
                python = _held(task.environment)
            elif is_member_module:
                python = this_python()
            else:
                python = ""
            os.environ.update(digests_variable(task.apps))
            notify(f"READY=1\nSTATUS={task.member} of {task.program}")
            serve(
                RunnerTask(
                    (host, int(port)),
                    task.key,
                    task.member,
                    task.ports,
                    program,
                    job_path / FILES,
                    python,
                    module=task.program if is_member_module else "",
                    cage=cage_of(job_path, writes),
                )
            )
    except KeyboardInterrupt:
        return ExitCode.CANCELLED
    except (ClusterError, OSError, ValueError) as problem:
        say(problem, error=True)
        return ExitCode.FAILED
    return ExitCode.DONE


def this_python() -> str:
    """Return our Python's name that stays valid when `current` becomes another release."""
    python = Path(sys.executable)
    return str(
        python.parent.resolve() / python.name
    )  # not resolved itself: the link makes it the environment's


def _program(job_path: Path, task: ProgramTask) -> Path:
    with (job_path / ARCHIVE).open("rb") as archive:
        return unpack(archive, FOLDER, job_path) / Path(task.program).name


def _held(key: str) -> str:
    """The Python of the environment, which stays as long as this process. Raises ClusterError."""
    if not is_there(ON_NODES, key):
        raise ClusterError(
            f"{ON_NODES / key}: expected the packages of the program, they are gone: run it again"
        )
    hold(ON_NODES / key)
    return str(python_of(ON_NODES, key))
