"""What can be done with jobs that were begun: those of `fab job` that run none themselves."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cluster.errors import UsageError
from cluster.logs.terminal import say, say_json
from deploy.commands.edge import at_the_edge, end_as_the_job_did
from deploy.commands.opening import Names, open_cluster
from deploy.common.waiting import waiting_for

if TYPE_CHECKING:
    from deploy.jobs.node_jobs import NodeJobs
    from deploy.jobs.services import JobServices

LINES_AT_FIRST = 20
"""Of the output so far that `attach` shows."""


@at_the_edge
def list_(context: Any, inventory: str | None = None, set_: Names = None, json_: bool = False) -> None:
    """The jobs that the coordinator's node remembers, the newest last."""
    opened = open_cluster(inventory, set_, json_, as_written=True)
    with opened.jobs.node_jobs() as jobs:
        pid = opened.jobs.running_job() if jobs is None else None
        records = [] if jobs is None else jobs.records()
    if json_:
        shown = {"cluster": opened.inventory.cluster, "jobs": [record.to_json() for record in records]}
        say_json({**shown, "foreground_pid": pid} if jobs is None else shown)
    elif jobs is None:
        say("no job runs" if pid is None else f"a job runs in the foreground of another command (fab, pid {pid})")
    else:
        from deploy.terminal.console import show_jobs

        show_jobs(records)


@at_the_edge
def attach(
    context: Any,
    inventory: str | None = None,
    set_: Names = None,
    job: str | None = None,
    checkpoints: bool = False,
    json_: bool = False,
) -> None:
    """Watch a job to its end and fetch its result; Ctrl-C leaves it running. Ends as the job does."""
    with _jobs(inventory, set_, json_) as jobs:
        from deploy.jobs.attached_job import watch

        name = jobs.choose(job).id
        code = watch(jobs, name, for_programs=json_, checkpoints=checkpoints, last_lines=LINES_AT_FIRST)
    end_as_the_job_did(code)


@at_the_edge
def cancel(context: Any, inventory: str | None = None, set_: Names = None, job: str | None = None) -> None:
    """End a job, with its result so far, and fetch that."""
    with _jobs(inventory, set_) as jobs:
        from deploy.jobs.attached_job import finish

        record = jobs.choose(job)
        if record.state.ended:
            say(f"job {record.id} has ended already: {record.state}")
            return
        with waiting_for(f"job {record.id} is to end with its result so far"):
            ended = jobs.cancel(record.id)
        say(f"job {ended.id}: {ended.state}")
        finish(jobs, ended)


@contextmanager
def _jobs(inventory: str | None, overrides: Names, for_programs: bool = False) -> "Iterator[NodeJobs]":
    opened = open_cluster(inventory, overrides, for_programs, as_written=True)
    with opened.jobs.node_jobs() as jobs:
        if jobs is None:
            raise UsageError(f"{opened.inventory.path}: connection: local: {_where_local_jobs_are(opened.jobs)}")
        yield jobs


def _where_local_jobs_are(services: "JobServices") -> str:
    pid = services.running_job()
    words = "a job runs in the foreground of the command that began it, and Ctrl-C there ends it"
    return (
        f"{words}; none runs now: `fab job train` begins one" if pid is None else f"{words}, as does `kill -INT {pid}`"
    )


JOB_ACTIONS = (list_, attach, cancel)
