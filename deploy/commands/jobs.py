"""The jobs of `fab job`: one on a running cluster, in the foreground."""

from collections.abc import Sequence
from typing import Any

from cluster.errors import ClusterError
from deploy.commands.edge import at_the_edge, end_as_the_job_did
from deploy.commands.job_settings import data_settings, log_settings, number_settings, run_flags, settings
from deploy.commands.opening import Names, open_cluster
from deploy.common.hints import command
from deploy.common.waiting import waiting_for


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


JOBS = (train, evaluate, pi)
