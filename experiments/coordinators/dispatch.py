"""A coordinator that notes its own CPU seconds at the first and the last update of a training."""

import json
import os
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.__main__ import main
from cluster.jobs import train
from core.status.events import Event, StageBegan, Updated

SPENT_FILE = "PSCLUSTER_BENCHMARK_SPENT_FILE"
"""Environment variable: the file for the figures."""

WARM_UP_UPDATES = 200
"""Not counted: by then each worker has instantiated the function, and pools are full."""

OF_TENSORFLOW = "TensorFlow's own threads"


@dataclass(frozen=True)
class Spent:
    """Up to one update: CPU seconds of the process, and of its threads by what they are for."""

    updates: int
    monotonic: float
    cpu_seconds: float
    by_thread: dict[str, float]

    @classmethod
    def now(cls, updates: int) -> "Spent":
        """The counts and clocks of this moment."""
        return cls(updates, time.monotonic(), time.process_time(), _by_thread())


def _by_thread() -> dict[str, float]:
    names = {thread.native_id: _group(thread.name) for thread in threading.enumerate()}
    spent: dict[str, float] = {}
    for folder in Path("/proc/self/task").iterdir():
        try:
            nanoseconds = int((folder / "schedstat").read_text().split()[0])
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended meanwhile
        name = names.get(int(folder.name), OF_TENSORFLOW)
        spent[name] = spent.get(name, 0.0) + nanoseconds / 1e9
    return spent


def _group(name: str) -> str:
    return {"MainThread": "the caller's"}.get(name, "lanes" if name.startswith("worker-") else name)


class Account:
    """Compares the last update with the one at the end of the warm-up."""

    def __init__(self) -> None:
        self._updates, self._last_update = 0, float("inf")
        self._first: Spent | None = None

    def consume(self, event: Event) -> None:
        """See Stream."""
        match event:
            case StageBegan("train", total):
                self._last_update = total
            case Updated():
                self._update()

    def _update(self) -> None:
        self._updates += 1
        if self._updates == WARM_UP_UPDATES:
            self._first = Spent.now(self._updates)
        if self._updates == self._last_update and self._first is not None:
            Path(os.environ[SPENT_FILE]).write_text(
                json.dumps(_between(self._first, Spent.now(self._updates)))
            )


def _between(first: Spent, last: Spent) -> dict[str, Any]:
    updates = last.updates - first.updates
    by_thread = {
        name: 1e3 * (seconds - first.by_thread.get(name, 0.0)) / updates
        for name, seconds in last.by_thread.items()
    }
    return {
        "updates": updates,
        "updates_per_second": updates / (last.monotonic - first.monotonic),
        "cpu_ms_an_update": 1e3 * (last.cpu_seconds - first.cpu_seconds) / updates,
        "cpu_ms_an_update_by_thread": by_thread,
    }


class AccountedRun(train.TrainRun):
    """The training with the account among its consumers."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.stream.add(Account().consume)


if __name__ == "__main__":
    train.TrainRun = AccountedRun  # type: ignore[misc]
    code = main()
    sys.stdout.flush()
    os._exit(code)  # TensorFlow's server threads cannot be joined
