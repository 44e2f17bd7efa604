"""`python -m cluster.pages --run A`: make a run's or sweep's report again, or compare runs."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from cluster.pages import report_of
from cluster.pages.comparison import comparison
from cluster.pages.files import REPORT, run_of
from core.ground.errors import ClusterError, ExitCode, UsageError
from core.ground.files import atomic_write
from core.logs import say

COMPARISON = "comparison.html"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file and say where it lies; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m cluster.pages", description=__doc__)
    parser.add_argument(
        "--run",
        action="append",
        required=True,
        type=Path,
        metavar="FOLDER",
        help="a run's folder (repeatable)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help=f"the file to write; else {REPORT} in the run, or ./{COMPARISON}",
    )
    options = parser.parse_args(arguments)
    try:
        say(f"report: {write(options.run, options.out)}")
    except ClusterError as problem:
        say(problem, error=True)
        return int(problem.exit_code)
    return ExitCode.DONE


def write(folders: Sequence[Path], out: Path | None) -> Path:
    """The report of one run or one sweep, or of several runs side by side; where it lies.

    Raises ClusterError.
    """
    twice = sorted({str(folder) for folder in folders if list(folders).count(folder) > 1})
    if twice:
        raise UsageError(f"--run: expected different runs, got {', '.join(twice)} more than once")
    if len(folders) == 1:
        text = report_of(folders[0])
        path = folders[0] / REPORT
    else:
        text = comparison([run_of(folder) for folder in folders])
        path = Path(COMPARISON)
    path = out or path
    atomic_write(path, text.encode(errors="backslashreplace"))
    return path


if __name__ == "__main__":
    sys.exit(main())
