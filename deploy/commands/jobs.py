"""`fab job`: jobs begin on a running cluster, are listed, attached to and cancelled.

The flags of a job are overrides of the inventory, so that one place validates every setting; the
few that concern one run alone are flags of the coordinator too.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.programs.program import MOST_RESTARTS, PLACES, On, ProgramRequest, program_file
from core.ground.errors import ClusterError, UsageError
from core.inventory.extensions import CODECS, MODELS, MODES
from core.logs import say, say_json
from deploy.commands.action import end_as_the_job_did, takes
from deploy.commands.flags import (
    MOST,
    ActionFlags,
    ClusterFlags,
    JobFlags,
    JsonFlags,
    Names,
    TrustFlags,
    as_words,
    behind_dashes,
    format_or_file,
    from_here,
    number,
    path,
    switch,
    text,
    whole_number,
    with_overrides,
    word,
)
from deploy.commands.opening import inventory_alone, is_named, open_cluster
from deploy.common.command_line import command
from deploy.common.interrupts import waiting_for
from deploy.jobs.request import needs_roles

if TYPE_CHECKING:
    from cluster.programs.program import ProgramRequest
    from deploy.commands.clusters import OpenCluster
    from deploy.jobs.node_jobs import NodeJobs


def app_flag(
    help_text: str = "your own model and data: a Python file, or a folder with app.py",
) -> Any:
    """Declare the flag of a training's app, a path that is relative to the working folder."""
    return path(help_text, key="jobs.train.app", read=from_here)


def data_flag(help_text: str = "recordings: a zip, a folder, an .npz, or `synthetic`") -> Any:
    """Declare the flag of a training's recordings."""
    return path(help_text, key="jobs.train.data.source")


def format_flag() -> Any:
    """Declare the flag of how recordings are written."""
    return text(
        "how the recordings are written: a known format, or a YAML file",
        key="jobs.train.data.format",
        read=format_or_file,
    )


def mode_flag() -> Any:
    """Declare the flag of a training's mode."""
    return text(f"how updates meet: {MODES.words()}", key="jobs.train.mode", choices=MODES.names)


def codec_flag() -> Any:
    """Declare the flag of a training's codec."""
    return text(
        f"numbers on the wire: {CODECS.words()}",
        key="jobs.train.codec.name",
        choices=CODECS.names,
    )


def _seed(key: str) -> Any:
    return number("seed of everything random in the job", 0, MOST, key=key)


def _folds(flag: str, value: str) -> int | str:
    if value == "groups":
        return value
    return whole_number(flag, value, 0, MOST)


def _seeds(flag: str, value: str) -> int | list[int]:
    if "," not in value:
        return whole_number(flag, value, 0, MOST)
    return [whole_number(flag, seed, 0, MOST) for seed in value.split(",") if seed.strip()]


class ResumeFlags(ActionFlags):
    """The flags of a job that can be resumed."""

    resume: bool = switch("resume the newest unfinished run, or the one of --run")
    run: str | None = path("folder of the run that --resume resumes")


class ModelFlags(ResumeFlags, TrustFlags, JobFlags):
    """The flags of a job that trains: its model, recordings and mode."""

    app: str | None = app_flag()
    data: str | None = data_flag()
    format: str | None = format_flag()
    mode: str | None = mode_flag()
    codec: str | None = codec_flag()
    model: str | None = text(
        f"the network: {MODELS.words()}", key="jobs.train.model.name", choices=MODELS.names
    )
    hidden: int | None = number(
        "units of each recurrent layer, 8 to 256", 0, MOST, key="jobs.train.model.hidden"
    )
    epochs: int | None = number(
        "passes over the training windows", 0, MOST, key="jobs.train.epochs"
    )


class TrainFlags(ModelFlags):
    """The flags of `job train`."""

    seed: int | None = _seed("jobs.train.seed")
    from_: str | None = path(
        "folder of a run to continue, perhaps with more classes", key="jobs.train.from_run"
    )
    refit: bool = switch(
        "train with some subjects held out, then once more on all of them", key="jobs.train.refit"
    )
    chaos: str | None = text("faults to inject, e.g. kill-worker:0.1,stop-worker:0.05")


class CvFlags(ModelFlags):
    """The flags of `job cv`."""

    folds: int | str | None = text(
        "how many folds, or `groups` to leave out one person (or other group) at a time",
        key="jobs.cv.folds",
        read=_folds,
    )
    seeds: int | list[int] | None = text(
        "how many seeds, from 0 on, or which, e.g. 0,3,7", key="jobs.cv.seeds", read=_seeds
    )


class EvaluateFlags(TrustFlags, JobFlags):
    """The flags of `job evaluate`."""

    run: str | None = path(
        "folder of the training to evaluate; else the newest", key="jobs.evaluate.run"
    )
    app: str | None = app_flag()
    data: str | None = data_flag()
    format: str | None = format_flag()


