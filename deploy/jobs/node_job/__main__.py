"""`python -m deploy.jobs.node_job ID`, as `pscluster-job@ID.service`; `--list` lists all."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from core.control.door import raise_limit
from core.ground.errors import ExitCode
from core.logs import say, say_json
from deploy.common.project import module_command
from deploy.jobs.node_job.program_task import TASK, run_task, this_python
from deploy.jobs.node_job.records import (
    DEFAULT_ROOT,
    ROOT_VARIABLE,
    JobFolder,
    JobsRoot,
    is_job_id,
    read_all,
)
from deploy.jobs.node_job.run import run

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
