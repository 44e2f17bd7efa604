"""What a person sees of a job on the coordinator's node: its output while they watch, its result on their machine."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cluster.errors import ExitCode
from cluster.logs.terminal import say, say_json
from deploy.cluster.connector import NodeDeadlineError, NodeUnreachableError
from deploy.common.hints import command
from deploy.common.waiting import waiting_for
from deploy.jobs.foreground_job import tell
from deploy.jobs.node_job.records import JobRecord
from deploy.jobs.node_jobs import NodeJobs
from deploy.logs.log_merge import readable

RESULT_LINE = "result: "
"""How the coordinator's own last line begins; it names a path on the node."""


def run_attached(jobs: NodeJobs, job: str, flags: Sequence[str]) -> int:
    """Submit a job and watch it to its end; its exit code, or 130 when the person leaves it running (Ctrl-C)."""
    with _hint_when_interrupted(jobs), waiting_for(f"submitting {job} to {jobs.node}"):
        name = jobs.submit(job, flags)
    tell(f"job {name} runs on {jobs.node}; Ctrl-C leaves it running")
    return watch(jobs, name, for_programs="--json" in flags)


def run_in_order(
    jobs: NodeJobs, order: Sequence[tuple[str, Sequence[str]]], flags: Sequence[str],
    begun: Sequence[str] = (), on_submitted: Callable[[Sequence[str]], None] = lambda ids: None,
) -> int:  # fmt: skip
    """Submit jobs, each with overrides of its own, that follow one another, and watch them; 0, or the first other code.

    All of them are there before the first one is watched: a person who leaves (130) leaves all of them running. `begun`
    are the ids of the first of them where those were submitted before; `on_submitted` is told all ids after each one.
    """
    ids = list(begun)
    with _hint_when_interrupted(jobs):
        for job, more in order[len(ids) :]:
            with waiting_for(f"submitting {job} to {jobs.node}"):
                ids.append(jobs.submit(job, flags, after=ids[-1] if ids else "", more=more))
            on_submitted(ids)
    tell(f"{', then '.join(ids)}: on {jobs.node}; Ctrl-C leaves them running")
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
        record = jobs.attach(name, _show, tell, last_lines)
    except KeyboardInterrupt:
        tell(f"job {name} goes on; {_how_to_come_back(jobs, name)}")
        return ExitCode.CANCELLED
    except (NodeUnreachableError, NodeDeadlineError) as error:
        raise type(error)(f"{error}\njob {name} may go on; {_how_to_come_back(jobs, name)}") from error
    return finish(jobs, record, for_programs=for_programs, checkpoints=checkpoints)


def finish(jobs: NodeJobs, record: JobRecord, *, for_programs: bool = False, checkpoints: bool = False) -> int:
    """Fetch what an ended job has left, say where it lies, and return its exit code (1 where nobody knows it)."""
    with waiting_for(f"fetching the run of {record.id}"):
        folder = jobs.fetch(record, Path(jobs.inventory.runs), checkpoints)
    result = None if folder is None else folder / "result.json"
    if result is not None and result.exists():
        _say_where(result, for_programs)
    elif record.exit_code is None:
        words = f"job {record.id} was {record.state}: its process is gone without a result"
        if record.job == "train" and record.run_folder is not None:
            run = f"runs/{Path(record.run_folder).name}"
            words += f"; `{command(f'job train --resume --run {run}', jobs.inventory.path)}` goes on with it"
        tell(words)
    return ExitCode.FAILED if record.exit_code is None else record.exit_code


@contextmanager
def _hint_when_interrupted(jobs: NodeJobs) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        tell(f"interrupted; `{command('job list', jobs.inventory.path)}` shows which jobs were begun")
        raise


def _show(line: str) -> None:
    if not line.startswith(RESULT_LINE):
        say(readable(line), error=True)


def _how_to_come_back(jobs: NodeJobs, name: str) -> str:
    path = jobs.inventory.path
    return (
        f"`{command(f'job attach --job {name}', path)}` watches it again, "
        f"`{command(f'job cancel --job {name}', path)}` ends it with its result so far"
    )


def _say_where(result: Path, for_programs: bool) -> None:
    shown = os.path.relpath(result) if result.resolve().is_relative_to(Path.cwd()) else str(result)
    if not for_programs:
        say(f"{RESULT_LINE}{shown}")
        return
    say_json({**json.loads(result.read_text()), "result_path": shown})
    say(f"{RESULT_LINE}{shown}", error=True)
