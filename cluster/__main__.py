"""The coordinator: `python -m cluster JOB --inventory FILE` runs one job on a cluster whose roles are up."""

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.apps.copy import AppOfRun, app_to_evaluate, app_to_train, with_app
from cluster.apps.environments import continue_in, environments, hold
from cluster.control.door import raise_limit
from cluster.control.token import adopt
from cluster.errors import ClusterError, ExitCode, UsageError
from cluster.inventory import Inventory, load
from cluster.jobs.cancel import Cancel
from cluster.jobs.run_folder import SPEAKER, JobLogging
from cluster.logs.lines import LogSettings, add_flags, given_or
from cluster.logs.terminal import say, say_json
from cluster.server.devices import visible

if TYPE_CHECKING:
    from cluster.engine.chaos import ChaosPlan
    from cluster.jobs.lifecycle import Job

JOBS = {
    "train": "TrainRun",
    "evaluate": "EvaluateRun",
    "pi": "PiRun",
    "cv": "CrossValidationRun",
    "recognise": "RecogniseRun",
    "run": "ProgramRun",
    "sweep": "SweepRun",
}
RESUMABLE = ("train", "cv", "run", "sweep")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a job; returns the exit code. The last line on standard output says where the result is."""
    parser = argparse.ArgumentParser(prog="python -m cluster", description="Run one job on a running cluster.")
    parser.add_argument("job", choices=sorted(JOBS))
    parser.add_argument("--inventory", required=True, help="the cluster's file")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a key (repeatable)")
    parser.add_argument(
        "--resume", nargs="?", const="", metavar="RUN",
        help="train, cv, run, sweep: resume an interrupted run; the newest one unless its folder is named",
    )  # fmt: skip
    parser.add_argument("--driver-environment", default="", metavar="KEY", help="sweep: of the search; `fab` makes it")
    parser.add_argument("--sweep", metavar="FILE", help="sweep: the file that says which runs there are")
    parser.add_argument("--references", metavar="FILE", help="sweep: the table that its file names, where it lies here")
    parser.add_argument(
        "--member", choices=("node", "cluster"), help="train: as a run of a sweep; a node's own run opens no port"
    )
    parser.add_argument("--wish", metavar="JSON", help="run: the program, its arguments and where it runs")
    parser.add_argument("--chaos", metavar="FAULTS", help="faults to inject, e.g. kill-worker:0.1,late:0.02,seed:7")
    parser.add_argument("--json", action="store_true", help="print the result itself on standard output")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.add_argument(
        "--environment", default="", metavar="KEY", help="of an app with requirements of its own: `fab` makes it"
    )
    add_flags(parser, "else as the inventory says")
    given = parser.parse_args(arguments)
    given.words = sys.argv[1:] if arguments is None else list(arguments)
    log = JobLogging(for_programs=given.log_format == "json")
    raise_limit()
    with Cancel() as cancel:
        try:
            inventory = load(given.inventory, given.set)
            log = _log(given, inventory)
            if inventory.one_host:
                adopt(inventory.path, inventory.cluster)
            work = {"run": _run_program, "sweep": _run_sweep}.get(given.job, _run)
            return work(given, inventory, log, cancel)
        except ClusterError as problem:
            log.end_with(problem)
            return problem.exit_code


def _log(given: argparse.Namespace, inventory: Inventory) -> JobLogging:
    written = LogSettings(inventory.logging.format, inventory.logging.level)
    settings = given_or(given.log_format, given.log_level, written)
    SPEAKER.address = inventory.task("coordinator", 0).address
    # A person at a terminal is shown words unless they asked this process itself for something else.
    for_programs = settings.format == "json" and (given.log_format == "json" or not sys.stderr.isatty())
    return JobLogging(settings, for_programs=for_programs)


def _run(given: argparse.Namespace, inventory: Inventory, log: JobLogging, cancel: Cancel) -> int:
    from cluster.data import find_source
    from cluster.data.source import PROJECT_ROOT
    from cluster.user_cache import user_cache

    if given.member == "node":  # what it prepares is for itself, on its own disk
        inventory = inventory.model_copy(update={"storage": None})
    resumed = _run_to_resume(given, Path(inventory.runs))
    chaos = _faults(given)
    app = _app(given, inventory, resumed)
    if app is not None and app.environment:
        continue_in(environments(inventory), app.environment, ["cluster", *given.words])
    inventory = with_app(inventory, app)
    log.to_terminal(quiet=given.quiet)
    if given.job in ("train", "cv", "evaluate") and app is None:
        # A wrong path is an error at once, not after TensorFlow is loaded.
        find_source(inventory.jobs.train.data.source, os.environ, PROJECT_ROOT, user_cache())
    os.environ.update(_own_devices(given.job, inventory))
    # TensorFlow takes seconds to import: not before the inventory is known to be good, and before there are threads.
    from cluster.engine.environment import loading_quietly

    if not given.quiet and not log.for_programs and sys.stderr.isatty():
        say("starting the coordinator (TensorFlow takes some seconds to load)", error=True)
    with loading_quietly():
        job_of = getattr(import_module(f"cluster.jobs.{given.job}"), JOBS[given.job])
    from cluster.jobs.lifecycle import conduct
    from cluster.jobs.progress import Display
    from cluster.jobs.status_watch import StatusWatch

    with Display(quiet=given.quiet or log.for_programs) as display:
        going_on = () if resumed is None else (resumed,)
        job = job_of(inventory, display, cancel, *going_on, chaos=chaos)
        job.app = app
        for note in () if app is None else app.notes:
            display.say(note)
        if given.member is not None:
            _as_member(job, given.member)
        watch = StatusWatch(inventory, given.job, display.say)
        path, result = conduct(job, Path(inventory.runs), cancel, resumed, watch)
    _say_where(path, given.json, log)
    return ExitCode.CANCELLED if result["status"] == "cancelled" else ExitCode.DONE


def _own_devices(job: str, inventory: Inventory) -> Mapping[str, str]:
    """The environment in which TensorFlow sees the devices that this process computes on itself, if it does."""
    train = inventory.jobs.train
    if job not in ("train", "cv") or train.facts.needs_roles() or train.device.kind == "cpu":
        return {}
    numbers = train.device.ids or ()
    used = numbers if train.facts.spans_devices() else numbers[:1]
    return visible(train.device.kind, used, whole=not train.device.memory_growth)


def _run_program(given: argparse.Namespace, inventory: Inventory, log: JobLogging, cancel: Cancel) -> int:
    """The job `run`. This process stays without TensorFlow."""
    from cluster.jobs.lifecycle import conduct
    from cluster.jobs.progress import Display
    from cluster.jobs.run import ProgramRun
    from cluster.jobs.status_watch import StatusWatch
    from cluster.programs.wish import ProgramWish, program_file

    wish = ProgramWish.of_text(given.wish or "")
    program_file(wish.program)
    if wish.python:
        hold(Path(wish.python).parents[1])
    resumed = _run_to_resume(given, Path(inventory.runs))
    log.to_terminal(quiet=given.quiet)
    # Not entered: a live bar would write over what the program prints.
    display = Display(quiet=given.quiet or log.for_programs)
    job = ProgramRun(inventory, display, cancel, wish, quiet=given.quiet)
    watch = StatusWatch(inventory, given.job, display.say)
    try:
        path, result = conduct(job, Path(inventory.runs), cancel, resumed, watch)
    except ClusterError as problem:
        if job.result_path is not None and problem.exit_code == ExitCode.FAILED:  # no other attempt follows
            _say_where(job.result_path, given.json, log)
        raise
    _say_where(path, given.json, log)
    return ExitCode.CANCELLED if result["status"] == "cancelled" else ExitCode.DONE


def _run_sweep(given: argparse.Namespace, inventory: Inventory, log: JobLogging, cancel: Cancel) -> int:
    """The job `sweep`. This process stays without TensorFlow."""
    from cluster.jobs.lifecycle import conduct
    from cluster.jobs.progress import Display
    from cluster.jobs.status_watch import StatusWatch
    from cluster.jobs.sweep import Order, SweepRun
    from cluster.jobs.sweep_places import beside_the_training
    from cluster.sweeps.sweep_file import read

    if given.sweep is None:
        raise UsageError("--sweep: expected the file of a sweep, e.g. sweeps/example.yaml")
    if given.driver_environment:
        continue_in(environments(inventory), given.driver_environment, ["cluster", *given.words])
    sweep = read(Path(given.sweep))
    resumed = _run_to_resume(given, Path(inventory.runs))
    app = app_to_train(inventory, resumed, given.environment)
    if sweep.placement == "cluster":
        inventory = beside_the_training(inventory)
    log.to_terminal(quiet=given.quiet)
    flags = ["--environment", app.environment] if app is not None and app.environment else []
    order = Order(sweep, Path(given.sweep), given.set, flags, given.references)
    with Display(quiet=given.quiet or log.for_programs) as display:
        job = SweepRun(inventory, display, cancel, order, resumed)
        job.app = app
        for note in () if app is None else app.notes:
            display.say(note)
        watch = StatusWatch(inventory, given.job, display.say)
        path, result = conduct(job, Path(inventory.runs), cancel, resumed, watch)
    _say_where(path, given.json, log)
    return ExitCode.CANCELLED if result["status"] == "cancelled" else ExitCode.DONE


def _as_member(job: "Job", kind: str) -> None:
    from cluster.jobs.member import MemberReport

    job.metrics.muted = kind == "node"
    job.stream.add(MemberReport().consume)


def _run_to_resume(given: argparse.Namespace, runs: Path) -> Path | None:
    from cluster.jobs.run_folder import newest_unfinished, unfinished

    if given.resume is None:
        return None
    if given.job not in RESUMABLE:
        raise UsageError(f"--resume: only train, cv, run and sweep can be resumed; run {given.job} again")
    return unfinished(Path(given.resume)) if given.resume else newest_unfinished(runs, given.job)


def _app(given: argparse.Namespace, inventory: Inventory, resumed: Path | None) -> AppOfRun | None:
    if given.job in ("train", "cv"):
        return app_to_train(inventory, resumed, given.environment)
    if given.job == "evaluate":
        from cluster.jobs.run_folder import newest_model

        named = inventory.jobs.evaluate.run
        return app_to_evaluate(
            inventory, Path(named) if named else newest_model(Path(inventory.runs)), given.environment
        )
    return None


def _faults(given: argparse.Namespace) -> "ChaosPlan | None":
    from cluster.engine.chaos import ChaosPlan

    if given.chaos is None:
        return None
    plan = ChaosPlan.parse(given.chaos)
    plan.refuse(given.job, supervised=bool(os.environ.get("PSCLUSTER_SUPERVISOR")), goes_on=given.job == "train")
    return plan


def _say_where(path: Path, as_json: bool, log: JobLogging) -> None:
    shown = os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
    if not as_json:
        say(f"result: {shown}")
        return
    say_json({**json.loads(path.read_text()), "result_path": shown})
    if not log.for_programs:
        say(f"result: {shown}", error=True)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # TensorFlow's server threads cannot be joined (its own documentation: "clean shutdown is not yet implemented").
    os._exit(code)
