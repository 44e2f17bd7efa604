"""One of our trainings, as `fab job train` runs it, that pauses after every epoch.

A request starts the next epoch.

An order is a line on standard input: `{"epoch": true}`, `{"finish": true}` behind the last epoch,
`{"stop": true}` leaves a run that the next process resumes. The answer to an epoch is its number,
loss and training seconds.
"""

import argparse
import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from cluster.jobs.cancel import Cancel
from cluster.jobs.lifecycle import JobContext
from cluster.jobs.run_folder import newest_unfinished
from core.engine.environment import loading_quietly
from core.errors import UsageError
from core.inventory import load

with loading_quietly():
    from cluster.jobs.train import TrainRun

from cluster.jobs.lifecycle import Watch, conduct
from cluster.jobs.progress import Display
from core.status.events import EpochEnded, Event, Updated

FIRST = 5
"""Updates of an epoch whose losses are reported."""


class Turns(Watch):
    """Answers with each epoch, and holds the job's own thread until the next order."""

    def __init__(self, answers: TextIO, windows_an_epoch: int) -> None:
        self._answers = answers
        self._windows = windows_an_epoch
        self._first: list[float] = []

    def consume(self, event: Event) -> None:
        """See Watch."""
        if isinstance(event, Updated):
            self._first.append(event.loss)
        if not isinstance(event, EpochEnded):
            return
        seconds = self._windows / event.windows_per_second
        first = self._first[:FIRST]
        self._first = []
        self.answer(
            {"epoch": event.epoch, "loss": event.loss, "seconds": seconds, "first_losses": first}
        )
        if self.order().get("stop"):
            os.kill(os.getpid(), signal.SIGINT)

    def answer(self, said: dict[str, Any]) -> None:
        """Print it."""
        print(json.dumps(said), file=self._answers, flush=True)

    def order(self) -> dict[str, Any]:
        """The next one; to stop, once there are none."""
        line = sys.stdin.readline()
        if line:
            return dict(json.loads(line))
        return {"stop": True}


def main() -> None:
    """Train as ordered, from the newest unfinished run in the folder of runs if there is one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--inventory", required=True)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--windows-an-epoch", type=int, required=True)
    given = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    inventory = load(given.inventory, given.set)
    resumed: Path | None = None
    with suppress(UsageError):
        resumed = newest_unfinished(Path(inventory.runs))
    turns = Turns(answers, given.windows_an_epoch)
    if turns.order().get("stop"):
        return
    with Cancel() as cancel, Display(quiet=True) as display:
        job = TrainRun(JobContext(inventory, display, cancel, resumed))
        _, result = conduct(job, Path(inventory.runs), cancel, resumed, turns)
    keys = ("status", "final", "parameters_sha256", "updates", "slots")
    turns.answer({key: result[key] for key in keys})


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # TensorFlow's server threads cannot be joined
