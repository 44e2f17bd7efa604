"""How long a stretch is, and what is believed of a worker's clock; time and workers are played."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cluster.jobs import training
from cluster.jobs.cancel import Cancel
from cluster.jobs.fit import Fit, Plan
from cluster.jobs.modes import ItemResult, Memories, Step, Stretch, parts_of, parts_of_each
from cluster.jobs.run_logs import LET_GO, ChaosLog, Hold
from core.consistency import Speeds
from core.consistency.asynchronous import Asynchronous
from core.engine.chaos import ChaosPlan
from core.engine.workers import Item, Outcome
from core.ground import waiting
from core.inventory import TrainJob
from core.status.events import FaultInjected, Updated
from tests.cluster.jobs.kit import PlayedKeeper, trainer_of
from tests.tables import table
from worker_node.recordings import Standardization


class PlayedMode:
    """Updates that cost the time which the test says."""

    def __init__(self) -> None:
        self.policy = Asynchronous(1, Speeds())
        self.memories = Memories()
        self.shards = SimpleNamespace(read=lambda: np.zeros(1, np.float32))
        self.weights = SimpleNamespace(mean=1.0)

    def item(self, grant: Any, updates: Any, stretch: Any) -> Item:
        return Item(grant.update, "train")

    def read(self, grant: Any, updates: Any, outcome: Outcome, stretch: Any) -> list[ItemResult]:
        self.policy.replied(grant, 0, 1.0)
        (update,) = updates
        step = Step(dict.fromkeys(update.batches, 1.0), 0.0, 1.0)
        return [ItemResult((0.0, 0.0, 0.0), len(update.batches), 0.0, step)]

    def settle(self) -> None:
        """Nothing is left."""


class PlayedRunner:
    """Notes how many updates each stretch has; `seconds_of` says how long the next takes."""

    live = frozenset({0})

    def __init__(self, seconds_of: Callable[[int], float], clock: list[float]) -> None:
        self.stretches: list[int] = []
        self._seconds_of = seconds_of
        self._clock = clock

    def run(
        self, source: Any, stop: Callable[[], bool], linger_seconds: float = 0.0
    ) -> Iterator[Outcome]:
        self.stretches.append(0)
        while (item := source.draw(0)) is not None:
            self._clock[0] += self._seconds_of(item.id)
            self.stretches[-1] += 1
            yield Outcome(item, 0, None, 1.0, 1)


def trained(
    runner: PlayedRunner,
    keeper: PlayedKeeper,
    events: list[object],
    updates: int,
    batches: int = 1,
    hold: Hold | None = None,
    fit: Fit | None = None,
) -> None:
    """One epoch of so many updates."""
    steps = {"steps": batches}
    job = TrainJob.model_validate({"mode": "local", "local": steps, "batch_size": 1, "epochs": 1})
    plan = Plan(job, np.arange(updates * batches))
    objective = SimpleNamespace(guesses=False, loss_of_guessing=None)
    nothing = np.zeros(1, np.float32)
    standardization = Standardization(nothing, nothing + 1)
    fit = fit or Fit(vector=nothing)
    trainer = trainer_of(runner, PlayedMode(), job, events.append, keeper, objective)
    trainer.hold = hold
    trainer.fit("train", fit, plan, standardization, None, lambda: None)


@pytest.mark.parametrize("first", [0, 7])
@pytest.mark.parametrize("at", [0, 5, 40])
def test_it_waits_after_so_many_updates_of_the_run_until_it_is_let_go(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, at: int, first: int
) -> None:
    events = list[object]()
    seen = list[int]()

    def updates() -> int:
        return sum(isinstance(event, Updated) for event in events)

    def sleep(_seconds: float) -> None:
        seen.append(updates())
        if len(seen) == 3:
            (tmp_path / LET_GO.format(at)).touch()

    monkeypatch.setattr(waiting, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=sleep))
    runner = PlayedRunner(lambda _: 0.0, [0.0])
    record = ChaosLog(tmp_path, events.append)
    hold = Hold.of(ChaosPlan.parse(f"hold:{at},hold:{at + 3}"), record)
    (tmp_path / LET_GO.format(at + 3)).touch()
    fit = Fit(vector=np.zeros(1, np.float32), first_id=first)
    trained(runner, PlayedKeeper([0.0]), events, updates=50, hold=hold, fit=fit)
    assert updates() == 50
    if at < first:
        assert seen == [], "it began behind that update"
        return
    assert seen == [at - first] * 3
    assert FaultInjected("hold", "coordinator:0") in events
    assert record.describe() == {"injected": {"hold": 1}}


@pytest.mark.parametrize("batches", [1, 8, 128])
def test_a_stretch_lasts_as_long_as_a_checkpoint_is_due_whatever_an_update_is_and_who_left(
    monkeypatch: pytest.MonkeyPatch, batches: int
) -> None:
    clock = [0.0]
    monkeypatch.setattr(training, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    def seconds_of(update: int) -> float:
        """The workers start slowly; later 15 of 16 of them leave."""
        if update < 16:
            return 0.5
        if update < 500:
            return 0.1
        return 1.6

    runner = PlayedRunner(seconds_of, clock)
    keeper = PlayedKeeper(clock)
    trained(runner, keeper, [], updates=600, batches=batches)
    assert sum(runner.stretches) == 600
    late = [gap for gap in keeper.gaps if gap > 1.2 * PlayedKeeper.every_seconds]
    assert len(late) <= 3, "the first, and around the departure: then the pace is known"
    assert len(keeper.gaps) > 40


def test_a_call_of_several_steps_that_continues_behind_a_cancel_is_fenced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its steps end without the coordinator: what the servers have is no checkpoint."""
    cancel = Cancel()
    fenced: list[bool] = []

    class Runner(PlayedRunner):
        def run(
            self, source: Any, stop: Callable[[], bool], linger_seconds: float = 0.0
        ) -> Iterator[Outcome]:
            del stop, linger_seconds
            yield Outcome(source.draw(0), 0, None, 1.0, 1)
            source.draw(0)
            cancel._asked.set()

    mode = PlayedMode()
    monkeypatch.setattr(mode, "settle", lambda: Item(-1, "settle"))
    mode.shards.fence = lambda: fenced.append(True)
    mode.shards.has_applied_all_below = lambda next_id: next_id > 1
    job = TrainJob.model_validate({"mode": "local", "batch_size": 1, "epochs": 1})
    trainer = trainer_of(Runner(lambda _: 0.0, [0.0]), mode, job, cancel=cancel)
    stretch = Stretch(0, lambda batch: 0.1, np.zeros((2, 1), np.float32), lambda: 1)
    plan = Plan(job, np.arange(16))
    monkeypatch.setattr(trainer, "_settle", lambda item: True)
    fit = Fit(vector=np.zeros(1, np.float32))
    trainer._stretch(plan, plan.fresh(0), stretch, fit)
    assert fenced
    assert not trainer.consistent
    assert fit.cursor.done == 0


