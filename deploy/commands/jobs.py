"""`fab job`: one job on a running cluster, and the jobs that were begun. `fab report`: what runs have left.

The flags of a job are overrides of the inventory, so that one place validates every setting; the few that concern one
run alone are flags of the coordinator too.
"""

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.errors import ClusterError, UsageError
from cluster.logs.terminal import say, say_json
from deploy.commands.edge import at_the_edge, end_as_the_job_did
from deploy.commands.flags import whole_number
from deploy.commands.opening import Names, open_cluster
from deploy.common.hints import command
from deploy.common.project import environment_for_any_folder, module_command
from deploy.common.waiting import waiting_for

if TYPE_CHECKING:
    from deploy.jobs.node_jobs import NodeJobs
    from deploy.jobs.services import JobServices

LINES_AT_FIRST = 20
"""Of the output so far that `attach` shows."""

RUNS = Path("runs")
"""The folder of a run that is given by its name alone."""

REPORT_HELP = {
    "run": "folder of a run, or its name below ./runs; several put runs side by side (repeatable)",
    "out": "the file to write; else report.html in the run's folder, or with several runs ./comparison.html",
}

LARGEST = 10**15

Flag = str | bool | None


@at_the_edge
def train(
    context: Any,
    inventory: str | None = None,
    set_: Names = None,
    mode: str | None = None,
    codec: str | None = None,
    model: str | None = None,
    hidden: str | None = None,
    epochs: str | None = None,
    seed: str | None = None,
    data: str | None = None,
    refit: bool = False,
    resume: bool = False,
    run: str | None = None,
    chaos: str | None = None,
    json_: bool = False,
    quiet: bool = False,
    log_format: str | None = None,
    log_level: str | None = None,
) -> None:
    """Train the network on the cluster's workers."""
    flags = run_flags(resume, run, chaos)
    overrides = [
        *settings(
            {
                "jobs.train.mode": mode,
                "jobs.train.codec.name": codec,
                "jobs.train.model.name": model,
                "jobs.train.refit": refit,
            }
        ),
        *number_settings(
            {
                "jobs.train.model.hidden": ("--hidden", hidden),
                "jobs.train.epochs": ("--epochs", epochs),
                "jobs.train.seed": ("--seed", seed),
            }
        ),
        *data_settings(data),
        *log_settings(log_format, log_level),
        *(set_ or ()),
    ]
    _run("train", inventory, overrides, json_, quiet, flags)


@at_the_edge
def evaluate(
    context: Any,
    inventory: str | None = None,
    set_: Names = None,
    data: str | None = None,
    run: str | None = None,
    json_: bool = False,
    quiet: bool = False,
    log_format: str | None = None,
    log_level: str | None = None,
) -> None:
    """Evaluate a trained model on the test set, on the cluster's workers."""
    overrides = [*settings({"jobs.evaluate.run": run}), *data_settings(data), *log_settings(log_format, log_level)]
    overrides += set_ or ()
    _run("evaluate", inventory, overrides, json_, quiet)


@at_the_edge
def pi(
    context: Any,
    inventory: str | None = None,
    set_: Names = None,
    samples: str | None = None,
    seed: str | None = None,
    json_: bool = False,
    quiet: bool = False,
    log_format: str | None = None,
    log_level: str | None = None,
) -> None:
    """Estimate pi, and calibrate the workers by it."""
    overrides = [
        *number_settings({"jobs.pi.samples": ("--samples", samples), "jobs.pi.seed": ("--seed", seed)}),
        *log_settings(log_format, log_level),
        *(set_ or ()),
    ]
    _run("pi", inventory, overrides, json_, quiet)


