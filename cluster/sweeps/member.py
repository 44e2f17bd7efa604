"""One run of a sweep, on the node that trains it.

`python -m cluster.sweeps.member --folder FOLDER -- ARGUMENTS` becomes
`python -m cluster train ARGUMENTS`: it resumes what the folder holds of the run, or begins it
there. A run of a sweep opens no port, and says on standard output how far it is, a line of JSON
each time.
"""

import argparse
import json
import math
import os
import statistics
import sys
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from cluster.apps.environments import KEY, ON_NODES
from cluster.jobs.run_folder import is_finished, newest_unfinished
from cluster.sweeps.progress import WORD
from cluster.sweeps.sweep_file import PLACEMENTS
from core.ground.errors import UsageError
from core.logs import say
from core.status import events
from core.status.events import Event
from core.status.history import finite

SAY_SECONDS = 1.0
LATEST = 8
"""Calls that the spread of their times is over: few, so that an earlier speed is forgotten."""
FEWEST_CALLS = 8
NINETIETH = statistics.NormalDist().inv_cdf(0.9)


def main(arguments: Sequence[str]) -> None:
    """Become the training. It ends here where the run is finished already."""
    parser = argparse.ArgumentParser(
        prog="python -m cluster.sweeps.member", description="One run of a sweep."
    )
    parser.add_argument("--folder", required=True, type=Path, help="gets the folder of the run")
    parser.add_argument(
        "--placement", choices=PLACEMENTS, default="node", help="what computes the run"
    )
    parser.add_argument(
        "training", nargs="*", help="-- and the arguments of `python -m cluster train`"
    )
    options = parser.parse_args(arguments)
    folder: Path = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if options.placement == "node":
        of_app = environment_here(Path(sys.prefix))
    else:
        of_app = []
    command = [
        *(sys.executable, "-m", "cluster", "train", *options.training),
        *("--set", f"runs={json.dumps(str(folder))}", "--member", options.placement),
        *(*resumed_in(folder), *of_app),
    ]
    os.execv(sys.executable, command)


def environment_here(prefix: Path) -> list[str]:
    """Return `--environment KEY` for a process of this `sys.prefix` with an app's packages."""
    environment = prefix.resolve()
    if environment.parent == ON_NODES and KEY.fullmatch(environment.name):
        return ["--environment", environment.name]
    return []


def resumed_in(folder: Path) -> list[str]:
    """`--resume RUN` for the unfinished run in the folder, nothing where it holds none.

    Ends if one is finished.
    """
    if any(is_finished(path.parent) for path in folder.glob("*-train*/result.json")):
        sys.exit(0)
    try:
        return ["--resume", str(newest_unfinished(folder))]
    except UsageError:
        return []


def spread_of(calls: Sequence[tuple[float, int]]) -> float:
    """Return the deviation of an update's seconds over their median.

    Each call has its seconds an update, and how many updates; the mean of n updates deviates by the
    root of n less. It is the deviation of the ninetieth percentile, as if all were normal: a step
    waits for the slowest.
    """
    if len(calls) < FEWEST_CALLS:
        return 0.0
    seconds = sorted(seconds for seconds, _ in calls)
    middle = statistics.median(seconds)
    ninetieth = seconds[len(seconds) * 9 // 10]
    of_mean = (ninetieth - middle) / NINETIETH / middle if middle else 0.0
    return of_mean * math.sqrt(statistics.fmean(updates for _, updates in calls))


class MemberReport:
    """Consumes a training's events: says how far it is, for the process that drives the sweep."""

    def __init__(self) -> None:
        self._said_at = 0.0
        self._stage = "train"
        self._calls = deque[tuple[float, int]](maxlen=LATEST)

    def consume(self, event: Event) -> None:
        """Take an event of the training."""
        match event:
            case events.StageBegan(name):
                self._stage = name
            case events.Stepped(round_trip_seconds=seconds):
                # The updates of one call have the same seconds, to the last bit.
                updates = 1
                if self._calls and self._calls[-1][0] == seconds:
                    updates += self._calls.pop()[1]
                self._calls.append((seconds, updates))
            case events.Updated(done=done, total=total):
                now = time.monotonic()
                if now - self._said_at >= SAY_SECONDS or done == total:
                    self._said_at = now
                    spread = spread_of(self._calls)
                    self._say(
                        {"stage": self._stage, "done": done, "total": total, "spread": spread}
                    )
            case events.EpochEnded(stage="train", epoch=epoch, validation=validation):
                if validation is None:
                    figures = {}
                else:
                    figures = {
                        "accuracy": validation.accuracy,
                        "f1_macro": validation.f1_macro,
                        "loss": validation.loss,
                    }
                self._say({"epoch": epoch, "validation": figures})

    @staticmethod
    def _say(content: dict[str, object]) -> None:
        say(json.dumps({WORD: finite(content)}))


if __name__ == "__main__":
    main(sys.argv[1:])
