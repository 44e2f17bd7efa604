"""`fab app` and `fab data`: a new app and what it will need; recordings, fetched and looked at.

Recordings are read in a process of the data's own room.
"""

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from core.ground.registry import either
from core.logs import say, say_json
from deploy.apps import TEMPLATES, USUAL, new_app
from deploy.commands.action import run_module, takes
from deploy.commands.flags import (
    ActionFlags,
    JsonFlags,
    as_words,
    format_or_file,
    from_here,
    number,
    path,
    switch,
    text,
    with_overrides,
    word,
)
from deploy.commands.jobs import codec_flag, data_flag, mode_flag
from deploy.commands.opening import DEFAULT, ENVIRONMENT, open_cluster, open_inventory
from deploy.common.interrupts import waiting_for

if TYPE_CHECKING:
    from core.inventory import Inventory, TrainJob
    from deploy.commands.clusters import OpenCluster


class NewAppFlags(ActionFlags):
    """The flags of `app new`."""

    name: str = word("name of the app, and of its folder")
    template: str = text(
        f"what the new app is: {either(TEMPLATES)}; {USUAL}", USUAL, choices=tuple(TEMPLATES)
    )


class CheckAppFlags(JsonFlags):
    """The flags of `app check`."""

    app: str = word(
        "a Python file, or a folder with app.py",
        spelled="name",
        key="jobs.train.app",
        read=from_here,
        is_path=True,
    )
    mode: str | None = mode_flag()
    codec: str | None = codec_flag()
    data: str | None = data_flag()
    out: str | None = path(
        "measure what coordinator and servers take as well, and write it for `fab forecast`",
        read=from_here,
    )


@takes(NewAppFlags)
def new(flags: NewAppFlags) -> None:
    """Write the folder of a new app, which trains at once: `fab app new NAME --template keras`."""
    folder = new_app(flags.name, flags.template, Path())
    say(f"wrote {folder}/: {', '.join(sorted(path.name for path in folder.iterdir()))}")
    first = ""
    if not _is_named(None):
        first = f"fab init --local --out {DEFAULT}; "
    say(f"next: {first}fab app check {folder}; fab job train --app {folder} --mode single")


@takes(CheckAppFlags)
def check(flags: CheckAppFlags) -> None:
    """Run some steps of an app here: parameters, memory, bytes a step; costs with --out."""
    path = Path(flags.app)
    if flags.out is not None:
        from cluster.forecast.costs import refuse_unless_costs

        refuse_unless_costs(Path(flags.out))
    with inventory_or_usual(flags) as (inventory, settled):
        from deploy.forecast.measurements import measured_step
        from deploy.forecast.training import forecast, forecast_json, lines
        from deploy.jobs.services import environment_here

        with waiting_for(
            f"running some steps of {path.name} (TensorFlow takes some seconds to load)"
        ):
            step = measured_step(inventory.path.resolve(), settled.set_, path, environment_here)
        prediction = forecast(inventory, step, _memory(inventory, settled))
        if flags.out is not None:
            from deploy.forecast.roles import measure_into

            measure_into(Path(flags.out), inventory)
    if flags.json_:
        say_json(forecast_json(step, prediction))
    else:
        say("\n".join(lines(step, prediction)))


Json = TypeVar("Json", bound=JsonFlags)


def _is_named(inventory: str | None) -> bool:
    """Whether there is an inventory that a command would take."""
    return bool(inventory or os.environ.get(ENVIRONMENT) or Path(DEFAULT).exists())


def _memory(inventory: "Inventory", flags: CheckAppFlags) -> Mapping[str, int]:
    from core.inventory.schema import THIS_MACHINE

    if THIS_MACHINE in inventory.roles_by_machine():
        return memory_here()
    return memory_of(open_cluster(flags, as_written=True))


