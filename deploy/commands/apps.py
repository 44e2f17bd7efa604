"""`fab app`: a new app from a template, and what a training of an app will need and gain."""

import math
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.errors import UsageError
from cluster.logs.terminal import say, say_json
from deploy.commands.edge import takes
from deploy.commands.flags import Flags
from deploy.commands.jobs import OF_APP, OF_DATA, with_overrides
from deploy.commands.opening import DEFAULT, ENVIRONMENT, open_cluster, open_inventory
from deploy.common.waiting import waiting_for

if TYPE_CHECKING:
    from cluster.inventory import Inventory
    from deploy.commands.opened import OpenCluster

OF_CHECK = {"mode": "jobs.train.mode", "codec": "jobs.train.codec.name", **OF_APP, **OF_DATA}
"""Flags by the keys of the inventory that they override."""
FASTEST_LINK = 1e6


@takes("name template")
def new(flags: Flags) -> None:
    """Write the folder of a new app, which trains at once: `fab app new NAME --template keras`."""
    from deploy.apps.templates import new_app

    made = new_app(flags.name or "", flags.template, Path())
    say(f"wrote {made}/: {', '.join(sorted(path.name for path in made.iterdir()))}")
    first = "" if _is_named(flags) else f"fab init --local --out {DEFAULT}; "
    say(f"next: {first}fab app check {made}; fab job train --app {made} --mode single")


@takes("name inventory set_ mode codec data link json_")
def check(flags: Flags) -> None:
    """Run some steps of an app here: parameters, memory, bytes a step, expected speed-up by number of workers."""
    link = _megabits(flags.link)
    path = Path(os.path.abspath(os.path.expanduser(flags.name or "")))
    with _inventory(replace(flags, app=str(path))) as (inventory, settled):
        from deploy.apps.check import measured_step
        from deploy.apps.outlook import lines, outlook, outlook_json
        from deploy.jobs.services import environment_here

        with waiting_for(f"running some steps of {path.name} (TensorFlow takes some seconds to load)"):
            step = measured_step(inventory.path.resolve(), settled.set_, path, environment_here)
        found = outlook(inventory, step, link, _memory(inventory, settled))
    if flags.json_:
        say_json(outlook_json(step, found))
    else:
        say("\n".join(lines(step, found)))


def _is_named(flags: Flags) -> bool:
    """Whether there is an inventory that a command would take."""
    return bool(flags.inventory or os.environ.get(ENVIRONMENT) or Path(DEFAULT).exists())


def _megabits(text: str) -> float:
    try:
        speed = float(text)
    except ValueError:
        speed = math.nan
    if not 0 < speed <= FASTEST_LINK:
        raise UsageError(f"--link: expected Mbit/s above 0, at most {FASTEST_LINK:,.0f}, such as 300, got {text!r:.40}")
    return speed


def _memory(inventory: "Inventory", flags: Flags) -> Mapping[str, int]:
    from cluster.inventory.schema import THIS_MACHINE

    here = THIS_MACHINE in inventory.roles_by_machine()
    return memory_here() if here else memory_of(open_cluster(flags, as_written=True))


def memory_here() -> Mapping[str, int]:
    """Bytes of memory of this machine, which is the whole of a cluster on it."""
    import psutil

    from cluster.inventory.schema import THIS_MACHINE

    return {THIS_MACHINE: psutil.virtual_memory().total}


def memory_of(opened: "OpenCluster") -> Mapping[str, int]:
    """Bytes of memory by node, as far as they answer; a line on stderr for each that does not."""
    if not opened.has_machines:
        return memory_here()
    from deploy.apps.nodes import memory_of_nodes

    with opened.cluster.fleet() as fleet, waiting_for("asking the nodes for their memory"):
        known, silent = memory_of_nodes(fleet)
    for node, why in silent.items():
        say(f"{node}: its memory is not known: {why}", error=True)
    return known


@contextmanager
def _inventory(flags: Flags) -> "Iterator[tuple[Inventory, Flags]]":
    """The inventory and the flags that name it; one of two workers on this machine where nothing names another."""
    settled = with_overrides(flags, OF_CHECK)
    if _is_named(flags):
        yield open_inventory(settled, as_written=True), settled
        return
    from cluster.inventory import load
    from cluster.inventory.templates import local_inventory

    say("no inventory named: a parameter server and two workers on this machine", error=flags.json_)
    with tempfile.TemporaryDirectory(prefix="pscluster-check-") as folder:
        file = Path(folder, DEFAULT)
        file.write_text(local_inventory(2, 1), encoding="utf-8")
        yield load(file, settled.set_, check_interfaces=False), replace(settled, inventory=str(file))


APP_ACTIONS = (new, check)
