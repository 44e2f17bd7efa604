"""Jobs on the coordinator's node as the operator follows them: submitted, watched, fetched."""

import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from typing_extensions import override

from cluster.apps.environments import ON_NODES, python_of
from core.ground.errors import ExitCode, reason_of
from core.ground.files import json_object
from core.logs import say, say_json
from deploy.cluster.cluster import ManagedCluster, with_trusted_addresses
from deploy.cluster.connector import NodeDeadlineError, NodeUnreachableError
from deploy.cluster.fleet import Fleet
from deploy.cluster.places import JOB_ACCOUNT
from deploy.common.command_line import command
from deploy.common.interrupts import waiting_for
from deploy.jobs.apps import (
    NO_APP,
    AppOfJob,
    app_of_job,
    refuse_missing_data,
)
from deploy.jobs.foreground_job import announce
from deploy.jobs.node_jobs import NodeJobs
from deploy.jobs.program_task import PROGRAM_ARCHIVE, packed_program
from deploy.jobs.records import JobRecord
from deploy.jobs.request import needs_data
from deploy.jobs.services import JobServices, JobSpec, reusable
from deploy.jobs.sweeps import (
    answering,
    begin_on_workers,
    cancel_without_runners,
    program_tasks,
    refuse_on_nodes,
    search_flags,
    start_runners,
)
from deploy.logs import readable

if TYPE_CHECKING:
    from cluster.programs.program import ProgramRequest

TaskRole = Literal["coordinator", "worker"]
BringData = Callable[[Fleet], Sequence[str]]
"""Brings the recordings to the nodes; the overrides that name them there."""
BringEnvironments = Callable[[Fleet, Path, Sequence[str]], Mapping[str, str]]
"""Installs what a requirements file needs on the nodes of these names; the key of the environment
on each."""

RESULT_LINE = "result: "
"""Begins the coordinator's own last line, which names a path on the node."""


