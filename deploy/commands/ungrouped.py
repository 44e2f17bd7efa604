"""`fab init`, `report`, `export` and `completion`: commands of no group, which open no cluster.

Reports and exports are made by processes of their own: `fab` loads neither TensorFlow nor what
draws.
"""

import os
import re
import sys
from pathlib import Path

from core.ground.errors import UsageError
from core.ground.files import whole_file
from core.ground.ports import MOST_ROLES
from core.logs import say
from deploy.commands.action import run_module, takes
from deploy.commands.flags import (
    ActionFlags,
    Names,
    TrustFlags,
    as_words,
    names,
    number,
    path,
    switch,
    text,
    word,
)
from deploy.common.command_line import command

DEFAULT_NAME = "local"
LONGEST_NAME = 63
"""Characters of a name in an inventory (`core.inventory.fields`)."""


class InitFlags(ActionFlags):
    """The flags of `init`."""

    local: bool = switch("a cluster of processes on this machine")
    workers: int = number("workers of --local (2)", 1, MOST_ROLES, 2)
    ps: int = number("parameter servers of --local (1)", 1, MOST_ROLES, 1)
    hosts: str | None = text("a cluster of machines: addresses and ranges, e.g. 192.168.1.16-31")
    user: str = text("account on every host (pi)", "pi")
    out: str | None = path("file to write; else the inventory is printed")
    force: bool = switch("overwrite the file")


@takes(InitFlags)
def init(flags: InitFlags) -> None:
    """Write an inventory: --local for processes on this machine, --hosts for machines."""
    if flags.local == bool(flags.hosts):
        raise UsageError(
            "expected one of --local and --hosts, e.g. `fab init --local --workers 2 --out"
            " inventory.yaml`"
        )
    from core.inventory import templates

    if flags.hosts:
        inventory_text = templates.hosts_inventory(flags.hosts, flags.user)
    else:
        cluster = _cluster_name(Path(flags.out or DEFAULT_NAME))
        inventory_text = templates.local_inventory(
            flags.workers, flags.ps, cluster=cluster, recipe="unseen"
        )
    if flags.out is None:
        say(inventory_text, end="")
        return
    out = Path(flags.out)
    _write_inventory(out, inventory_text, flags.force)
    if flags.hosts:
        first = "deploy trust"
    else:
        first = "deploy start"
    say(f"wrote {out}; next: {command(first, out)}")


def _cluster_name(file: Path) -> str:
    """Return the file's stem as far as it can be a cluster's name.

    Clusters of one name in one folder would be one cluster.
    """
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", file.stem)[:LONGEST_NAME].strip("-_")
    return name or DEFAULT_NAME


def _write_inventory(path: Path, text: str, force: bool) -> None:
    """Write in one step; an inventory that is there stays unless `force`."""
    if not force and os.path.lexists(path):
        raise UsageError(f"{path} exists: --force overwrites it")
    with whole_file(path) as stream:
        stream.write(text.encode())


RUNS = Path("runs")
"""The folder of a run that is given by its name alone."""


class ReportFlags(ActionFlags):
    """The flags of `report`."""

    runs: Names = names(
        "folder of a run, or its name below ./runs; several put runs side by side (repeatable)",
        spelled="run",
    )
    out: str | None = path(
        "the file to write; else report.html in the run's folder, or with several runs"
        " ./comparison.html"
    )


@takes(ReportFlags)
def report(flags: ReportFlags) -> None:
    """Write a run's report.html again; with --run several times, put runs side by side."""
    if not flags.runs:
        raise UsageError(
            "--run: expected the folder of a run, e.g. `fab report --run"
            " runs/20260131T120000Z-train`"
        )
    flags = flags.but(runs=tuple(map(_run_folder, flags.runs)))
    # A process of its own: `fab` does not load what draws.
    run_module("cluster.pages", *as_words(flags, "runs", "out"))


def _run_folder(name: str) -> str:
    places = [Path(name), RUNS / name]
    for place in places:
        if place.is_dir():
            return str(place)
    raise UsageError(
        f"--run {name}: expected the folder of a run, found neither {places[0]} nor {places[1]}"
    )


_EXPORT_MODULE = "cluster.export"
_EXPORT_NEEDS = {
    "run": "the folder of a finished training, e.g. --run runs/20260101T120000Z-train",
    "to": "a format: --to onnx, litert, savedmodel or keras",
    "out": "a folder to make, e.g. --out walking",
}


class ExportFlags(TrustFlags):
    """The flags of `export`."""

    run: str | None = path("folder of the run to export")
    to: str | None = text(
        "format of the export: onnx, litert, savedmodel or keras",
        choices=("onnx", "litert", "savedmodel", "keras"),
    )
    quantize: str | None = text(
        "dynamic: weights of an ONNX or LiteRT export as int8", choices=("dynamic",)
    )
    out: str | None = path("new folder for the export")
    data: str | None = path("recordings of the test windows, if they moved since the training")
    json_: bool = switch("one JSON object for programs instead of text for people")
    quiet: bool = switch("no progress")


@takes(ExportFlags)
def export(flags: ExportFlags) -> None:
    """Write a trained run for other runtimes: `fab export --run RUN --to onnx --out FOLDER`."""
    flags = flags.but(run=_expanded(flags.run), out=_expanded(flags.out))
    for name, needed in _EXPORT_NEEDS.items():
        if not getattr(flags, name):
            raise UsageError(f"--{name}: expected {needed}")
    passed_on = (*_EXPORT_NEEDS, "quantize", "data", "json_", "quiet")
    run_module(_EXPORT_MODULE, *as_words(flags, *passed_on))


def _expanded(path: str | None) -> str:
    return os.path.expanduser(path or "")


SHELLS = ("bash", "zsh", "fish")


class CompletionFlags(ActionFlags):
    """The flags of `completion`."""

    shell: str = word("the shell: bash, zsh or fish", choices=SHELLS)


@takes(CompletionFlags)
def completion(flags: CompletionFlags) -> None:
    """Print a shell's completion: `source <(fab completion bash)`."""
    if flags.shell not in SHELLS:
        raise UsageError(f"completion: expected {', '.join(SHELLS)}, got {flags.shell!r}")
    say(completion_script(flags.shell, program_name()))


def program_name() -> str:
    """Return how this program was called: `fab` or `pscluster`."""
    if Path(sys.argv[0]).name == "fab":
        return "fab"
    return "pscluster"


def completion_script(shell: str, program: str) -> str:
    """Return the script of one shell, which asks `program` for what may follow."""
    from click import Command
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    return kind(Command(program), {}, program, completion_variable(program)).source()


def completion_variable(program: str) -> str:
    """Return the variable of the environment by which a shell asks."""
    return f"_{program.upper()}_COMPLETE"
