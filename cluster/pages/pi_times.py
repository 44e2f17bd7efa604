"""Time against samples of several pi runs, by number of workers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from cluster.pages.charts import Chart, Series, chart, thinned
from cluster.pages.run_files import StoredRun, number_of

SAMPLES = range(10_000_000, 110_000_000, 10_000_000)
"""Samples that have a row even without a run: those of the 2019 thesis."""


@dataclass(frozen=True)
class MeanTime:
    """How long `workers` took for `samples`."""

    seconds: float
    runs: int
    """Runs it is the mean of; 0 where a run passed it on the way to more samples."""
    speedup: float | None
    """Speed as a multiple of one worker's."""


@dataclass(frozen=True)
class Times:
    """The table: `cells[row][column]`, None where no run got there."""

    samples: tuple[int, ...]
    workers: tuple[int, ...]
    cells: tuple[tuple[MeanTime | None, ...], ...]

    @property
    def measured(self) -> bool:
        """Whether there is anything in it."""
        return any(cell for row in self.cells for cell in row)


def times_of(runs: Sequence[StoredRun]) -> Times:
    """The table of all pi runs among `runs`."""
    by_workers = dict[int, list[StoredRun]]()
    for run in runs:
        if run.view.job == "pi" and (workers := int(number_of(run.result, "workers") or 0)):
            by_workers.setdefault(workers, []).append(run)
    whole = {
        int(number_of(run.result, "samples") or 0)
        for run in runs
        if run.view.job == "pi" and _is_done(run)
    }
    rows = {}
    for samples in sorted({*SAMPLES, *whole} - {0}):
        seconds = {
            workers: _seconds(samples, by_workers[workers]) for workers in sorted(by_workers)
        }
        if any(seconds.values()):
            alone = seconds.get(1)
            rows[samples] = tuple(
                mean_time and _cell(mean_time, alone) for workers, mean_time in seconds.items()
            )
    return Times(tuple(rows), tuple(sorted(by_workers)), tuple(rows.values()))


def _is_done(run: StoredRun) -> bool:
    return run.view.state == "done"


def _cell(mean_time: tuple[float, int], alone: tuple[float, int] | None) -> MeanTime:
    seconds, runs = mean_time
    if alone and seconds > 0:
        speedup = alone[0] / seconds
    else:
        speedup = None
    return MeanTime(seconds, runs, speedup)


def _seconds(samples: int, runs: Iterable[StoredRun]) -> tuple[float, int] | None:
    """Return mean seconds of the runs with so many samples, and how many they are.

    Without such a run they are the mean seconds at which longer runs passed that number, and 0.
    None without any.
    """
    whole = []
    passed = []
    for run in runs:
        if _is_done(run) and number_of(run.result, "samples") == samples:
            whole.append(run.view.elapsed_seconds)
        elif (at := _when(run, samples)) is not None:
            passed.append(at)
    if whole:
        return fmean(whole), len(whole)
    if passed:
        return (fmean(passed), 0)
    return None


def _when(run: StoredRun, samples: int) -> float | None:
    """The second at which the run had drawn `samples`, between two that were written down."""
    if run.view.pi:
        points = run.view.pi.points
    else:
        points = ()
    # Points count from the first chunk; what the start and the end of the job took belongs to it as
    # well.
    if points and _is_done(run):
        besides = max(0.0, run.view.elapsed_seconds - points[-1].seconds)
    else:
        besides = 0.0
    for before, after in pairwise(points):
        if before.samples <= samples <= after.samples and after.samples > before.samples:
            share = (samples - before.samples) / (after.samples - before.samples)
            return besides + before.seconds + share * (after.seconds - before.seconds)
    return None


def times_chart(times: Times) -> Chart:
    """The table as lines, one for each number of workers."""
    series = []
    for column, workers in enumerate(times.workers):
        cells = zip(times.samples, times.cells, strict=True)
        points = [
            (samples, cell.seconds) for samples, row in cells if (cell := row[column]) is not None
        ]
        series.append(
            Series(f"{workers} worker{'s' if workers > 1 else ''}", thinned(points), column)
        )
    return chart("times", *series)
