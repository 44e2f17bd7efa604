"""`fab report`: the report of a run again, or several runs side by side."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cluster.errors import UsageError
from deploy.commands.edge import at_the_edge, end_as_the_job_did
from deploy.commands.opening import Names
from deploy.common.project import environment_for_any_folder, module_command

RUNS = Path("runs")
"""Where a run is looked for that is given by its name alone."""

HELP = {
    "run": "folder of a run, or its name below ./runs; several put runs side by side (repeatable)",
    "out": "the file to write; else report.html in the run's folder, or with several runs ./comparison.html",
}


@at_the_edge
def report(context: Any, run: Names = None, out: str | None = None) -> None:
    """Write a run's report.html again; with --run several times, put runs side by side."""
    if not run:
        raise UsageError("--run: expected the folder of a run, e.g. `fab report --run runs/20260131T120000Z-train`")
    found = [argument for folder in _folders(run) for argument in ("--run", str(folder))]
    command = module_command("cluster.pages", *found, *(("--out", out) if out else ()))
    # A process of its own: what draws is none of what `fab` loads.
    end_as_the_job_did(subprocess.run(command, env=environment_for_any_folder()).returncode)


def _folders(given: Sequence[str]) -> list[Path]:
    found = []
    for name in given:
        places = [Path(name), RUNS / name]
        folder = next((place for place in places if place.is_dir()), None)
        if folder is None:
            raise UsageError(f"--run {name}: expected the folder of a run, found neither {places[0]} nor {places[1]}")
        found.append(folder)
    return found
