"""A person's program on a worker's node: its files, its task, its cage and its life as a unit.

The cage holds every job: it runs code of an app, a program or a run, and reads what its account
may. Landlock takes away other jobs' folders, and all processes but those that it starts; a filter
takes away calls.
"""

import logging
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from cluster.apps.environments import ON_NODES, hold, is_there, python_of
from cluster.apps.files import digests_variable
from cluster.programs.runner import RunnerTask
from cluster.programs.runner import run as serve
from core.cage.calls import WholeCage
from core.cage.landlock import Cage
from core.cage.profiles import calls_of, rights_of
from core.ground.errors import ClusterError, ExitCode, UsageError
from core.ground.parcel import opened, packed
from core.logs import say
from core.server.process import notify
from deploy.common.interrupts import interruptible
from deploy.jobs.records import JobFolder
from deploy.jobs.request import PROGRAM, read_record, unpack_file


def cage_of(folder: Path, writes: Sequence[str]) -> Cage | None:
    """Return the cage of a job in `folder`, which also writes these; None where `writes` is empty.

    A mount that is made at its first use is made now. A line says what this kernel does not hold.
    Raises OSError.
    """
    if not writes:
        return None
    mounted_paths = [os.path.join(path, ".") for path in writes]
    cage = WholeCage(rights_of("job", changed=(folder, *mounted_paths)), calls_of("job"))
    if cage.caged.level != logging.INFO:
        say(f"{folder.name}: {cage.caged.line}", error=True)
    return cage


PROGRAM_ARCHIVE = "program.tar.gz"
"""File in the job's folder on the node."""
PROGRAM_FOLDER = "program"
"""Folder in the archive, and in the job's folder."""
MOST_FILES = 2000
MOST_BYTES = 64 << 20
_LEFT_OUT = frozenset({"__pycache__", "runs", "node_modules"})


def packed_program(program: Path) -> AbstractContextManager[BinaryIO]:
    """Pack the plain, visible files of the program's folder, as `packed` does.

    Hidden files, links, Python environments and `runs/` stay here. Raises UsageError beyond
    MOST_FILES or MOST_BYTES and for a program that would stay here, ClusterError for a file that
    cannot be read or changes meanwhile.
    """
    sizes: dict[Path, int] = {}
    total = 0
    for path, size in _program_files(program.parent):
        sizes[path] = size
        total += size
        if len(sizes) > MOST_FILES or total > MOST_BYTES:
            raise UsageError(
                f"{program.parent}: the folder of a program goes to the node whole, and this one"
                f" has more than {MOST_FILES} files or {MOST_BYTES >> 20} MiB: put {program.name}"
                " and its modules into a folder of their own"
            )
    if program not in sizes:
        raise UsageError(
            f"{program}: hidden files and links stay here: name the program itself, by a plain name"
        )
    files = {
        f"{PROGRAM_FOLDER}/{path.relative_to(program.parent)}": (path, size)
        for path, size in sorted(sizes.items())
    }
    return packed(opened(files))


def _program_files(folder: Path) -> Iterator[tuple[Path, int]]:
    for root, folders, names in os.walk(folder):
        directory = Path(root)
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".")
            and name not in _LEFT_OUT
            and not (directory / name / "pyvenv.cfg").exists()
        ]
        for name in names:
            try:
                file_status = (directory / name).lstat()
            except OSError:
                continue
            if stat.S_ISREG(file_status.st_mode) and not name.startswith("."):
                yield directory / name, file_status.st_size


TASK_JOB = "task"
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
    ports: tuple[int, ...]
    program: str
    environment: str = ""
    apps: tuple[str, ...] = ()


def run_task(folder: JobFolder, writes: Sequence[str] = ()) -> int:
    """Run the member of a program in this job's folder until the lead says that all is over.

    Its processes change `writes` and the folder alone, where there are any.

    Main thread only.
    """
    try:
        with interruptible():
            task = read_record(folder.path / TASK, ProgramTask, "the task that `fab job run`")
            job_path = folder.path.resolve()
            is_member_module = task.program in MEMBERS
            if is_member_module:
                program = Path(task.program)
            else:
                program = unpacked_program(job_path, task.program)
            host, _, port = task.lead.rpartition(":")
            if task.environment:
                python = _hold_environment(task.environment)
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


def unpacked_program(job_path: Path, program: str) -> Path:
    """Unpack the program's folder in that of its job; return where the program lies there."""
    archive = job_path / PROGRAM_ARCHIVE
    return unpack_file(archive, job_path / PROGRAM_FOLDER, PROGRAM) / Path(program).name


def _hold_environment(key: str) -> str:
    """The Python of the environment, which stays as long as this process. Raises ClusterError."""
    if not is_there(ON_NODES, key):
        raise ClusterError(f"{ON_NODES / key}: the packages of the program are gone: run it again")
    hold(ON_NODES / key)
    return str(python_of(ON_NODES, key))
