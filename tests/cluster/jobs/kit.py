"""Jobs in this process: inventories of this machine, a job that is played, what a job refuses."""

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from cluster.jobs.cancel import Cancel
from cluster.jobs.lifecycle import Job, JobContext, Watch, conduct
from cluster.jobs.progress import Display
from cluster.jobs.roles import WireMeter
from cluster.jobs.run_folder import RunFolder
from cluster.jobs.training import Trainer
from core.ground.errors import ExitCode, UsageError
from core.inventory import Inventory, TrainJob, load
from core.inventory.templates import local_inventory
from core.status import events
from core.status.events import Consumer, Event
from tests.cluster.jobs.cluster import own_recordings

Result = dict[str, Any]


def inventory_in(folder: Path, *settings: str, workers: int = 1, servers: int = 1) -> Inventory:
    """A cluster on this machine, of which nothing runs."""
    path = folder / "inventory.yaml"
    path.write_text(local_inventory(workers, servers))
    return load(path, settings)


def with_recordings(folder: Path, *settings: str, servers: int = 1) -> Inventory:
    """The same with somebody's own recordings."""
    mine = folder / "mine.npz"
    if not mine.exists():
        own_recordings(mine)
    return inventory_in(folder, f"jobs.train.data.source={mine}", *settings, servers=servers)


def conducted(
    job: Callable[[JobContext], Job],
    inventory: Inventory,
    folder: Path,
    cancel: Cancel | None = None,
    resumed: Path | None = None,
    **context: Any,
) -> tuple[Path, Result]:
    """The run of a job, below `folder`, and its result."""
    cancel = cancel or Cancel()
    display = Display(quiet=True)
    made = job(JobContext(inventory, display, cancel, resumed, **context))
    path, result = conduct(made, folder / "runs", cancel, resumed)
    return path.parent, result


def refusal(
    job: Callable[[JobContext], Job], inventory: Inventory, folder: Path, **context: Any
) -> str:
    """What the job says; it must say it in one line, and leave nothing."""
    with pytest.raises(UsageError) as caught:
        conducted(job, inventory, folder, **context)
    assert caught.value.exit_code == ExitCode.BAD_USAGE
    assert not (folder / "runs").exists()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def nothing(*_: object) -> None:
    pass


def raising(problem: Exception) -> Callable[..., None]:
    def end(*_: object) -> None:
        raise problem

    return end


class PlayedJob(Job):
    """A job that does what it is made with."""

    name = "train"

    def __init__(
        self,
        inventory: Inventory,
        run: Callable[[RunFolder], None] = nothing,
        prepare: Callable[[], None] = nothing,
    ) -> None:
        super().__init__(JobContext(inventory, Display(quiet=True), Cancel()))
        self.played = run
        self._prepare = prepare
        self.begun = False
        self.complete_after_all = False
        self.heard: list[Event] = []
        self.stream.add(self.heard.append)

    def conducted(
        self, runs: Path, resumed: Path | None = None, watch: Watch | None = None
    ) -> tuple[Path, Result]:
        path, result = conduct(self, runs, self.cancel, resumed, watch)
        return path.parent, result

    def prepare(self) -> None:
        self._prepare()

    def run(self, folder: RunFolder) -> None:
        self.begun = True
        self.played(folder)

    def complete(self) -> bool:
        return self.complete_after_all

    def result(self) -> Result:
        return {"model": {"name": "thesis", "parameters": 1234}, "begun": self.begun}


def events_of(rows: list[list[Any]]) -> list[Event]:
    """The events of rows of `events.yaml`."""
    found = []
    for name, *values in rows:
        kind = getattr(events, name)
        names = (field.name for field in fields(kind))
        found.append(TypeAdapter(kind).validate_python(dict(zip(names, values, strict=False))))
    return found


def trainer_of(
    runner: Any,
    mode: Any,
    job: TrainJob,
    emit: Consumer = nothing,
    keeper: Any = None,
    objective: Any = None,
    cancel: Cancel | None = None,
) -> Trainer:
    """A trainer whose runner, mode and checkpoints may be played."""
    keeper = keeper or PlayedKeeper([0.0])
    return Trainer(runner, mode, job, cancel or Cancel(), emit, WireMeter(), keeper, objective)


class PlayedKeeper:
    """Checkpoints are due by the played clock, which the test turns."""

    every_seconds = 3.0

    def __init__(self, clock: list[float]) -> None:
        self._clock, self._last, self.gaps = clock, 0.0, list[float]()

    def seconds_left(self) -> float:
        return self.every_seconds - (self._clock[0] - self._last)

    def updates_left(self) -> float:
        return float("inf")

    def due(self) -> bool:
        return self.seconds_left() <= 0.0

    def progress(self, updates: int, lost: int, held: int) -> None:
        """Nothing is noted."""

    def keep(self) -> None:
        self.gaps.append(self._clock[0] - self._last)
        self._last = self._clock[0]
