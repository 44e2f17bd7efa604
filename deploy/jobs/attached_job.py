"""Jobs on the coordinator's node as the operator follows them: submitted in order, watched, and fetched."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cluster.atomic_write import atomic_write
from cluster.errors import ExitCode
from cluster.logs.terminal import say, say_json
from deploy.cluster.connector import NodeDeadlineError, NodeUnreachableError
from deploy.common.hints import command
from deploy.common.waiting import waiting_for
from deploy.jobs.foreground_job import announce
from deploy.jobs.node_job.records import JobRecord, JobState
from deploy.jobs.node_jobs import NodeJobs
from deploy.logs.log_merge import readable

RESULT_LINE = "result: "
"""Begins the coordinator's own last line, which names a path on the node."""

_MAY_SUCCEED = (JobState.WAITING, JobState.RUNNING, JobState.DONE)


class PendingJobs:
    """A note on the operator's machine of the jobs that a `start` still has to submit.

    It exists from before the first change of a node until every job is submitted.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def noted(self) -> bool:
        """Whether jobs have to run, whatever the plan says."""
        return self._path.exists()

    @property
    def submitted(self) -> tuple[str, ...]:
        """Ids of the first jobs of the order, which are on the coordinator's node; empty for a damaged note."""
        try:
            note: Any = json.loads(self._path.read_text(encoding="utf-8"))
            return tuple(str(name) for name in note["submitted"])
        except (OSError, ValueError, LookupError, TypeError):
            return ()

    def note(self, submitted: Sequence[str] = ()) -> None:
        """Every job but these has to run. Raises ClusterError."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(self._path, json.dumps({"submitted": list(submitted)}).encode() + b"\n")

    def forget(self) -> None:
        """Every job is submitted."""
        self._path.unlink(missing_ok=True)


def reusable(submitted: Sequence[str], order: Sequence[str], records: Sequence[JobRecord]) -> tuple[str, ...]:
    """The submitted ids if the rest of `order` can follow them, else none. Pure.

    None if the order has changed, or if one of them is missing, failed or cancelled: the rest would never begin.
    """
    there = {record.id: record for record in records}
    found = [there[name] for name in submitted if name in there]
    whole = len(found) == len(submitted) and [record.job for record in found] == list(order[: len(found)])
    return tuple(submitted) if whole and all(record.state in _MAY_SUCCEED for record in found) else ()


def run_attached(jobs: NodeJobs, job: str, flags: Sequence[str]) -> int:
    """Submit a job and watch it to its end; its exit code, or 130 when the person leaves it running (Ctrl-C)."""
    with _hint_when_interrupted(jobs), waiting_for(f"submitting {job} to {jobs.node}"):
        name = jobs.submit(job, flags)
    announce(f"job {name} runs on {jobs.node}; Ctrl-C leaves it running")
    return watch(jobs, name, for_programs="--json" in flags)


def run_in_order(
    jobs: NodeJobs, order: Sequence[tuple[str, Sequence[str]]], flags: Sequence[str],
    begun: Sequence[str] = (), on_submitted: Callable[[Sequence[str]], None] = lambda ids: None,
) -> int:  # fmt: skip
    """Submit jobs, each with its own overrides, that follow one another, and watch them; 0, or the first other code.

    All are submitted before the first one is watched: a person who leaves (130) leaves all of them running. `begun` are
    the ids of the first of them if an earlier call submitted those; `on_submitted` receives all ids after each one.
    """
    ids = list(begun)
    with _hint_when_interrupted(jobs):
        for job, more in order[len(ids) :]:
            with waiting_for(f"submitting {job} to {jobs.node}"):
                ids.append(jobs.submit(job, flags, after=ids[-1] if ids else "", more=more))
            on_submitted(ids)
    announce(f"{', then '.join(ids)}: on {jobs.node}; Ctrl-C leaves them running")
    for number, name in enumerate(ids, 1):
        say(f"job {number} of {len(ids)}: {name}")
        code = watch(jobs, name, for_programs="--json" in flags)
        if code:
            return code
    return ExitCode.DONE


def watch(
    jobs: NodeJobs, name: str, *, for_programs: bool = False, checkpoints: bool = False, last_lines: int | None = None
) -> int:
    """Show the job's output on stderr until it has ended, then fetch its run; its exit code, or 130 after Ctrl-C."""
    try:
        record = jobs.attach(name, _show, announce, last_lines)
    except KeyboardInterrupt:
        announce(f"job {name} continues; {_how_to_return(jobs, name)}")
        return ExitCode.CANCELLED
    except (NodeUnreachableError, NodeDeadlineError) as error:
        raise type(error)(f"{error}\njob {name} may still run; {_how_to_return(jobs, name)}") from error
    return finish(jobs, record, for_programs=for_programs, checkpoints=checkpoints)


def finish(jobs: NodeJobs, record: JobRecord, *, for_programs: bool = False, checkpoints: bool = False) -> int:
    """Fetch the run of an ended job, print its path, and return the job's exit code (1 where it is unknown)."""
    with waiting_for(f"fetching the run of {record.id}"):
        folder = jobs.fetch(record, Path(jobs.inventory.runs), checkpoints)
    result = None if folder is None else folder / "result.json"
    if result is not None and result.exists():
        _print_place(result, for_programs)
    elif record.exit_code is None:
        words = f"job {record.id} was {record.state}: its process is gone without a result"
        if record.job == "train" and record.run_folder is not None:
            run = f"runs/{Path(record.run_folder).name}"
            words += f"; `{command(f'job train --resume --run {run}', jobs.inventory.path)}` resumes it"
        announce(words)
    return ExitCode.FAILED if record.exit_code is None else record.exit_code


@contextmanager
def _hint_when_interrupted(jobs: NodeJobs) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        announce(f"interrupted; `{command('job list', jobs.inventory.path)}` shows which jobs were begun")
        raise


def _show(line: str) -> None:
    if not line.startswith(RESULT_LINE):
        say(readable(line), error=True)


def _how_to_return(jobs: NodeJobs, name: str) -> str:
    path = jobs.inventory.path
    return (
        f"`{command(f'job attach --job {name}', path)}` watches it again, "
        f"`{command(f'job cancel --job {name}', path)}` ends it with its result so far"
    )


def _print_place(result: Path, for_programs: bool) -> None:
    shown = os.path.relpath(result) if result.resolve().is_relative_to(Path.cwd()) else str(result)
    if not for_programs:
        say(f"{RESULT_LINE}{shown}")
        return
    say_json({**json.loads(result.read_text()), "result_path": shown})
    say(f"{RESULT_LINE}{shown}", error=True)
