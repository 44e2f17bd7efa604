"""`fab job train`, `cv`, `evaluate` and `pi`: one job on a running cluster.

The flags of a job are overrides of the inventory, so that one place validates every setting; the
few that concern one run alone are flags of the coordinator too.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.ground.errors import ClusterError, UsageError
from core.inventory.fields import CODECS, MODELS, MODES
from deploy.commands.action import end_as_the_job_did, takes
from deploy.commands.alone import inventory_alone
from deploy.commands.flags import (
    MOST,
    ActionFlags,
    JobFlags,
    TrustFlags,
    as_words,
    number,
    path,
    switch,
    text,
    with_overrides,
)
from deploy.commands.opening import is_named, open_cluster
from deploy.commands.values import format_or_file, from_here, whole_number
from deploy.common.command_line import command
from deploy.common.waiting import waiting_for
from deploy.jobs.request import needs_roles

if TYPE_CHECKING:
    from cluster.programs.program import ProgramRequest
    from deploy.commands.opened import OpenCluster


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

    resume: bool = switch("resume the newest unfinished run, or that of --run")
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
    """Cross-validate what `train` would train, over the training people alone, on the workers."""
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
    arguments = [*display_flags(flags), *of_run]
    if request is None:
        end_as_the_job_did(opened.jobs.run_job(job, arguments))
    else:
        end_as_the_job_did(opened.jobs.run_program(request, arguments))


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
