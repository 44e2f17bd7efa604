"""`fab job`: one job on a running cluster, and the jobs that were begun. `fab report`: what runs have left.

The flags of a job are overrides of the inventory, so that one place validates every setting; the few that concern one
run alone are flags of the coordinator too.
"""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.errors import ClusterError, UsageError
from cluster.logs.terminal import say, say_json
from deploy.commands.edge import end_as_the_job_did, takes
from deploy.commands.flags import Flags, whole_number
from deploy.commands.opening import open_cluster
from deploy.common.command_line import command
from deploy.common.project import environment_for_any_folder, module_command
from deploy.common.waiting import waiting_for
from deploy.jobs.request import needs_roles

if TYPE_CHECKING:
    from cluster.programs.wish import ProgramWish
    from deploy.jobs.node_jobs import NodeJobs

LINES_AT_FIRST = 20
"""Of the output so far that `attach` shows."""

RUNS = Path("runs")
"""The folder of a run that is given by its name alone."""

LARGEST = 10**15

OF_DATA = {"data": "jobs.train.data.source"}
OF_APP = {"app": "jobs.train.app"}
OF_LOGS = {"log_format": "logging.format", "log_level": "logging.level"}
OF_TRAIN = {
    "mode": "jobs.train.mode",
    "codec": "jobs.train.codec.name",
    "model": "jobs.train.model.name",
    "refit": "jobs.train.refit",
    "hidden": "jobs.train.model.hidden",
    "epochs": "jobs.train.epochs",
    "seed": "jobs.train.seed",
    **OF_APP,
    **OF_DATA,
    **OF_LOGS,
}
OF_CV = {
    "folds": "jobs.cv.folds",
    "seeds": "jobs.cv.seeds",
    **{flag: key for flag, key in OF_TRAIN.items() if flag not in ("seed", "refit")},
}
OF_EVALUATE = {"run": "jobs.evaluate.run", **OF_APP, **OF_DATA, **OF_LOGS}
OF_RECOGNISE = {
    "mode": "jobs.train.mode",
    "run": "jobs.recognise.run",
    "data": "jobs.recognise.data",
    "acceleration": "jobs.recognise.acceleration",
    "rotation": "jobs.recognise.rotation",
    **OF_LOGS,
}
OF_PI = {"samples": "jobs.pi.samples", "seed": "jobs.pi.seed", **OF_LOGS}
"""Flags by the keys of the inventory that they override."""

NUMBERS = frozenset({"hidden", "epochs", "seed", "samples", "folds", "seeds"})
FROM_HERE = frozenset({"app"})
"""Paths that a person types from their working folder; the key itself is relative to the inventory's."""


@takes(
    "inventory set_ app mode codec model hidden epochs seed data refit resume run chaos json_ quiet log_format "
    "log_level"
)
def train(flags: Flags) -> None:
    """Train the network on the cluster's workers."""
    run_job("train", with_overrides(flags, OF_TRAIN), run_flags(flags))


@takes(
    "inventory set_ app folds seeds mode codec model hidden epochs data resume run json_ quiet log_format log_level"
)  # fmt: skip
def cv(flags: Flags) -> None:
    """Cross-validate what `train` would train, over the training people alone, on the cluster's workers."""
    run_job("cv", with_overrides(flags, OF_CV), run_flags(flags))


@takes("inventory set_ app data run json_ quiet log_format log_level")
def evaluate(flags: Flags) -> None:
    """Evaluate a trained model on the test set, on the cluster's workers."""
    run_job("evaluate", with_overrides(flags, OF_EVALUATE))


@takes("inventory set_ mode run data acceleration rotation json_ quiet log_format log_level")
def recognise(flags: Flags) -> None:
    """Label a long recording with a trained model, on the cluster's workers."""
    if flags.data:
        flags = replace(flags, data=os.path.abspath(os.path.expanduser(flags.data)))
    run_job("recognise", with_overrides(flags, OF_RECOGNISE))


@takes("inventory set_ samples seed json_ quiet log_format log_level")
def pi(flags: Flags) -> None:
    """Estimate pi, and calibrate the workers by it."""
    run_job("pi", with_overrides(flags, OF_PI))


def run_job(job: str, flags: Flags, of_run: Sequence[str] = (), wish: "ProgramWish | None" = None) -> None:
    """Run one job, `run` with its program, and end the command as it did. Raises ClusterError without its roles."""
    opened = open_cluster(flags)
    cluster = opened.inventory
    if needs_roles(cluster, job, wish):
        with opened.cluster.fleet() as fleet, waiting_for("looking at the nodes"):
            now = opened.cluster.services.state(fleet)
        if not now.serves_jobs:
            raise ClusterError(
                f"cluster {cluster.cluster} is {now.summary}: a job needs every parameter server and at least one "
                f"worker; `{command('deploy start --no-jobs', cluster.path)}` starts them, "
                f"`{command('deploy status', cluster.path)}` shows them"
            )
    shown = [flag for flag, given in (("--json", flags.json_), ("--quiet", flags.quiet)) if given]
    words = [*shown, *of_run]
    end_as_the_job_did(opened.jobs.run_job(job, words) if wish is None else opened.jobs.run_program(wish, words))