@pytest.mark.parametrize(
    ("seconds", "believed"),
    table("cluster/jobs/rows", "parts of a step"),
)
def test_parts_that_cannot_be_true_are_left_out(seconds: Any, believed: bool) -> None:
    found = parts_of(seconds, 1.0)
    assert bool(found) is believed
    if believed:
        assert list(found) == ["pull", "compute", "push", "wait"]
        assert min(found.values()) >= 0.0
        assert sum(found.values()) == pytest.approx(1.0, abs=0.01)


def test_a_memory_is_lost_once_its_worker_had_one_in_this_fit() -> None:
    memories = Memories()
    for task, fit, forgot in (
        (0, 0, True),
        (1, 0, True),
        (0, 0, False),
        (0, 0, True),
        (1, 9, True),
    ):
        memories.record_reply(task, fit, forgot=forgot)
    assert (memories.lost, memories.holders) == (1, 1)


def test_the_updates_of_a_call_share_its_wait_and_keep_their_own_times() -> None:
    short, long = (0.1, 0.2, 0.1), (0.1, 0.6, 0.1)
    found = parts_of_each([short, long], 1.6)
    assert [parts["compute"] for parts in found] == [0.2, 0.6], "although one is above the mean"
    assert [parts["wait"] for parts in found] == pytest.approx([0.2, 0.2])
    assert parts_of_each([short, long], 1.0) == [{}, {}], "they took no longer than the call"
    assert parts_of_each([(0.1, 0.9, 0.1), (0.1, -0.2, 0.1)], 1.6) == [{}, {}]
    assert parts_of_each([], 0.3) == []