def memory_here() -> Mapping[str, int]:
    """Return the bytes of memory of this machine, which is the whole of a cluster on it."""
    import psutil

    from core.inventory.schema import THIS_MACHINE

    return {THIS_MACHINE: psutil.virtual_memory().total}


def memory_of(opened: "OpenCluster") -> Mapping[str, int]:
    """Bytes of memory by node, as far as they answer; a line on stderr for each that does not."""
    if not opened.has_machines:
        return memory_here()
    from deploy.forecast.training import memory_of_nodes

    with opened.cluster.fleet() as fleet, waiting_for("asking the nodes for their memory"):
        bytes_by_node, silent = memory_of_nodes(fleet)
    for node, why in silent.items():
        say(f"{node}: its memory is not known: {why}", error=True)
    return bytes_by_node


@contextmanager
def inventory_or_usual(flags: Json) -> "Iterator[tuple[Inventory, Json]]":
    """Give the inventory, and the flags that name it.

    Where nothing names one it is an inventory of two workers on this machine.
    """
    settled = with_overrides(flags)
    if _is_named(flags.inventory):
        yield open_inventory(settled, as_written=True), settled
        return
    from core.inventory import load
    from core.inventory.templates import local_inventory

    say("no inventory named: a parameter server and two workers on this machine", error=flags.json_)
    with tempfile.TemporaryDirectory(prefix="pscluster-check-") as folder:
        file = Path(folder, DEFAULT)
        file.write_text(local_inventory(2, 1), encoding="utf-8")
        yield (
            load(file, settled.set_, check_interfaces=False),
            settled.but(inventory=str(file)),
        )


MOST_DRAWN = 9


class FetchFlags(ActionFlags):
    """The flags of `data fetch`."""

    name: str = word("the set: hapt, uci-har or hhar", choices=("hapt", "uci-har", "hhar"))
    out: str | None = path("folder for the recordings; else the cache", read=from_here)
    sha256: str | None = text("the hash that the fetched file must have instead of the pinned one")
    quiet: bool = switch("no progress")


class ShowFlags(JsonFlags):
    """The flags of `data show`."""

    name: str = word("recordings: a path, or synthetic", is_path=True)
    format: str | None = text(
        "how they are written: a known format, or a YAML file", read=format_or_file
    )
    each: int = number("windows to draw of each class, 0 to 9 (1)", 0, MOST_DRAWN, 1)
    out: str | None = path("HTML page to write; else text is printed", read=from_here)
    draft: str | None = path("write a draft of their format to this file", read=from_here)
    force: bool = switch("replace an existing draft")


@takes(FetchFlags)
def fetch(flags: FetchFlags) -> None:
    """Fetch a published set into the cache, where a training finds it: hapt, uci-har or hhar."""
    run_module("core.data.fetch", flags.name, *as_words(flags, "out", "sha256", "quiet"))


@takes(ShowFlags)
def show(flags: ShowFlags) -> None:
    """Show recordings: classes, people, channels, a few windows; or draft their format."""
    job = _train_job(flags)
    options = job.data.options()
    if flags.format is not None:
        options["format"] = flags.format
    arguments = [
        flags.name,
        f"--window-steps={job.data.window_steps}",
        f"--window-stride={job.data.window_stride}",
        f"--seed={job.seed}",
        f"--options={json.dumps(options)}",
        *as_words(flags, "each", "out", "draft", "force", "json_"),
    ]
    run_module("core.data.show", *arguments)


def _train_job(flags: ShowFlags) -> "TrainJob":
    """Return the settings of `jobs.train` of --inventory or the defaults, with --set."""
    if flags.inventory:
        return open_inventory(flags, as_written=True).jobs.train
    from core.inventory import load
    from core.inventory.templates import local_inventory

    with tempfile.TemporaryDirectory(prefix="pscluster-data-") as folder:
        file = Path(folder, "defaults.yaml")
        file.write_text(local_inventory(1, 1), encoding="utf-8")
        return load(file, flags.set_, check_interfaces=False).jobs.train
