"""`python -m deploy.jobs.pod_job JOB --inventory FILE`: one job of containers, to its end.

It does in a pod what `fab` and a job's unit do on machines: it prepares the recordings, waits for
the roles, and starts the coordinator again in the same run. The volume of the runs outlives the
pod, so the next pod of the Job resumes.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from core.control.door import raise_limit
from core.control.role_restart import await_roles, restart_roles
from core.ground.errors import ClusterError, ExitCode
from core.ground.files import atomic_write, write_refusal
from core.ground.locks import FileLock, LockHeldError
from core.inventory import Inventory, load
from core.logs import say
from deploy.common.command_line import settings
from deploy.common.interrupts import interruptible
from deploy.common.project import environment_for_any_folder, module_command
from deploy.jobs.foreground_job import JobProcess, JobRestartPolicy, announce, run_to_its_end
from deploy.jobs.request import RESUMABLE, needs_data, prepare_data, roles_of

JOBS = ("train", "cv", "evaluate", "pi")
HOLDER = ".pod-job"
"""File in the folder of the runs: the identity of the pod job that has the cluster, until it ends
in order."""
LOCK = ".pod-job-lock"
"""The lock of the pod job that runs. Kubernetes replaces a pod whose node it cannot reach, which
may still run there."""
RUN_FILE = ".pod-job-run"
MOST_BYTES = 4096


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job; its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m deploy.jobs.pod_job", description="Run one job from a container."
    )
    parser.add_argument("job", choices=JOBS)
    parser.add_argument("--inventory", required=True, help="the cluster's file")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a key (repeatable)",
    )
    parser.add_argument(
        "--identity",
        default="",
        metavar="TEXT",
        help="of the Job: its next pod, which has the same, resumes its run",
    )
    options = parser.parse_args(arguments)
    raise_limit()
    try:
        # The first process of a container has no usual end by a signal: without a handler SIGTERM
        # does nothing.
        with interruptible():
            inventory = load(options.inventory, options.set)
            if needs_data(options.job):
                folder = prepare_data(inventory.jobs.train)["folder"]
                options.set.append(f"jobs.train.data.source={json.dumps(folder)}")
        return run(inventory, options.job, options.set, options.identity)
    except KeyboardInterrupt:
        announce(f"{options.job}: interrupted before it was started")
        return ExitCode.CANCELLED
    except ClusterError as problem:
        say(problem, error=True)
        return problem.exit_code


def run(
    inventory: Inventory,
    job: str,
    overrides: Sequence[str],
    identity: str,
    restarts: JobRestartPolicy = JobRestartPolicy(),  # noqa: B008  frozen
    coordinator: Sequence[str] = module_command("cluster"),
) -> int:
    """Run the job on roles that hold nothing of an earlier one. Main thread only.

    Raises ClusterError, and KeyboardInterrupt for a signal while it waits for the roles. While
    another pod job runs it touches neither the roles nor a file.
    """
    runs = Path(inventory.runs)
    holder = runs / HOLDER
    run_file = runs / RUN_FILE
    roles = roles_of(inventory, job)
    with _lock(runs, job):
        before = _text(holder)
        if job in RESUMABLE and identity and before == identity:
            resumed = _text(run_file)
        else:
            resumed = None
        with interruptible():
            if before is None:
                await_roles(roles, _saying(job))
            else:  # a pod that was killed has left its variables on the servers
                announce(
                    f"{job}: restarting the roles first: the pod before was killed and has left its"
                    " variables there"
                )
                restart_roles(roles, _saying(job))
        atomic_write(holder, (identity or "a job without an identity").encode())
        command_line = (*coordinator, job, "--inventory", str(inventory.path), *settings(overrides))
        process = JobProcess(
            name=job,
            inventory=inventory.path,
            command_line=(*command_line, "--resume", resumed) if resumed else command_line,
            environment=environment_for_any_folder(),
            run_file=run_file,
            resumable=job in RESUMABLE,
        )
        code = run_to_its_end(process, lambda: restart_roles(roles, _saying(job)), restarts)
        if code in (ExitCode.DONE, ExitCode.BAD_USAGE):
            holder.unlink(missing_ok=True)
        return code


def _lock(runs: Path, job: str) -> FileLock:
    try:
        runs.mkdir(parents=True, exist_ok=True)
        return FileLock(runs / LOCK)
    except LockHeldError:
        holder = _text(runs / HOLDER) or "one that says no name"
        raise ClusterError(
            f"{job}: another pod runs a job on this cluster (of the Job {holder}): nothing was"
            " restarted; wait for that pod to end, or delete it"
        ) from None
    except OSError as problem:
        raise write_refusal(
            runs, "the folder of the runs cannot be made or locked", problem
        ) from None


def _saying(job: str) -> Callable[[str], None]:
    return lambda message: announce(f"{job}: {message}")


def _text(path: Path) -> str | None:
    """Read a small file; None without one."""
    try:
        with path.open("rb") as file:
            return file.read(MOST_BYTES).decode().strip()
    except (FileNotFoundError, UnicodeDecodeError):
        return None
    except OSError as problem:
        raise ClusterError(
            f"{path}: cannot be read ({problem.strerror}): give the volume of the runs to the uid"
            f" {os.getuid()}"
        ) from None


if __name__ == "__main__":
    sys.exit(main())