@takes("inventory set_ json_")
def list_(flags: Flags) -> None:
    """The jobs on the coordinator's node, the newest last."""
    opened = open_cluster(flags, as_written=True)
    with opened.jobs.node_jobs() as jobs:
        pid = opened.jobs.running_job() if jobs is None else None
        records = [] if jobs is None else jobs.records()
    if flags.json_:
        shown = {"cluster": opened.inventory.cluster, "jobs": [record.to_json() for record in records]}
        say_json({**shown, "foreground_pid": pid} if jobs is None else shown)
    elif jobs is None:
        say("no job runs" if pid is None else f"a job runs in the foreground of another command (fab, pid {pid})")
    else:
        from deploy.terminal.console import show_jobs

        show_jobs(records)


@takes("inventory set_ job checkpoints json_")
def attach(flags: Flags) -> None:
    """Watch a job to its end and fetch its result; Ctrl-C leaves it running. Ends as the job does."""
    with _jobs(flags) as jobs:
        from deploy.jobs.attached_job import watch

        name = jobs.choose(flags.job).id
        code = watch(jobs, name, for_programs=flags.json_, checkpoints=flags.checkpoints, last_lines=LINES_AT_FIRST)
    end_as_the_job_did(code)


@takes("inventory set_ job")
def cancel(flags: Flags) -> None:
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
def _jobs(flags: Flags) -> "Iterator[NodeJobs]":
    opened = open_cluster(flags, as_written=True)
    with opened.jobs.node_jobs() as jobs:
        if jobs is None:
            pid = opened.jobs.running_job()
            other = "; none runs now: `fab job train` begins one" if pid is None else f", as does `kill -INT {pid}`"
            raise UsageError(
                f"{opened.inventory.path}: connection: local: a job runs in the foreground of the command that began "
                f"it, and Ctrl-C there ends it{other}"
            )
        yield jobs


@takes("runs report")
def report(flags: Flags) -> None:
    """Write a run's report.html again; with --run several times, put runs side by side."""
    if not flags.runs:
        raise UsageError("--run: expected the folder of a run, e.g. `fab report --run runs/20260131T120000Z-train`")
    found = [argument for folder in _folders(flags.runs) for argument in ("--run", str(folder))]
    words = module_command("cluster.pages", *found, *(("--out", flags.report) if flags.report else ()))
    # A process of its own: `fab` does not load what draws.
    end_as_the_job_did(subprocess.run(words, env=environment_for_any_folder()).returncode)


def _folders(given: Sequence[str]) -> list[Path]:
    found = []
    for name in given:
        places = [Path(name), RUNS / name]
        folder = next((place for place in places if place.is_dir()), None)
        if folder is None:
            raise UsageError(f"--run {name}: expected the folder of a run, found neither {places[0]} nor {places[1]}")
        found.append(folder)
    return found


def with_overrides(flags: Flags, keys: Mapping[str, str]) -> Flags:
    """The flags, those of `keys` as overrides of the inventory before the ones of --set, text quoted as YAML reads it.

    Raises UsageError for a number that is none.
    """
    made = []
    for name, key in keys.items():
        value = getattr(flags, name)
        if value and name in FROM_HERE:
            value = os.path.abspath(os.path.expanduser(value))
        if value not in (None, False):
            made.append(f"{key}={_as_yaml(name, value)}")
    return replace(flags, set_=(*made, *flags.set_))


def _as_yaml(name: str, value: str | bool) -> str:
    """The value of a flag as its key takes it. Raises UsageError for a number that is none."""
    text, flag = str(value), f"--{name}"
    if name == "seeds" and "," in text:
        return json.dumps([whole_number(flag, each, 0, LARGEST) for each in text.split(",") if each.strip()])
    if name in NUMBERS and (name, text) != ("folds", "groups"):
        return str(whole_number(flag, text, 0, LARGEST))
    return json.dumps(value)


def run_flags(flags: Flags) -> list[str]:
    """`--resume [RUN]` and `--chaos TEXT` for the coordinator. Raises UsageError for a run without --resume."""
    if flags.run is not None and not flags.resume:
        raise UsageError("--run: names the training run for --resume; give both, or neither")
    resumed = [] if not flags.resume else ["--resume"] if flags.run is None else ["--resume", flags.run]
    return [*resumed, *([] if flags.chaos is None else ["--chaos", flags.chaos])]


JOB_ACTIONS = (train, cv, evaluate, recognise, pi, list_, attach, cancel)