class SubmittedJobs(JobServices):
    """`JobServices` of machines: units of the coordinator's node, which outlive this command."""

    def __init__(
        self, cluster: ManagedCluster, bring_data: BringData, bring_environments: BringEnvironments
    ) -> None:
        super().__init__(cluster)
        self._bring_data = bring_data
        self._bring_environments = bring_environments

    @override
    def run(self, spec: JobSpec) -> int:
        if spec.sweep is not None:
            refuse_on_nodes(spec.sweep)
        requirements = spec.requirements
        role: TaskRole = "coordinator"
        if spec.on_workers:
            role = "worker"
        with self._cluster.fleet() as fleet:
            keys: dict[str, str] = {}

            def bring(requirements: Path) -> str:
                """Install packages on the nodes that carry it out; the coordinator's key."""
                nodes = self._nodes(role)
                if spec.sweep is not None and spec.on_workers:
                    nodes = answering(fleet, nodes)
                keys.update(self._bring_environments(fleet, requirements, nodes))
                if spec.on_workers:
                    return ""
                return keys[nodes[0]]

            if requirements is not None:
                bring(requirements)
            trained = spec.inventory(self._cluster.inventory)
            app = app_of_job(trained, spec.trains, spec.flags, bring)
            jobs = self._jobs(fleet, self._data(fleet, [spec.trains], app, of=role))
            if spec.sweep is not None:
                search = search_flags(spec.sweep, self._bring_to_coordinator(fleet))
                flags = [*spec.flags, *app.flags, *search]
                with _hint_when_interrupted(jobs):
                    if spec.on_workers:
                        name = begin_on_workers(jobs, fleet, spec.sweep, flags, app, keys)
                    else:
                        name = jobs.submit("sweep", flags, app=app.files, files=spec.sweep.files)
                return _watched(jobs, name, flags)
            if spec.program is None:
                return run_attached(jobs, spec.job, spec.flags, app)
            if spec.on_workers:
                return run_on_workers(jobs, fleet, spec.program, spec.flags, keys)
            key = next(iter(keys.values()), "")
            if key:
                python = str(python_of(ON_NODES, key))
            else:
                python = ""
            program = replace(spec.program, python=python)
            return run_attached(jobs, spec.job, spec.flags, request=program)

    @override
    def run_jobs(self, order: Sequence[str], flags: Sequence[str]) -> int:
        """Submit the jobs; each starts after the one before, also without this command (130).

        The note keeps what is left to submit; the next call does not submit again what an earlier
        one did.
        """
        if not order:
            self.pending.forget()
            return ExitCode.DONE
        with self._cluster.fleet() as fleet:
            bring = self._bring_to_coordinator(fleet)
            inventory = self._cluster.inventory
            apps = {job: app_of_job(inventory, job, flags, bring) for job in order}
            more = self._data(fleet, order, *apps.values())
            jobs = self._jobs(fleet)
            begun = self.pending.submitted
            if begun:
                begun = reusable(begun, order, jobs.records())

            def noted(ids: Sequence[str]) -> None:
                if len(ids) < len(order):
                    self.pending.note(ids)
                else:
                    self.pending.forget()

            if begun:
                noted(begun)
            with_overrides = [(job, more if needs_data(job) else ()) for job in order]
            return run_in_order(jobs, with_overrides, flags, begun, noted, apps)

    @override
    def running_job(self) -> None:
        """Return None: no command of this machine runs a job."""

    @contextmanager
    @override
    def node_jobs(self) -> Iterator[NodeJobs]:
        with self._cluster.fleet() as fleet:
            yield self._jobs(fleet)

    def _bring_to_coordinator(self, fleet: Fleet) -> Callable[[Path], str]:
        """Return a function that installs a requirements file on the coordinator's node.

        It returns the key of the environment there.
        """
        nodes = self._nodes("coordinator")

        def bring(requirements: Path) -> str:
            return self._bring_environments(fleet, requirements, nodes)[nodes[0]]

        return bring

    def _data(
        self,
        fleet: Fleet,
        jobs: Sequence[str],
        *apps: AppOfJob,
        of: TaskRole = "coordinator",
    ) -> Sequence[str]:
        """The overrides that name the data of the jobs, which are on the nodes then.

        `of`: the role of the nodes on which an app reads its own.
        """
        inventory = self._cluster.inventory
        if not any(map(needs_data, jobs)):
            return ()
        if not any(app.reads_data for app in apps):
            return self._bring_data(fleet)
        for name in answering(fleet, self._nodes(of)):
            refuse_missing_data(inventory, fleet.nodes[name], JOB_ACCOUNT)
        return ()

    def _nodes(self, role: TaskRole) -> list[str]:
        """The nodes with the role."""
        return list(dict.fromkeys(task.node for task in self._cluster.inventory.of_role(role)))

    def _jobs(self, fleet: Fleet, more: Sequence[str] = ()) -> NodeJobs:
        (hub,) = self._nodes("coordinator")
        overrides = (*self._cluster.overrides, *more)
        inventory = with_trusted_addresses(self._cluster.inventory, self._cluster.known_hosts)
        return NodeJobs(fleet.nodes[hub], inventory, overrides)


def run_attached(
    jobs: NodeJobs,
    job: str,
    flags: Sequence[str],
    app: AppOfJob = NO_APP,
    request: "ProgramRequest | None" = None,
) -> int:
    """Submit a job and watch it; return its exit code, or 130 when it is left running (Ctrl-C)."""
    with _hint_when_interrupted(jobs):
        name = jobs.submit(job, [*flags, *app.flags], app=app.files, program_request=request)
    return _watched(jobs, name, flags)


def run_on_workers(
    jobs: NodeJobs,
    fleet: Fleet,
    request: "ProgramRequest",
    flags: Sequence[str],
    environments: Mapping[str, str] = MappingProxyType({}),
) -> int:
    """Submit the job that leads a program, start a runner on each worker's node, and watch.

    Returns the code that `run_attached` does. `environments` has the key of each node's packages
    besides. Raises ClusterError where a runner does not start; the job is cancelled then.
    """
    token = secrets.token_hex(32)
    with _hint_when_interrupted(jobs):
        name = jobs.submit("run", flags, program_request=request, token=token)
        tasks = program_tasks(jobs.inventory, request.name, token, environments)
        with (
            waiting_for("starting it on the workers' nodes"),
            packed_program(Path(request.program)) as archive,
        ):
            failed = start_runners(fleet, jobs.places, tasks, {PROGRAM_ARCHIVE: archive})
        if failed:
            raise cancel_without_runners(jobs, name, failed)
    return _watched(jobs, name, flags, " and the workers' nodes")


def _watched(jobs: NodeJobs, name: str, flags: Sequence[str], more_nodes: str = "") -> int:
    announce(f"job {name} runs on {jobs.node}{more_nodes}; Ctrl-C leaves it running")
    return watch(jobs, name, for_programs="--json" in flags)


