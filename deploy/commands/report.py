"""`fab report`: the page of a run, or of several side by side."""

from pathlib import Path

from core.ground.errors import UsageError
from deploy.commands.action import run_module, takes
from deploy.commands.flags import ActionFlags, Names, as_words, names, path

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
    flags = flags.but(runs=tuple(map(_folder, flags.runs)))
    # A process of its own: `fab` does not load what draws.
    run_module("cluster.pages", *as_words(flags, "runs", "out"))


def _folder(name: str) -> str:
    places = [Path(name), RUNS / name]
    for place in places:
        if place.is_dir():
            return str(place)
    raise UsageError(
        f"--run {name}: expected the folder of a run, found neither {places[0]} nor {places[1]}"
    )
