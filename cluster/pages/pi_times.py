"""Time against samples of several pi runs, by how many workers drew them, beside the thesis's Table 5."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from cluster.pages.charts import Chart, Series, thinned
from cluster.pages.groups import Named
from cluster.pages.run_files import number_of
from cluster.pages.thesis_figures import PI_SECONDS, is_in_table_5, pi_seconds


@dataclass(frozen=True)
class Cell:
    """How long `workers` took for `samples`."""

    seconds: float
    runs: int
    """So many whole runs it is the mean of; 0: passed on the way to more samples."""
    speedup: float | None
    """How many times as fast as one worker."""
    thesis_seconds: float | None = None
    """What the thesis's table has for as many Raspberry Pis."""
    thesis_has_none: bool = False
    """Its table has the cell, and it reads N/A."""


@dataclass(frozen=True)
class Times:
    """The table: `cells[row][column]`, None where no run got there."""

    samples: tuple[int, ...]
    workers: tuple[int, ...]
    cells: tuple[tuple[Cell | None, ...], ...]

    @property
    def measured(self) -> bool:
        """Whether there is anything in it."""
        return any(cell for row in self.cells for cell in row)


def times_of(runs: Sequence[Named]) -> Times:
    """The table of all pi runs among `runs`."""
    found = [one for one in runs if one.run.view.job == "pi" and workers_of(one)]
    workers = tuple(sorted({workers_of(one) for one in found}))
    whole = {int(number_of(one.run.result, "samples") or 0) for one in found if one.run.view.state == "done"}
    rows = []
    for samples in sorted({*PI_SECONDS, *whole} - {0}):
        seconds = [_seconds(samples, [one for one in found if workers_of(one) == count]) for count in workers]
        if not any(seconds):
            continue
        alone = next((each[0] for each, count in zip(seconds, workers, strict=True) if each and count == 1), None)
        cells = tuple(
            None if each is None else _cell(samples, count, each, alone)
            for each, count in zip(seconds, workers, strict=True)
        )
        rows.append((samples, cells))
    return Times(tuple(samples for samples, _ in rows), workers, tuple(cells for _, cells in rows))


def _cell(samples: int, workers: int, found: tuple[float, int], alone: float | None) -> Cell:
    seconds, runs = found
    speedup = alone / seconds if alone and seconds > 0 else None
    theirs = pi_seconds(samples, workers)
    return Cell(seconds, runs, speedup, theirs, theirs is None and is_in_table_5(samples, workers))


def workers_of(one: Named) -> int:
    """How many workers the run's inventory had."""
    return int(number_of(one.run.result, "workers") or 0)


def _seconds(samples: int, runs: Iterable[Named]) -> tuple[float, int] | None:
    whole, passed = [], []
    for one in runs:
        view = one.run.view
        if view.state == "done" and number_of(one.run.result, "samples") == samples:
            whole.append(view.elapsed_seconds)
        elif (at := _when(one, samples)) is not None:
            passed.append(at)
    if whole:
        return fmean(whole), len(whole)
    return (fmean(passed), 0) if passed else None


def _when(one: Named, samples: int) -> float | None:
    """When the run had drawn so many, between the two moments that were written down."""
    view = one.run.view
    points = view.pi.points if view.pi else ()
    # Points count from the first chunk; what the start and the end of the job took belongs to it as well.
    besides = max(0.0, view.elapsed_seconds - points[-1].seconds) if points and view.state == "done" else 0.0
    for before, after in pairwise(points):
        if before.samples <= samples <= after.samples and after.samples > before.samples:
            share = (samples - before.samples) / (after.samples - before.samples)
            return besides + before.seconds + share * (after.seconds - before.seconds)
    return None


def times_chart(times: Times) -> Chart:
    """The table as lines, one for each number of workers."""
    series = []
    for column, count in enumerate(times.workers):
        points = [
            (samples, cell.seconds)
            for samples, row in zip(times.samples, times.cells, strict=True)
            if (cell := row[column]) is not None
        ]
        series.append(Series(f"{count} worker{'s' if count > 1 else ''}", thinned(points), column))
    return Chart(
        id="times",
        title="Time against samples",
        hint="Both scales grow by factors of ten: a straight line that rises by as much as it goes right costs the "
        "same for every sample; a flat start is the time it takes to begin at all.",
        empty="comes with runs of the pi job that are done",
        series=tuple(series),
        x_label="samples",
        y_label="time",
        x_unit="samples",
        y_unit="seconds",
        logarithmic=True,
    )