def run_in_order(
    jobs: NodeJobs,
    order: Sequence[tuple[str, Sequence[str]]],
    flags: Sequence[str],
    begun: Sequence[str] = (),
    on_submitted: Callable[[Sequence[str]], None] = lambda ids: None,
    apps: Mapping[str, AppOfJob] = MappingProxyType({}),
) -> int:
    """Submit jobs that follow one another, watch them, and return 0 or the first other code.

    Each has overrides of its own.

    All are submitted before the first one is watched: a person who leaves (130) leaves all of them
    running. `begun` are the ids of the first of them if an earlier call submitted those;
    `on_submitted` receives all ids after each one. `apps` has what a job takes along, by its name.
    """
    ids = list(begun)
    with _hint_when_interrupted(jobs):
        for job, more in order[len(ids) :]:
            app = apps.get(job, NO_APP)
            after = ids[-1] if ids else ""
            ids.append(jobs.submit(job, [*flags, *app.flags], after, more, app.files))
            on_submitted(ids)
    announce(f"{', then '.join(ids)}: on {jobs.node}; Ctrl-C leaves them running")
    for number, name in enumerate(ids, 1):
        say(f"job {number} of {len(ids)}: {name}")
        code = watch(jobs, name, for_programs="--json" in flags)
        if code:
            return code
    return ExitCode.DONE


def watch(
    jobs: NodeJobs,
    name: str,
    *,
    for_programs: bool = False,
    checkpoints: bool = False,
    last_lines: int | None = None,
) -> int:
    """Show the job's output until it has ended, then fetch its run.

    Returns the job's exit code, or 130 after Ctrl-C.
    """
    try:
        record = jobs.attach(name, _show, announce, last_lines)
    except KeyboardInterrupt:
        announce(f"job {name} continues; {_how_to_return(jobs, name)}")
        return ExitCode.CANCELLED
    except (NodeUnreachableError, NodeDeadlineError) as error:
        raise type(error)(
            f"{error}\njob {name} may still run; {_how_to_return(jobs, name)}"
        ) from error
    return finish(jobs, record, for_programs=for_programs, checkpoints=checkpoints)


def finish(
    jobs: NodeJobs, record: JobRecord, *, for_programs: bool = False, checkpoints: bool = False
) -> int:
    """Fetch the run of an ended job and print its path; return the exit code, 1 if unknown."""
    with waiting_for(f"fetching the run of {record.id}"):
        folder = jobs.fetch(record, Path(jobs.inventory.runs), checkpoints)
    if folder is not None and (folder / "result.json").exists():
        _draw_report(folder)
        _print_place(folder / "result.json", for_programs)
    elif record.exit_code is None:
        message = f"job {record.id} was {record.state}: its process is gone without a result"
        if record.job == "train" and record.run_folder is not None:
            run = f"runs/{Path(record.run_folder).name}"
            message += (
                f"; `{command(f'job train --resume --run {run}', jobs.inventory.path)}` resumes it"
            )
        announce(message)
    if record.exit_code is None:
        return ExitCode.FAILED
    return record.exit_code


@contextmanager
def _hint_when_interrupted(jobs: NodeJobs) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        announce(
            f"interrupted; `{command('job list', jobs.inventory.path)}` shows which jobs were begun"
        )
        raise


def _show(line: str) -> None:
    if not (line.startswith(f"{RESULT_LINE}/") and line.endswith("/result.json")):
        say(readable(line), error=True)


def _how_to_return(jobs: NodeJobs, name: str) -> str:
    path = jobs.inventory.path
    return (
        f"`{command(f'job attach --job {name}', path)}` watches it again, "
        f"`{command(f'job cancel --job {name}', path)}` ends it with its result so far"
    )


def _draw_report(folder: Path) -> None:
    # Here and from its figures: a page of the node's own would run its scripts in a browser.
    from cluster.pages import draw_report

    try:
        draw_report(folder)
    except Exception as problem:  # they are the node's, and may be anything
        say(
            f"{folder}: no report: {reason_of(problem):.200}; `fab report --run {folder}` draws it",
            error=True,
        )


def _print_place(result: Path, for_programs: bool) -> None:
    if result.resolve().is_relative_to(Path.cwd()):
        displayed_path = os.path.relpath(result)
    else:
        displayed_path = str(result)
    if not for_programs:
        say(f"{RESULT_LINE}{displayed_path}")
        return
    say_json({**(json_object(result) or {}), "result_path": displayed_path})
    say(f"{RESULT_LINE}{displayed_path}", error=True)
