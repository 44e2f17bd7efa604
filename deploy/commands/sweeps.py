"""`fab sweep`: many trainings of one file, a run a node or one after the other over all of them."""

from pathlib import Path
from typing import TYPE_CHECKING

from core.ground.errors import ClusterError, UsageError
from core.logs import say, say_json
from deploy.commands.action import end_as_the_job_did, takes
from deploy.commands.flags import JobFlags, TrustFlags, path, switch, with_overrides, word
from deploy.commands.jobs import ResumeFlags, display_flags, refuse_missing_roles, run_flags
from deploy.commands.opening import open_cluster, open_inventory
from deploy.common.interrupts import waiting_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster.sweeps.sweep_file import SweepFile
    from core.inventory import Inventory
    from deploy.commands.clusters import OpenCluster

MOST_MEASURED = 8
"""Settings that a dry run begins for a moment; of more, some from the first to the last."""


class SweepFlags(ResumeFlags, TrustFlags, JobFlags):
    """The flags of `sweep`."""

    file: str = word("the YAML file of the sweep", is_path=True)
    resume: bool = switch("resume the newest unfinished sweep, or the one of --run")
    run: str | None = path("folder of the sweep that --resume resumes")
    dry_run: bool = switch("estimate time and memory; train nothing")


@takes(SweepFlags)
def sweep(flags: SweepFlags) -> None:
    """Train every run of a sweep's file: `fab sweep FILE`."""
    from cluster.sweeps.sweep_file import read_sweep_file
    from deploy.jobs.services import JobSpec
    from deploy.jobs.sweeps import SweepRequest

    settled = with_overrides(flags)
    file = Path(flags.file)
    sweep_file = read_sweep_file(file)
    of_run = run_flags(flags)
    usual, overrides = usual_run(sweep_file, open_inventory(settled), settled.set_)
    opened = open_cluster(settled.but(set_=overrides), loaded=usual)
    if flags.dry_run:
        say_forecast(sweep_file, opened, settled, as_json=flags.json_)
        return
    if sweep_file.placement == "cluster":
        refuse_missing_roles(opened, "`placement: cluster`")
    request = SweepRequest(file.resolve(), sweep_file, usual)
    end_as_the_job_did(
        opened.jobs.run(JobSpec("sweep", (*display_flags(flags), *of_run), sweep=request))
    )


def usual_run(
    sweep_file: "SweepFile", inventory: "Inventory", typed_overrides: "Sequence[str]"
) -> tuple["Inventory", tuple[str, ...]]:
    """The inventory with what every run has, and the overrides that make it so.

    Each run's settings are checked.

    Raises UsageError.
    """
    from cluster.sweeps.plan import base_overrides, refuse_unusable
    from core.inventory import load

    def with_settings(overrides: "Sequence[str]") -> "Inventory":
        return load(inventory.path, overrides, check_interfaces=False)

    with waiting_for("checking the settings of each run"):
        refuse_unusable(sweep_file, typed_overrides, with_settings)
    overrides = base_overrides(sweep_file, typed_overrides)
    usual = load(inventory.path, overrides)
    if sweep_file.search is not None and usual.jobs.train.validation_subjects == 0:
        raise UsageError(
            f"{sweep_file.file}: search: a search chooses by the validation, and"
            " jobs.train.validation_subjects is 0: give it a number in `base:`"
        )
    return usual, overrides


def say_forecast(
    sweep_file: "SweepFile", opened: "OpenCluster", settled: SweepFlags, *, as_json: bool
) -> None:
    """Print what the sweep will take. Raises ClusterError where a node has not the memory."""
    from cluster.sweeps.plan import choices_of
    from cluster.sweeps.progress import in_words
    from core.inventory import load
    from deploy.commands.apps import memory_of
    from deploy.forecast.measurements import measured_run
    from deploy.forecast.sweep import as_json as json_of
    from deploy.forecast.sweep import forecast_of, lines, needs_of

    path = opened.inventory.path
    choices = choices_of(sweep_file, settled.set_)
    why_not = ""
    measured = []
    if opened.has_machines:
        why_not = "the nodes' speed is not this machine's; the first runs will say"
    elif sweep_file.placement == "cluster":
        why_not = "runs over all nodes are not begun for an estimate; the first runs will say"
    else:
        for at in evenly(len(choices), MOST_MEASURED):
            choice, overrides = choices[at]
            label = in_words(choice.settings) or "one run"
            with waiting_for(f"measuring {label} (TensorFlow takes some seconds to load)"):
                measured.append(measured_run(path.resolve(), overrides, label))
    inventories = [load(path, overrides, check_interfaces=False) for _, overrides in choices]
    needs = needs_of(sweep_file, inventories, memory_of(opened), measured)
    forecast = forecast_of(sweep_file, needs, measured, why_not)
    if as_json:
        say_json(json_of(forecast))
    else:
        say("\n".join(lines(forecast)))
    if not forecast.fits:
        short = next(need for need in needs if not need.fits)
        raise ClusterError(
            f"{sweep_file.file}: {short.node} has not the memory for {short.runs} of these runs at"
            " a time: take fewer workers of it into the inventory, or narrower networks"
        )


def evenly(count: int, most: int) -> list[int]:
    """Return at most `most` places from 0 to count - 1, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return sorted({round(at * (count - 1) / (most - 1)) for at in range(most)})