class PiFlags(JobFlags):
    """The flags of `job pi`."""

    samples: int | None = number("random points", 0, MOST, key="jobs.pi.samples")
    seed: int | None = _seed("jobs.pi.seed")


@takes(TrainFlags)
def train(flags: TrainFlags) -> None:
    """Train the network on the cluster's workers."""
    of_run = run_flags(flags)
    if flags.chaos is not None:
        of_run += ["--chaos", flags.chaos]
    run_job("train", with_overrides(flags), of_run)


@takes(CvFlags)
def cv(flags: CvFlags) -> None:
    """Cross-validate what `train` would train, on the training people only."""
    run_job("cv", with_overrides(flags), run_flags(flags))


@takes(EvaluateFlags)
def evaluate(flags: EvaluateFlags) -> None:
    """Evaluate a trained model on the test set, on the cluster's workers."""
    run_job("evaluate", with_overrides(flags))


@takes(PiFlags)
def pi(flags: PiFlags) -> None:
    """Estimate pi, and calibrate the workers by it."""
    run_job("pi", with_overrides(flags))


def run_job(
    job: str, flags: JobFlags, of_run: Sequence[str] = (), request: "ProgramRequest | None" = None
) -> None:
    """Run one job, `run` with its program, and end the command as it did.

    Raises ClusterError without its roles.
    """
    if is_named(flags):
        alone = None
    else:
        alone = inventory_alone(job, flags.set_, Path.cwd())
    opened = open_cluster(flags, alone=alone)
    if needs_roles(opened.inventory, job, request):
        refuse_missing_roles(opened, "a job")
    from deploy.jobs.services import JobSpec

    arguments = (*display_flags(flags), *of_run)
    end_as_the_job_did(opened.jobs.run(JobSpec(job, arguments, request)))


def refuse_missing_roles(opened: "OpenCluster", needed_by: str) -> None:
    """Raise ClusterError where the roles are too few for what needs them."""
    cluster = opened.inventory
    with opened.cluster.fleet() as fleet, waiting_for("looking at the nodes"):
        now = opened.cluster.services.state(fleet)
    if not now.serves_jobs:
        raise ClusterError(
            f"cluster {cluster.cluster} is {now.summary}: {needed_by} needs every parameter server"
            f" and at least one worker; `{command('deploy start --no-jobs', cluster.path)}`"
            f" starts them, `{command('deploy status', cluster.path)}` shows them"
        )


def display_flags(flags: JobFlags) -> list[str]:
    """Return --json and --quiet for the coordinator, as far as they are given."""
    return as_words(flags, "json_", "quiet")


def run_flags(flags: ResumeFlags) -> list[str]:
    """Return `--resume [RUN]` for the coordinator. Raises UsageError for a run without --resume."""
    if flags.run is not None and not flags.resume:
        raise UsageError("--run: names the training run for --resume; give both, or neither")
    if not flags.resume:
        return []
    if flags.run is None:
        return ["--resume"]
    return ["--resume", flags.run]


class RunFlags(JobFlags):
    """The flags of `job run`."""

    program: str | None = word("the program's file", needed=False, is_path=True)
    requirements: str | None = path("file of further packages for the program, as pip reads it")
    on: On = text(
        "where the program runs: chief (once, beside the coordinator) or workers (once for each)",
        "chief",
        choices=PLACES,
    )
    restarts: int = number(
        "how often to restart the program after a kill or a lost server",
        0,
        MOST_RESTARTS,
        5,
    )
    arguments: Names = behind_dashes("the program's arguments")


@takes(RunFlags)
def run_(flags: RunFlags) -> None:
    """Run any TensorFlow program: `fab job run PROGRAM.py -- ARGUMENTS`."""
    if flags.program is None:
        raise UsageError("job run: expected a program, e.g. `fab job run train.py -- --epochs 3`")
    request = ProgramRequest(
        str(program_file(flags.program)),
        flags.arguments,
        flags.on,
        flags.restarts,
        requirements=flags.requirements or "",
    ).checked()
    run_job("run", with_overrides(flags), request=request)


LINES_AT_FIRST = 20
"""`attach` shows this many of the latest lines of the output first."""


class ChosenJobFlags(ClusterFlags):
    """The flags of an action on one job that was begun."""

    job: str | None = text(
        "id of the job, as `fab job list` shows it; else the one that runs, or the newest"
    )


class AttachFlags(ChosenJobFlags, JsonFlags):
    """The flags of `job attach`."""

    checkpoints: bool = switch("also fetch the run's checkpoints")


@takes(JsonFlags)
def list_(flags: JsonFlags) -> None:
    """List the jobs on the coordinator's node, the newest last."""
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
    with _open_jobs(flags) as jobs:
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
    """End a job with its result so far, and fetch it."""
    with _open_jobs(flags) as jobs:
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
def _open_jobs(flags: ChosenJobFlags) -> "Iterator[NodeJobs]":
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
