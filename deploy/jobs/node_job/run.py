"""A submitted job from its request to its end, with its state kept in `state.json` all the while."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from os import getpid
from pathlib import Path

from cluster.errors import ClusterError, ExitCode
from cluster.logs.terminal import say
from cluster.server.systemd import notify
from deploy.common.file_lock import FileLock, LockHeldError
from deploy.common.project import environment_for_any_folder
from deploy.jobs.foreground_job import interruptible, tell
from deploy.jobs.job_restart import JobRestartPolicy
from deploy.jobs.node_job.clock import now
from deploy.jobs.node_job.folders import JobFolder, JobsRoot, is_job_id
from deploy.jobs.node_job.records import JobRecord, JobState, read_all, run_folder, state_of
from deploy.jobs.node_job.request import JobRequest
from deploy.jobs.node_job.role_restart import bring_roles_back
from deploy.jobs.node_job.turn import await_turn
from deploy.jobs.restarted_job import JobPlan, run_to_its_end


def run(
    root: JobsRoot,
    name: str,
    coordinator: Sequence[str],
    restarts: JobRestartPolicy = JobRestartPolicy(),  # noqa: B008  frozen
) -> int:
    """Run the job `name` to its end; its exit code. `coordinator` is the command that takes a job and flags.

    One that is refused, because it was not submitted or another one runs, leaves no state. Main thread only.
    """
    folder = root.job(name)
    try:
        if not is_job_id(name) or not folder.request.is_file():
            raise ClusterError(
                f"{name}: expected a job that was submitted, found no {folder.request}: `fab job` submits one"
            )
        request = JobRequest.read(folder.request)
        with ExitStack() as held:
            if request.after:
                held.enter_context(FileLock(folder.turn_lock))
                code = await_turn(root, folder, request)
                if code:
                    return code
            return _take_the_cluster(root, folder, request, coordinator, restarts)
    except ClusterError as problem:
        say(problem, error=True)
        return problem.exit_code


def _take_the_cluster(
    root: JobsRoot, folder: JobFolder, request: JobRequest, coordinator: Sequence[str], restarts: JobRestartPolicy
) -> int:
    try:
        with FileLock(root.lock):
            return _keep_state(root, folder, request, coordinator, restarts)
    except LockHeldError as error:
        if request.after:  # somebody was quicker when the job before ended
            failed = JobRecord(folder.id, request.job, JobState.FAILED, exit_code=ExitCode.FAILED, ended=now())
            failed.write(folder)
        raise ClusterError(_already_running(root, error.pid)) from error


def _keep_state(
    root: JobsRoot, folder: JobFolder, request: JobRequest, coordinator: Sequence[str], restarts: JobRestartPolicy
) -> int:
    left_behind = [record for record in read_all(root) if record.state is JobState.INTERRUPTED and not record.ended]
    running = JobRecord(folder.id, request.job, JobState.RUNNING, getpid(), begun=now())
    code: int = ExitCode.FAILED
    try:
        with interruptible():
            running.write(folder)
            notify(f"READY=1\nSTATUS={request.job} runs")
            if left_behind:
                _clear_up(root, left_behind, request)
            code = _run_to_its_end(folder, request, coordinator, restarts)
    except KeyboardInterrupt:
        tell(f"{request.job}: interrupted")
        code = ExitCode.CANCELLED
    except ClusterError as problem:
        tell(str(problem))
        code = problem.exit_code
    finally:
        notify(f"STOPPING=1\nSTATUS={request.job} ended with {code}")
        ended = replace(running, state=state_of(code), exit_code=code, ended=now(), run_folder=run_folder(folder))
        ended.write(folder)
    return code


def _run_to_its_end(
    folder: JobFolder, request: JobRequest, coordinator: Sequence[str], restarts: JobRestartPolicy
) -> int:
    settings = [word for override in request.overrides for word in ("--set", override)]
    plan = JobPlan(
        name=request.job,
        inventory=Path(request.inventory),
        words=(*coordinator, request.job, "--inventory", str(folder.inventory), *settings, *request.flags),
        environment=environment_for_any_folder(),
        run_file=folder.run_file,
        goes_on=request.job == "train",
        shown=_as_the_operator_sees,
    )
    return run_to_its_end(plan, _restart(request), restarts)


def _clear_up(root: JobsRoot, jobs: Sequence[JobRecord], request: JobRequest) -> None:
    """What jobs that were killed have left on the servers goes before this one begins; once for each of them."""
    names = ", ".join(job.id for job in jobs)
    tell(f"{request.job}: restarting the roles first: {names} was interrupted and has left its variables there")
    _restart(request)()
    for job in jobs:
        replace(job, ended=now()).write(root.job(job.id))


def _restart(request: JobRequest) -> Callable[[], None]:
    return lambda: bring_roles_back(request.roles, lambda words: tell(f"{request.job}: {words}"))


def _as_the_operator_sees(run_folder: str) -> str:
    return f"runs/{Path(run_folder).name}"


def _already_running(root: JobsRoot, pid: int | None) -> str:
    holders = [record.id for record in read_all(root) if record.state is JobState.RUNNING]
    name = holders[-1] if holders else f"process {pid}"
    return f"a job is running on this cluster already ({name}): wait for it, attach to it, or cancel it (`fab job`)"
