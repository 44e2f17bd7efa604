"""`python -m deploy.jobs.node_job ID`, as `pscluster-job@ID.service`; `--list` lists all.

A job on the coordinator's node from its request to its end, which systemd runs beyond the
operator's connection; `state.json` follows every change.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from os import getpid
from pathlib import Path
from shutil import rmtree
from typing import NamedTuple

from cluster.apps.files import digests_variable
from cluster.programs.program import TOKEN_VARIABLE, ProgramRequest
from core.cage.landlock import Cage
from core.control.door import raise_limit
from core.control.role_restart import restart_roles
from core.ground.errors import ClusterError, ExitCode
from core.ground.locks import FileLock, LockHeldError
from core.ground.waiting import pause
from core.logs import say, say_json
from core.server.process import notify
from deploy.common.command_line import settings
from deploy.common.interrupts import interruptible
from deploy.common.project import environment_for_any_folder, module_command
from deploy.jobs.foreground_job import JobProcess, JobRestartPolicy, announce, run_to_its_end
from deploy.jobs.program_task import (
    TASK,
    cage_of,
    run_task,
    this_python,
    unpacked_program,
)
from deploy.jobs.records import (
    DEFAULT_ROOT,
    ROOT_VARIABLE,
    JobFolder,
    JobRecord,
    JobsRoot,
    JobState,
    is_job_id,
    now,
    read_all,
    run_folder,
    state_of,
)
from deploy.jobs.request import RESUMABLE, SWEEP, JobRequest, read_record, unpack_app

_POLL_SECONDS = 1.0


class CagedCommand(NamedTuple):
    """The command line that takes a job and flags, and the cage that its process enters."""

    arguments: Sequence[str]
    cage: Cage | None


def run(
    root: JobsRoot,
    name: str,
    coordinator: Sequence[str],
    restarts: JobRestartPolicy = JobRestartPolicy(),  # noqa: B008  frozen
    *,
    writes: Sequence[str] = (),
) -> int:
    """Run the job `name` to its end; its exit code.

    `coordinator` is the command that takes a job and flags; its process changes `writes` alone,
    where there are any.

    A refused job, which was not submitted or found another one running, leaves no state. Main
    thread only.
    """
    folder = root.job(name)
    try:
        if not is_job_id(name) or not folder.request.is_file():
            raise ClusterError(
                f"{name}: expected a job that was submitted, found no {folder.request}: `fab job`"
                " submits one"
            )
        request = read_record(folder.request, JobRequest, "the request that `fab job`")
        with ExitStack() as resources:
            if request.app:
                unpack_app(folder.app_archive, request.app, folder.app)
                resources.callback(rmtree, folder.app, ignore_errors=True)
            if request.after:
                resources.enter_context(FileLock(folder.turn_lock))
                code = _await_turn(root, folder, request)
                if code:
                    return code
            command = CagedCommand(coordinator, _cage(folder, writes))
            return _take_the_cluster(root, folder, request, command, restarts)
    except ClusterError as problem:
        say(problem, error=True)
        return problem.exit_code


def _await_turn(root: JobsRoot, folder: JobFolder, request: JobRequest) -> int:
    """Wait for the job `request.after`; return 0 if it is done, else this job's exit code."""
    waiting = JobRecord(folder.id, request.job, JobState.WAITING, getpid(), begun=now())
    try:
        with interruptible():
            waiting.write(folder)
            notify(f"READY=1\nSTATUS={request.job} waits for {request.after}")
            before = _end_of(root, request.after)
    except KeyboardInterrupt:
        announce(f"{request.job}: interrupted before it began")
        code = ExitCode.CANCELLED
    else:
        if before is JobState.DONE:
            return ExitCode.DONE
        announce(f"{request.job}: not begun: {request.after}, which it was to follow, is {before}")
        if before is JobState.CANCELLED:
            code = ExitCode.CANCELLED
        else:
            code = ExitCode.FAILED
    replace(waiting, state=state_of(code), exit_code=code, ended=now()).write(folder)
    return code


def _end_of(root: JobsRoot, name: str) -> JobState:
    while True:
        states = [record.state for record in read_all(root) if record.id == name]
        if not states:
            raise ClusterError(
                f"{name}: expected a job to wait for, found none of that name: begin this one by"
                " itself with `fab job`"
            )
        if states[0].ended:
            return states[0]
        pause(_POLL_SECONDS)


def _take_the_cluster(
    root: JobsRoot,
    folder: JobFolder,
    request: JobRequest,
    command: CagedCommand,
    restarts: JobRestartPolicy,
) -> int:
    try:
        with FileLock(root.lock):
            return _keep_state(root, folder, request, command, restarts)
    except LockHeldError as error:
        if request.after:  # another job took the cluster when the one before ended
            failed = JobRecord(
                folder.id, request.job, JobState.FAILED, exit_code=ExitCode.FAILED, ended=now()
            )
            failed.write(folder)
        raise ClusterError(_already_running(root, error.pid)) from error


