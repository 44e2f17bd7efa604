"""`fab job list`, `attach` and `cancel`: the jobs that were begun."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from core.ground.errors import UsageError
from core.logs import say, say_json
from deploy.commands.action import end_as_the_job_did, takes
from deploy.commands.flags import ClusterFlags, JsonFlags, switch, text
from deploy.commands.opening import open_cluster
from deploy.common.waiting import waiting_for

if TYPE_CHECKING:
    from deploy.commands.opened import OpenCluster
    from deploy.jobs.node_jobs import NodeJobs


LINES_AT_FIRST = 20
"""`attach` shows this many of the latest lines of the output first."""


class ChosenJobFlags(ClusterFlags):
    """The flags of an action on one job that was begun."""

    job: str | None = text(
        "id of the job, as `fab job list` shows it; else the one that runs, or the newest"
    )


class AttachFlags(ChosenJobFlags, JsonFlags):
    """The flags of `job attach`."""

    checkpoints: bool = switch("fetch the checkpoints of the run too")


@takes(JsonFlags)
def list_(flags: JsonFlags) -> None:
    """The jobs on the coordinator's node, the newest last."""
    opened = open_cluster(flags, as_written=True)
    with opened.jobs.node_jobs() as jobs:
        if jobs is None:
            _show_foreground_job(opened, flags)
            return
        records = jobs.records()
    if flags.json_:
        entries = [record.to_json() for record in records]
        say_json({"cluster": opened.inventory.cluster, "jobs": entries})
    else:
        from deploy.terminal.console import show_jobs

        show_jobs(records)


def _show_foreground_job(opened: "OpenCluster", flags: JsonFlags) -> None:
    pid = opened.jobs.running_job()
    if flags.json_:
        say_json({"cluster": opened.inventory.cluster, "jobs": [], "foreground_pid": pid})
    elif pid is None:
        say("no job runs")
    else:
        say(f"a job runs in the foreground of another command (fab, pid {pid})")


@takes(AttachFlags)
def attach(flags: AttachFlags) -> None:
    """Watch a job to its end and fetch its result; Ctrl-C leaves it running.

    Ends as the job does.
    """
    with _jobs(flags) as jobs:
        from deploy.jobs.attached_job import watch

        name = jobs.choose(flags.job).id
        code = watch(
            jobs,
            name,
            for_programs=flags.json_,
            checkpoints=flags.checkpoints,
            last_lines=LINES_AT_FIRST,
        )
    end_as_the_job_did(code)


@takes(ChosenJobFlags)
def cancel(flags: ChosenJobFlags) -> None:
    """End a job, with its result so far, and fetch that."""
    with _jobs(flags) as jobs:
        from deploy.jobs.attached_job import finish

        record = jobs.choose(flags.job)
        if record.state.ended:
            say(f"job {record.id} has ended already: {record.state}")
            return
        with waiting_for(f"ending job {record.id} with its result so far"):
            ended = jobs.cancel(record.id)
        say(f"job {ended.id}: {ended.state}")
        finish(jobs, ended)


@contextmanager
def _jobs(flags: ChosenJobFlags) -> "Iterator[NodeJobs]":
    opened = open_cluster(flags, as_written=True)
    with opened.jobs.node_jobs() as jobs:
        if jobs is None:
            pid = opened.jobs.running_job()
            if pid is None:
                other = "; none runs now: `fab job train` begins one"
            else:
                other = f", as does `kill -INT {pid}`"
            raise UsageError(
                f"{opened.inventory.path}: connection: local: a job runs in the foreground of the"
                f" command that began it, and Ctrl-C there ends it{other}"
            )
        yield jobs
