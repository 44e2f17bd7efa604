import os
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from benchmarks.scaling import (
    MODES,
    PLANS,
    UNEQUAL,
    UNEQUAL_MODES,
    WARM_UP,
    EpochClock,
    Run,
    row_of,
    runs_of,
)
from core.consistency.local import LocalSettings
from tests.shown import part
from tests.tables import table

SEVERAL = Run("async", (0.2, 0.2), steps_of_epoch=10, epochs=4)


def test_every_worker_has_100_windows_a_step_in_every_mode() -> None:
    for mode, pieces in (("async", 1), ("sync", 2)):
        run = replace(SEVERAL, mode=mode)
        wanted = {
            f"jobs.train.batch_size={100 * pieces}",
            f"jobs.train.slots={pieces}",
        }
        assert wanted <= set(run.settings)
        assert run.windows == 2000


def test_a_round_has_every_mode_equal_and_unequal_and_several_epochs_that_count() -> None:
    plan = PLANS["full"]
    runs = runs_of(plan)
    equal = {(run.mode, len(run.shares)) for run in runs if len(set(run.shares)) == 1}
    assert equal == set(product(MODES, (1, plan.workers)))
    unequal = {(run.mode, run.calibrated) for run in runs if len(run.shares) == len(UNEQUAL)}
    assert unequal == set(product(UNEQUAL_MODES, (False, True)))
    assert plan.epochs - WARM_UP >= 3
    assert plan.rounds == 3


@pytest.mark.parametrize("size", ["full", "quick"])
def test_an_epoch_is_some_pushes_of_each_local_worker_and_no_rest(size: str) -> None:
    """A rest would cost a round as long as any other, and so look like lost efficiency."""
    pushes, rest = divmod(PLANS[size].steps_of_epoch, LocalSettings().steps)
    assert (pushes >= 3, rest) == (True, 0)
    assert PLANS[size].epochs > WARM_UP


def test_a_row_is_of_the_epochs_behind_the_warm_up() -> None:
    case = table("benchmarks/tables", "scaling_row")
    readings = [
        (at, dict(zip(case["tasks"], taken, strict=True))) for at, taken in case["cpu"].items()
    ]
    events = [{"windows_per_second": rate} for rate in case["rates"]]
    found = row_of(SEVERAL, events, readings, {"throughput": {"step_seconds_p50": 0.3}})
    for wanted in (case["run"], case["figures"]):
        assert part(found, wanted) == wanted


def test_the_clock_reads_after_every_epoch_and_says_how_many_are_over(tmp_path: Path) -> None:
    (tmp_path / "20260101T000000Z-train").mkdir()
    (tmp_path / "20260101T000000Z-train" / "history.jsonl").write_text(
        '{"event":"epoch","epoch":7}\n'
    )
    ended: list[int] = []
    clock = EpochClock(tmp_path, {"worker:0": os.getpid()}, ended.append)
    clock.start(os.getpid())
    events = tmp_path / "20260101T000001Z-train" / "history.jsonl"
    events.parent.mkdir()
    for epoch in (1, 2):
        with events.open("a") as stream:
            stream.write(f'{{"event":"stage"}}\n{{"event":"epoch","epoch":{epoch}}}\n')
        while len(clock.readings) < epoch:
            pass
    assert [found["epoch"] for found in clock.stop()] == [1, 2]
    assert ended == [1, 2]
    assert set(clock.readings[0][1]) == {"worker:0", "coordinator:0"}
