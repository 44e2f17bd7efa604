"""`python -m deploy.jobs.node_job ID`: one job from its request to its end, as `pscluster-job@ID.service` runs it."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from cluster.control.door import raise_limit
from cluster.errors import ExitCode
from cluster.logs.terminal import say
from deploy.common.project import module_command
from deploy.jobs.node_job.folders import DEFAULT_ROOT, ROOT_VARIABLE, JobsRoot, is_job_id
from deploy.jobs.node_job.output import say_into
from deploy.jobs.node_job.run import run


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job; the job's own exit code."""
    parser = argparse.ArgumentParser(prog="python -m deploy.jobs.node_job", description="Run a job that was submitted.")
    parser.add_argument("id", help="of the job: the name of its folder in jobs/")
    parser.add_argument(
        "--root", type=Path, default=Path(os.environ.get(ROOT_VARIABLE, DEFAULT_ROOT)), help="folder that holds jobs/"
    )
    given = parser.parse_args(arguments)
    raise_limit()
    _, *words = module_command("cluster")
    root = JobsRoot(given.root)
    if is_job_id(given.id):
        try:
            say_into(root.job(given.id))
        except FileNotFoundError:
            pass  # not submitted: `run` says so, to the journal
        except OSError as problem:
            say(f"{given.id}: its log cannot be opened ({problem}): look at who made it", error=True)
            return ExitCode.FAILED
    return run(root, given.id, (str(_this_python()), *words))


def _this_python() -> Path:
    """Our Python, by a name that stays its own when `current` is flipped to another release while the job runs."""
    python = Path(sys.executable)
    return python.parent.resolve() / python.name  # not resolved itself: the link is what makes it the environment's


if __name__ == "__main__":
    sys.exit(main())