def _run(
    job: str,
    inventory: str | None,
    overrides: Sequence[str],
    for_programs: bool,
    quiet: bool,
    flags: Sequence[str] = (),
) -> None:
    opened = open_cluster(inventory, overrides, for_programs)
    cluster = opened.inventory
    if cluster.needs_roles(job):
        with opened.cluster.fleet() as fleet, waiting_for("looking at the nodes"):
            now = opened.cluster.services.state(fleet)
        if not now.serves_jobs:
            raise ClusterError(
                f"cluster {cluster.cluster} is {now.summary}: a job needs every parameter server and at least one "
                f"worker; `{command('deploy start --no-jobs', cluster.path)}` starts them, "
                f"`{command('deploy status', cluster.path)}` shows them"
            )
    shown = [flag for flag, given in (("--json", for_programs), ("--quiet", quiet)) if given]
    end_as_the_job_did(opened.jobs.run_job(job, [*shown, *flags]))


@at_the_edge
def list_(context: Any, inventory: str | None = None, set_: Names = None, json_: bool = False) -> None:
    """The jobs on the coordinator's node, the newest last."""
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
        with waiting_for(f"ending job {record.id} with its result so far"):
            ended = jobs.cancel(record.id)
        say(f"job {ended.id}: {ended.state}")
        finish(jobs, ended)


@contextmanager
def _jobs(inventory: str | None, overrides: Names, for_programs: bool = False) -> "Iterator[NodeJobs]":
    opened = open_cluster(inventory, overrides, for_programs, as_written=True)
    with opened.jobs.node_jobs() as jobs:
        if jobs is None:
            raise UsageError(f"{opened.inventory.path}: connection: local: {_where_jobs_are(opened.jobs)}")
        yield jobs


def _where_jobs_are(jobs: "JobServices") -> str:
    pid = jobs.running_job()
    words = "a job runs in the foreground of the command that began it, and Ctrl-C there ends it"
    return (
        f"{words}; none runs now: `fab job train` begins one" if pid is None else f"{words}, as does `kill -INT {pid}`"
    )


@at_the_edge
def report(context: Any, run: Names = None, out: str | None = None) -> None:
    """Write a run's report.html again; with --run several times, put runs side by side."""
    if not run:
        raise UsageError("--run: expected the folder of a run, e.g. `fab report --run runs/20260131T120000Z-train`")
    found = [argument for folder in _folders(run) for argument in ("--run", str(folder))]
    command = module_command("cluster.pages", *found, *(("--out", out) if out else ()))
    # A process of its own: `fab` does not load what draws.
    end_as_the_job_did(subprocess.run(command, env=environment_for_any_folder()).returncode)


def _folders(given: Sequence[str]) -> list[Path]:
    found = []
    for name in given:
        places = [Path(name), RUNS / name]
        folder = next((place for place in places if place.is_dir()), None)
        if folder is None:
            raise UsageError(f"--run {name}: expected the folder of a run, found neither {places[0]} nor {places[1]}")
        found.append(folder)
    return found


def settings(keys: Mapping[str, Flag]) -> list[str]:
    """`key=value` for every given flag, text quoted as YAML reads it."""
    given = {key: value for key, value in keys.items() if value not in (None, False)}
    return [f"{key}={json.dumps(value)}" for key, value in given.items()]


def data_settings(data: str | None) -> list[str]:
    """The override of `--data`."""
    return settings({"jobs.train.data.source": data})


def log_settings(log_format: str | None, log_level: str | None) -> list[str]:
    """The overrides of `--log-format` and `--log-level`."""
    return settings({"logging.format": log_format, "logging.level": log_level})


def number_settings(keys: Mapping[str, tuple[str, str | None]]) -> list[str]:
    """`key=number` for every given (flag, text). Raises UsageError unless each is a whole number."""
    return [f"{key}={whole_number(flag, text, 0, LARGEST)}" for key, (flag, text) in keys.items() if text is not None]


def run_flags(resume: bool, run: str | None, chaos: str | None) -> list[str]:
    """`--resume [RUN]` and `--chaos TEXT` for the coordinator. Raises UsageError for a run without --resume."""
    if run is not None and not resume:
        raise UsageError("--run: names the training run for --resume; give both, or neither")
    resumed = [] if not resume else ["--resume"] if run is None else ["--resume", run]
    return [*resumed, *([] if chaos is None else ["--chaos", chaos])]


JOB_ACTIONS = (train, evaluate, pi, list_, attach, cancel)
