"""`fab sweep`: many trainings of one file, a run a node or one after the other over all of them."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.errors import ClusterError, UsageError
from cluster.logs.terminal import say, say_json
from deploy.commands.edge import end_as_the_job_did, takes
from deploy.commands.flags import Flags
from deploy.commands.jobs import OF_LOGS, run_flags, with_overrides
from deploy.commands.opening import open_cluster, open_inventory
from deploy.common.command_line import command
from deploy.common.waiting import waiting_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster.inventory import Inventory
    from cluster.sweeps.sweep_file import SweepFile
    from deploy.commands.opened import OpenCluster

MOST_MEASURED = 8
"""Settings that a dry run begins for a moment; of more, some from the first to the last."""


@takes("file inventory set_ resume run dry_run json_ quiet log_format log_level")
def sweep(flags: Flags) -> None:
    """Train every run of a sweep's file: `fab sweep FILE`."""
    from cluster.references.tables import table_of
    from cluster.sweeps.sweep_file import read
    from deploy.jobs.sweeps import SweepOrder

    given = with_overrides(flags, OF_LOGS)
    path = Path(flags.file or "")
    found = read(path)
    if found.references is not None and not flags.resume:  # a sweep that is resumed has its own copy
        table_of(found.references, path.parent)
    of_run = run_flags(flags)
    usual, overrides = usual_run(found, open_inventory(given), given.set_)
    opened = open_cluster(replace(given, set_=overrides), loaded=usual)
    if flags.dry_run:
        say_outlook(found, opened, given, as_json=flags.json_)
        return
    if found.placement == "cluster":
        refuse_missing_roles(opened)
    shown = [flag for flag, wanted in (("--json", flags.json_), ("--quiet", flags.quiet)) if wanted]
    end_as_the_job_did(opened.jobs.run_sweep(SweepOrder(path.resolve(), found, usual), [*shown, *of_run]))


def usual_run(
    found: "SweepFile", inventory: "Inventory", given: "Sequence[str]"
) -> tuple["Inventory", tuple[str, ...]]:  # fmt: skip
    """The inventory with what every run has, and the overrides that make it so. Each run's settings are checked.

    Raises UsageError.
    """
    from cluster.inventory import load
    from cluster.sweeps.plan import base_overrides, refuse_unusable

    def with_settings(overrides: "Sequence[str]") -> "Inventory":
        return load(inventory.path, overrides, check_interfaces=False)

    with waiting_for("checking the settings of each run"):
        refuse_unusable(found, given, with_settings)
    overrides = base_overrides(found, given)
    made = load(inventory.path, overrides)
    if found.search is not None and made.jobs.train.validation_subjects == 0:
        raise UsageError(
            f"{found.file}: search: a search chooses by the validation, and jobs.train.validation_subjects is 0: "
            "give it a number in `base:`"
        )
    return made, overrides


def say_outlook(found: "SweepFile", opened: "OpenCluster", given: Flags, *, as_json: bool) -> None:
    """What the sweep will take. Raises ClusterError where a node has not the memory."""
    from cluster.inventory import load
    from cluster.sweeps.plan import base_overrides, corners, overrides_of
    from cluster.sweeps.table import in_words
    from deploy.commands.apps import memory_of
    from deploy.sweeps.measured import measured_run
    from deploy.sweeps.outlook import as_json as json_of
    from deploy.sweeps.outlook import lines, needs_of, outlook_of

    base, path = base_overrides(found, given.set_), opened.inventory.path
    choices = found.choices or corners(found)
    every = [overrides_of(base, found.placement, choice.settings, found.seeds[0]) for choice in choices]
    why_not, measured = "", []
    if opened.has_machines:
        why_not = "the nodes' speed is not this machine's; the first runs will say"
    elif found.placement == "cluster":
        why_not = "runs over all nodes are not begun for an estimate; the first runs will say"
    else:
        for at in evenly(len(every), MOST_MEASURED):
            words = in_words(choices[at].settings) or "one run"
            with waiting_for(f"measuring {words} (TensorFlow takes some seconds to load)"):
                measured.append(measured_run(path.resolve(), every[at], words))
    inventories = [load(path, one, check_interfaces=False) for one in every]
    needs = needs_of(found, inventories, memory_of(opened), measured)
    outlook = outlook_of(found, needs, measured, why_not)
    if as_json:
        say_json(json_of(outlook))
    else:
        say("\n".join(lines(outlook)))
    if not outlook.fits:
        short = next(need for need in needs if not need.fits)
        raise ClusterError(
            f"{found.file}: {short.node} has not the memory for {short.runs} of these runs at a time: take fewer "
            "workers of it into the inventory, or narrower networks"
        )


def evenly(count: int, most: int) -> list[int]:
    """At most so many places from 0 to count - 1, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return sorted({round(at * (count - 1) / (most - 1)) for at in range(most)})


def refuse_missing_roles(opened: "OpenCluster") -> None:
    """Raise ClusterError where the cluster's roles do not run: `placement: cluster` trains on them."""
    cluster = opened.inventory
    with opened.cluster.fleet() as fleet, waiting_for("looking at the nodes"):
        now = opened.cluster.services.state(fleet)
    if not now.serves_jobs:
        raise ClusterError(
            f"cluster {cluster.cluster} is {now.summary}: `placement: cluster` needs every parameter server and at "
            f"least one worker; `{command('deploy start --no-jobs', cluster.path)}` starts them"
        )
