"""The coordinator: `python -m cluster JOB --inventory FILE` runs one job on a cluster.

The cluster's roles run already where the job needs them.
"""

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.apps.app import remove_copies
from cluster.apps.copy import AppOfRun, app_to_evaluate, app_to_train, with_app
from cluster.apps.environments import continue_in, environments, hold
from cluster.apps.files import TRUST_FLAG, trust
from cluster.in_order import JOBS, READS_RECORDINGS, load_jobs, refuse_another_order, run_in_order
from cluster.jobs.cancel import Cancel
from cluster.jobs.run_folder import SPEAKER, JobLogging
from core.control.door import raise_limit
from core.control.own_state import adopt_token, withdraw_token
from core.ground.errors import ClusterError, ExitCode, UsageError
from core.ground.files import read_json
from core.ground.shell import reached_directly
from core.inventory import Inventory, load
from core.logs import say, say_json
from core.logs.lines import LogSettings, add_flags, given_or
from core.server.process import device_environment

if TYPE_CHECKING:
    from cluster.jobs.lifecycle import Job, JobContext
    from core.engine.chaos import ChaosPlan

RESUMABLE = ("train", "cv", "run", "sweep")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a job; returns the exit code.

    The last line on standard output says where the result is.
    """
    options = _parser().parse_args(arguments)
    if arguments is None:
        options.command_line = sys.argv[1:]
    else:
        options.command_line = list(arguments)
    log = JobLogging(for_programs=options.log_format == "json")
    raise_limit()
    with Cancel() as cancel:
        try:
            refuse_another_order(options.job, options.then, options.of)
            inventory = load(options.inventory, options.set)
            log = _log(options, inventory)
            os.environ.update(
                reached_directly(os.environ, (task.host for task in inventory.tasks()))
            )
            if inventory.one_host:
                adopt_token(inventory.path, inventory.cluster)
            if arguments is None:
                withdraw_token()
            if options.trust_app is not None:
                trust(options.trust_app)
            run = partial(_run_job, options, inventory, log)
            if not options.of:
                return run(options.job, cancel)
            return run_in_order((options.job, *options.then), options.of, inventory, run, cancel)
        except ClusterError as problem:
            log.end_with(problem)
            return problem.exit_code


def _run_job(
    options: argparse.Namespace, inventory: Inventory, log: JobLogging, job: str, cancel: Cancel
) -> int:
    """Run one job; --resume is for the first one alone."""
    of_job = argparse.Namespace(**vars(options))
    of_job.job = job
    if job != options.job:
        of_job.resume = None
    plan_of = {"run": _program, "sweep": _sweep}.get(job, _training)
    try:
        return _run(plan_of(of_job, inventory, log), of_job, log, cancel)
    except ClusterError as problem:
        log.end_with(problem)
        return problem.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m cluster", description="Run one job on a running cluster."
    )
    parser.add_argument("job", choices=sorted([*JOBS, "run", "sweep"]))
    parser.add_argument("--inventory", required=True, help="the cluster's file")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a key (repeatable)",
    )
    parser.add_argument(
        "--resume",
        nargs="?",
        const="",
        metavar="RUN",
        help=(
            "train, cv, run, sweep: resume an interrupted run; the newest one unless its folder is"
            " named"
        ),
    )
    parser.add_argument(
        "--then", action="append", default=[], choices=JOBS, help="another job (repeatable)"
    )
    parser.add_argument(
        "--of",
        type=int,
        default=0,
        metavar="N",
        help="of so many jobs these are the last; `fab` says on standard input when they begin",
    )
    parser.add_argument(
        "--driver-environment",
        default="",
        metavar="KEY",
        help="sweep: of the search; `fab` makes it",
    )
    parser.add_argument(
        "--sweep", metavar="FILE", help="sweep: the file that says which runs there are"
    )
    parser.add_argument(
        "--member",
        choices=("node", "cluster"),
        help="train: as a run of a sweep; a node's own run opens no port",
    )
    parser.add_argument(
        "--program", metavar="JSON", help="run: the program, its arguments and where it runs"
    )
    parser.add_argument(
        "--chaos", metavar="FAULTS", help="faults to inject, e.g. kill-worker:0.1,late:0.02,seed:7"
    )
    parser.add_argument(
        "--json", action="store_true", help="print the result itself on standard output"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.add_argument(
        "--environment",
        default="",
        metavar="KEY",
        help="of an app with requirements of its own: `fab` makes it",
    )
    parser.add_argument(
        TRUST_FLAG,
        metavar="DIGEST",
        help="from now on the app of this digest is your own: its code may run",
    )
    add_flags(parser, "else as the inventory says")
    return parser


def _log(options: argparse.Namespace, inventory: Inventory) -> JobLogging:
    written = LogSettings(inventory.logging.format, inventory.logging.level)
    settings = given_or(options.log_format, options.log_level, written)
    SPEAKER.address = inventory.task("coordinator", 0).address
    # A person at a terminal is shown words unless they asked this process itself for something
    # else.
    for_programs = settings.format == "json" and (
        options.log_format == "json" or not sys.stderr.isatty()
    )
    return JobLogging(settings, for_programs=for_programs)


@dataclass(frozen=True)
class JobPlan:
    """A job before it is made. `make` needs the display that exists once it may be shown."""

    inventory: Inventory
    make: Callable[["JobContext"], "Job"]
    resumed: Path | None = None
    app: AppOfRun | None = None
    chaos: "ChaosPlan | None" = None
    shows_bars: bool = True


def _run(plan: JobPlan, options: argparse.Namespace, log: JobLogging, cancel: Cancel) -> int:
    """Make the job, run it, say where its result is."""
    from cluster.jobs.lifecycle import JobContext, conduct
    from cluster.jobs.progress import Display
    from cluster.jobs.status_watch import StatusWatch

    display = Display(quiet=options.quiet or log.for_programs)
    context = JobContext(
        plan.inventory,
        display,
        cancel,
        plan.resumed,
        plan.app,
        plan.chaos,
        muted=options.member == "node",
    )
    with display if plan.shows_bars else nullcontext():
        job = plan.make(context)
        for note in () if plan.app is None else plan.app.notes:
            display.say(note)
        if options.member is not None:
            from cluster.sweeps.member import MemberReport

            job.stream.add(MemberReport().consume)
        watch = StatusWatch(job, display.say)
        try:
            path, result = conduct(job, Path(plan.inventory.runs), cancel, plan.resumed, watch)
        except ClusterError as problem:
            last = problem.exit_code == ExitCode.FAILED  # no other attempt follows
            if last and job.result_path is not None:
                _say_where(job.result_path, options.json, log)
            raise
    _say_where(path, options.json, log)
    if result["status"] == "cancelled":
        return ExitCode.CANCELLED
    return ExitCode.DONE


def _training(options: argparse.Namespace, inventory: Inventory, log: JobLogging) -> JobPlan:
    """Plan a job that computes with TensorFlow."""
    from core.data import find_source
    from core.data.source import PROJECT_ROOT
    from core.ground.files import user_cache

    if options.member == "node":  # what it prepares is for itself, on its own disk
        inventory = inventory.model_copy(update={"storage": None})
    # Settled before any code of an app runs: its threads may change the working folder, and ours
    # write the run.
    inventory = inventory.model_copy(update={"runs": os.path.abspath(inventory.runs)})
    resumed = _run_to_resume(options, Path(inventory.runs))
    chaos = _faults(options)
    if options.job == "evaluate":
        inventory = _with_run(inventory)
    app = _app(options, inventory, resumed)
    if app is not None and app.environment:
        if options.of:
            alone = f"run {options.job} by itself"
            raise UsageError(f"--of: {app.path} has requirements of its own: {alone}")
        continue_in(environments(inventory), app.environment, ["cluster", *options.command_line])
    inventory = with_app(inventory, app)
    log.to_terminal(quiet=options.quiet)
    if options.job in READS_RECORDINGS and app is None:
        # A wrong path is an error at once, not after TensorFlow is loaded.
        data = inventory.jobs.train.data
        find_source(data.source, os.environ, PROJECT_ROOT, user_cache(), data.format)
    os.environ.update(_own_devices(options.job, inventory))
    # TensorFlow takes seconds to import: not before the inventory is known to be good, and before
    # there are threads.
    visible = not options.quiet and not log.for_programs and sys.stderr.isatty()
    if visible and "tensorflow" not in sys.modules:
        say("starting the coordinator (TensorFlow takes some seconds to load)", error=True)
    return JobPlan(inventory, load_jobs(options.job), resumed, app, chaos)


def _own_devices(job: str, inventory: Inventory) -> Mapping[str, str]:
    """Return the environment in which TensorFlow sees the devices that this process uses itself."""
    train = inventory.jobs.train
    if job not in ("train", "cv") or train.facts.needs_roles() or train.device.kind == "cpu":
        return {}
    numbers = train.device.ids or ()
    if train.facts.spans_devices():
        used = numbers
    else:
        used = numbers[:1]
    return device_environment(train.device.kind, used, whole=not train.device.memory_growth)


def _program(options: argparse.Namespace, inventory: Inventory, log: JobLogging) -> JobPlan:
    """Plan the job `run`. This process stays without TensorFlow."""
    from cluster.programs.job import ProgramRun
    from cluster.programs.program import ProgramRequest, program_file

    request = ProgramRequest.of_text(options.program or "")
    program_file(request.program)
    if request.python:
        hold(Path(request.python).parents[1])
    resumed = _run_to_resume(options, Path(inventory.runs))
    log.to_terminal(quiet=options.quiet)
    make = partial(ProgramRun, request=request, quiet=options.quiet)
    # A live bar would write over what the program prints.
    return JobPlan(inventory, make, resumed, shows_bars=False)


def _sweep(options: argparse.Namespace, inventory: Inventory, log: JobLogging) -> JobPlan:
    """Plan the job `sweep`. This process stays without TensorFlow."""
    from cluster.sweeps.executors import beside_the_training
    from cluster.sweeps.job import SweepInput, SweepRun
    from cluster.sweeps.sweep_file import read_sweep_file

    if options.sweep is None:
        raise UsageError("--sweep: expected the file of a sweep, e.g. sweeps/example.yaml")
    if options.driver_environment:
        continue_in(
            environments(inventory), options.driver_environment, ["cluster", *options.command_line]
        )
    sweep = read_sweep_file(Path(options.sweep))
    resumed = _run_to_resume(options, Path(inventory.runs))
    app = app_to_train(inventory, resumed, options.environment)
    if sweep.placement == "cluster":
        inventory = beside_the_training(inventory)
    log.to_terminal(quiet=options.quiet)
    if app is not None and app.environment:
        flags = ["--environment", app.environment]
    else:
        flags = []
    order = SweepInput(sweep, Path(options.sweep), options.set, flags)
    return JobPlan(inventory, partial(SweepRun, order=order), resumed, app)


def _run_to_resume(options: argparse.Namespace, runs: Path) -> Path | None:
    from cluster.jobs.run_folder import newest_unfinished, unfinished

    if options.resume is None:
        return None
    if options.job not in RESUMABLE:
        raise UsageError(
            f"--resume: only train, cv, run and sweep can be resumed; run {options.job} again"
        )
    if options.resume:
        return unfinished(Path(options.resume).absolute())
    return newest_unfinished(runs, options.job)


def _app(
    options: argparse.Namespace, inventory: Inventory, resumed: Path | None
) -> AppOfRun | None:
    if options.job in ("train", "cv"):
        app = app_to_train(
            inventory, resumed, options.environment, member=options.member is not None
        )
        # The driver put the copy there, and it does not know which environment this node has for
        # it.
        if app is None or options.member is None:
            return app
        return replace(app, environment=options.environment)
    if options.job == "evaluate":
        return app_to_evaluate(
            inventory, Path(inventory.jobs.evaluate.run or ""), options.environment
        )
    return None


def _with_run(inventory: Inventory) -> Inventory:
    """The inventory with the folder of the run to evaluate: the newest one where it names none.

    Raises UsageError.
    """
    from cluster.jobs.run_folder import model_run

    evaluate = inventory.jobs.evaluate
    evaluate = evaluate.model_copy(
        update={"run": str(model_run(evaluate.run, Path(inventory.runs)))}
    )
    return inventory.model_copy(
        update={"jobs": inventory.jobs.model_copy(update={"evaluate": evaluate})}
    )


def _faults(options: argparse.Namespace) -> "ChaosPlan | None":
    from core.engine.chaos import ChaosPlan

    if options.chaos is None:
        return None
    plan = ChaosPlan.parse(options.chaos)
    plan.refuse(
        options.job,
        supervised=bool(os.environ.get("PSCLUSTER_SUPERVISOR")),
        goes_on=options.job == "train",
    )
    return plan


def _say_where(path: Path, as_json: bool, log: JobLogging) -> None:
    if path.is_relative_to(Path.cwd()):
        path_text = os.path.relpath(path)
    else:
        path_text = str(path)
    if not as_json:
        say(f"result: {path_text}")
        return
    say_json({**read_json(path), "result_path": path_text})
    if not log.for_programs:
        say(f"result: {path_text}", error=True)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    remove_copies()
    # TensorFlow's server threads cannot be joined (its own documentation: "clean shutdown is not
    # yet implemented").
    os._exit(code)
