"""After the parameters began again, no earlier call changes them, in every mode and codec."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.jobs.cancel import Cancel
from cluster.jobs.fit import Fit, Plan
from cluster.jobs.modes import Mode, Stretch
from core.consistency import Grant
from core.engine.workers import Item, Outcome
from core.inventory import TrainJob
from core.models.network import Network
from tests.cluster.jobs.kit import PlayedKeeper, trainer_of
from tests.cluster.jobs.steps_here import EVERY_ROW, built_in, job_of, placed, recordings, update_of
from worker_node.recordings import Standardization

MODES = ["async", "ssp", "local", "sync", "single", "allreduce", "mirrored"]
CODECS = [(mode, codec) for mode in MODES for codec in ("fp32", "fp16")]
CODECS += [(mode, "topk") for mode in ("async", "ssp", "local")]


def fenced_job(mode: str, codec: str = "fp32", **others: object) -> TrainJob:
    optimizer = {"name": "sgd" if codec == "topk" else "adamw"}
    common = {"slots": 1, "codec": {"name": codec}}
    return job_of(mode, optimizer=optimizer, **common, **others)


@pytest.fixture
def network() -> Network:
    return built_in("thesis", hidden=8, batch_norm=True)


def answer(item: Item | None) -> Any:
    """What a worker answers to it."""
    if item is None:
        return None
    return item.function.answer(*item.arguments)


def call_of(number: int, job: TrainJob, mode: Mode, stretch: Stretch) -> Callable[[], None]:
    """The call of this update as it stands now."""
    update = update_of(number, job)
    grant = Grant(number, 0, job.pieces)
    item = mode.item(grant, [update], stretch)
    generation = mode.shards.generation

    def call() -> None:
        value = answer(item)
        if mode.shards.generation == generation:  # nobody reads a late reply
            mode.read(grant, [update], Outcome(item, 0, value, 0.1, 1), stretch)

    return call


@pytest.mark.parametrize(("mode", "codec"), CODECS)
def test_a_call_that_ends_after_the_reset_changes_nothing(
    tmp_path: Path, network: Network, mode: str, codec: str
) -> None:
    job = fenced_job(mode, codec)
    here, stretch = placed(network, job, recordings(tmp_path))
    here.policy.begin(range(9))
    initial = here.shards.read()
    here.policy.draw(0, frozenset({0}), 0.0)
    call_of(0, job, here, stretch)()
    late = call_of(1, job, here, stretch)
    last = here.settle()
    here.shards.reset(initial)
    late()
    answer(last)
    np.testing.assert_array_equal(here.shards.read(), initial)
    call_of(1, job, here, stretch)()
    answer(here.settle())
    assert not np.array_equal(here.shards.read(), initial), "the calls of this generation count"


class Interrupted:
    """A runner that is cancelled after two outcomes; a third call is open then."""

    live = frozenset({0, 1})

    def __init__(self, cancel: Cancel, *, pushes_before: bool) -> None:
        self._cancel = cancel
        self._pushes_before = pushes_before
        self.open: Item | None = None

    def run(
        self, source: Any, stop: Callable[[], bool], linger_seconds: float = 0.0
    ) -> Iterator[Outcome]:
        for _ in range(2):
            item = source.draw(0)
            yield Outcome(item, 0, answer(item), 0.1, 1)
        self.open = source.draw(1)
        self._cancel._asked.set()
        if self._pushes_before:
            answer(self.open)


@pytest.mark.parametrize("pushes_before", [False, True])
@pytest.mark.parametrize("mode", ["async", "local"])
def test_what_an_interrupt_leaves_is_what_is_read(
    tmp_path: Path, network: Network, mode: str, pushes_before: bool
) -> None:
    """A finished update is kept although a call is open: the shards know whether it counts."""
    job = fenced_job(mode, batch_size=8, epochs=2)
    data = recordings(tmp_path)
    here, _ = placed(network, job, data)
    cancel = Cancel()
    runner = Interrupted(cancel, pushes_before=pushes_before)
    keeper = PlayedKeeper([100.0])
    trainer = trainer_of(
        runner, here, job, keeper=keeper, objective=network.objective, cancel=cancel
    )
    plan = Plan(job, EVERY_ROW)
    fit = Fit(vector=here.shards.read())
    trainer.fit("train", fit, plan, Standardization.of_rows(data, EVERY_ROW), None, lambda: None)
    assert trainer.consistent is not pushes_before
    assert bool(keeper.gaps) is trainer.consistent, "a checkpoint was due"
    assert fit.cursor.done == (0 if pushes_before else 2)
    stored = fit.vector.copy()
    answer(runner.open)
    np.testing.assert_array_equal(here.shards.read(), stored)