def _keep_state(
    root: JobsRoot,
    folder: JobFolder,
    request: JobRequest,
    command: CagedCommand,
    restarts: JobRestartPolicy,
) -> int:
    left_behind = [
        record
        for record in read_all(root)
        if record.state is JobState.INTERRUPTED and not record.ended
    ]
    running = JobRecord(folder.id, request.job, JobState.RUNNING, getpid(), begun=now())
    code: int = ExitCode.FAILED
    try:
        with interruptible():
            running.write(folder)
            notify(f"READY=1\nSTATUS={request.job} runs")
            if left_behind:
                _clear_up(root, left_behind, request)
            code = run_to_its_end(_process(folder, request, command), _restart(request), restarts)
    except KeyboardInterrupt:
        announce(f"{request.job}: interrupted")
        code = ExitCode.CANCELLED
    except ClusterError as problem:
        announce(str(problem))
        code = problem.exit_code
    finally:
        notify(f"STOPPING=1\nSTATUS={request.job} ended with {code}")
        ended = replace(
            running,
            state=state_of(code),
            exit_code=code,
            ended=now(),
            run_folder=run_folder(folder),
        )
        ended.write(folder)
    return code


def _cage(folder: JobFolder, writes: Sequence[str]) -> Cage | None:
    try:
        return cage_of(folder.path, writes)
    except OSError as problem:
        raise ClusterError(f"{folder.id}: the cage of its process: {problem}") from None


def _process(folder: JobFolder, request: JobRequest, command: CagedCommand) -> JobProcess:
    overrides = [*request.overrides]
    if request.app:
        overrides.append(f"jobs.train.app={json.dumps(str(folder.app))}")
    command_line = [*command.arguments, request.job, "--inventory", str(folder.inventory)]
    command_line += [*settings(overrides), *request.flags]
    if request.program:
        program = ProgramRequest.of_text(request.program)
        unpacked = unpacked_program(folder.path, program.program)
        command_line += ["--program", replace(program, program=str(unpacked)).to_text()]
    if request.job == "sweep":
        command_line += ["--sweep", str(folder.path / SWEEP)]
    environment = {
        **environment_for_any_folder(),
        **digests_variable((*request.apps, request.app)),
    }
    if request.token:
        environment[TOKEN_VARIABLE] = request.token
    return JobProcess(
        name=request.job,
        inventory=Path(request.inventory),
        command_line=tuple(command_line),
        environment=environment,
        run_file=folder.run_file,
        resumable=request.job in RESUMABLE,
        typed_folder=lambda run: f"runs/{Path(run).name}",
        cage=command.cage,
    )


def _clear_up(root: JobsRoot, jobs: Sequence[JobRecord], request: JobRequest) -> None:
    """Restart the roles once for killed jobs, whose variables are still on the servers."""
    names = ", ".join(job.id for job in jobs)
    announce(
        f"{request.job}: restarting the roles first: {names} was interrupted and has left its"
        " variables there"
    )
    _restart(request)()
    for job in jobs:
        replace(job, ended=now()).write(root.job(job.id))


def _restart(request: JobRequest) -> Callable[[], None]:
    return lambda: restart_roles(
        request.roles, lambda message: announce(f"{request.job}: {message}")
    )


def _already_running(root: JobsRoot, pid: int | None) -> str:
    holders = [record.id for record in read_all(root) if record.state is JobState.RUNNING]
    if holders:
        name = holders[-1]
    else:
        name = f"process {pid}"
    return (
        f"a job is running on this cluster already ({name}): wait for it, attach to it, or cancel"
        " it (`fab job`)"
    )


_LOG = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job and return its exit code, or print every job as JSON for `fab`."""
    parser = argparse.ArgumentParser(
        prog="python -m deploy.jobs.node_job", description="Run a job that was submitted."
    )
    parser.add_argument(
        "id", nargs="?", default="", help="of the job: the name of its folder in jobs/"
    )
    parser.add_argument("--list", action="store_true", help="list the jobs of this node instead")
    parser.add_argument(
        "--root",
        type=Path,
        default=Path(os.environ.get(ROOT_VARIABLE, DEFAULT_ROOT)),
        help="folder that holds jobs/",
    )
    parser.add_argument(
        "--writes",
        action="append",
        default=[],
        metavar="FOLDER",
        help="the job's process may change these, its folder and temporary ones alone (repeatable)",
    )
    options = parser.parse_args(arguments)
    root = JobsRoot(options.root)
    if options.list:
        say_json({"schema": 1, "jobs": [record.to_json() for record in read_all(root)]})
        return ExitCode.DONE
    raise_limit()
    _, *module_arguments = module_command("cluster")
    if is_job_id(options.id):
        try:
            write_into(root.job(options.id))
        except FileNotFoundError:
            pass  # not submitted: `run` reports it to the journal
        except OSError as problem:
            say(
                f"{options.id}: its log cannot be opened ({problem}): look at who made it",
                error=True,
            )
            return ExitCode.FAILED
    if is_job_id(options.id) and (root.job(options.id).path / TASK).is_file():
        return run_task(root.job(options.id), options.writes)
    return run(root, options.id, (this_python(), *module_arguments), writes=options.writes)


def write_into(folder: JobFolder) -> None:
    """Append the output of this process and its children to the job's log from now on.

    Raises OSError.

    The job opens the log itself: systemd would open it as root, through any link that the account
    puts there.
    """
    descriptor = os.open(folder.output, _LOG, 0o640)
    try:
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main())
