import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.scaling import (
    MODES,
    ROUNDS,
    SHARE,
    UNEQUAL,
    WARM_UP,
    WORKERS,
    EpochClock,
    Run,
    all_runs,
    row_of,
    runs_of,
    summarize,
    unequal_runs,
)

SEVERAL = Run("async", (0.2, 0.2), steps_of_epoch=10, epochs=4)


def test_every_worker_has_100_windows_a_step_in_every_mode() -> None:
    asynchronous, synchronous = SEVERAL, replace(SEVERAL, mode="sync")
    assert "jobs.train.batch_size=100" in asynchronous.settings
    assert "jobs.train.micro_batches=1" in asynchronous.settings
    assert "jobs.train.batch_size=200" in synchronous.settings
    assert "jobs.train.micro_batches=2" in synchronous.settings
    assert asynchronous.windows == synchronous.windows == 2000


def test_a_round_has_every_mode_equal_and_unequal_and_several_epochs_that_count() -> None:
    """Quick or not: fewer rounds are all that `--quick` may change, and what is published is three."""
    runs = all_runs(SHARE)
    assert {run.mode for run in runs if set(run.shares) == {SHARE}} == set(MODES)
    assert {(run.mode, run.calibrated) for run in runs if run.shares == UNEQUAL} == {
        (mode, calibrated) for mode in ("async", "sync") for calibrated in (False, True)
    }
    assert min(run.epochs for run in runs) - WARM_UP >= 3
    assert ROUNDS == 3


def test_a_row_is_of_the_epochs_behind_the_warm_up() -> None:
    events = [{"windows_per_second": rate} for rate in (1.0, 2.0, 300.0, 500.0)]

    def taken(worker: float, server: float, coordinator: float) -> dict[str, float]:
        return {"worker:0": worker, "worker:1": worker, "ps:0": server, "coordinator:0": coordinator}

    readings = [
        (0.0, taken(50.0, 5.0, 9.0)),
        (10.0, taken(60.0, 6.0, 10.0)),
        (15.0, taken(60.5, 6.5, 11.0)),
        (20.0, taken(61.0, 7.0, 12.0)),
    ]
    row = row_of(SEVERAL, events, readings, {"throughput": {"step_seconds_p50": 0.3}})
    assert row["windows_per_second"] == 400.0
    assert row["epochs"] == 2
    assert row["worker_cpu_of_quota"] == pytest.approx(2.0 / (0.4 * 10.0))
    assert row["worker_cpu_ms_per_window"] == pytest.approx(2000.0 / 4000.0)
    assert row["ps_cpu_of_core"] == pytest.approx(0.1)
    assert row["coordinator_cpu_of_core"] == pytest.approx(0.2)


def test_the_summary_is_of_medians_over_as_many_times_one() -> None:
    def row(run: Run, rate: float) -> dict[str, Any]:
        readings = [(float(k), {"coordinator:0": 0.0}) for k in range(4)]
        return row_of(run, [{"windows_per_second": rate}] * 4, readings, {"throughput": {"step_seconds_p50": 0.3}})

    one, every = runs_of("async", 10, 4)
    alone, unequal, calibrated = unequal_runs("async", 10, 4)
    assert len(every.shares) == WORKERS
    rows = [row(one, 90.0), row(one, 100.0), row(one, 500.0), row(every, 720.0)]
    rows += [row(alone, 50.0), row(unequal, 130.0), row(calibrated, 156.0)]
    found = summarize(rows)
    units = sum(UNEQUAL) / SHARE
    assert found["efficiency"] == {"async": pytest.approx(0.9), "local": None, "sync": None}
    assert found["heterogeneous"]["async"] == {
        "uncalibrated": pytest.approx(130.0 / (units * 50.0)),
        "calibrated": pytest.approx(156.0 / (units * 50.0)),
    }
    assert found["heterogeneous"]["sync"] == {"uncalibrated": None, "calibrated": None}


def test_the_clock_reads_after_every_epoch_and_says_when_the_first_is_over(tmp_path: Path) -> None:
    (tmp_path / "20260101T000000Z-train").mkdir()
    (tmp_path / "20260101T000000Z-train" / "history.jsonl").write_text('{"event":"epoch","epoch":7}\n')
    warm: list[int] = []
    clock = EpochClock(tmp_path, {"worker:0": os.getpid()}, lambda: warm.append(len(clock.readings)))
    clock.start(os.getpid())
    events = tmp_path / "20260101T000001Z-train" / "history.jsonl"
    events.parent.mkdir()
    for epoch in (1, 2):
        with events.open("a") as stream:
            stream.write(f'{{"event":"stage"}}\n{{"event":"epoch","epoch":{epoch}}}\n')
        while len(clock.readings) < epoch:
            pass
    assert [found["epoch"] for found in clock.stop()] == [1, 2]
    assert warm == [0]
    assert set(clock.readings[0][1]) == {"worker:0", "coordinator:0"}
