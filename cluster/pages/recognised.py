"""The report of a recognition: the labels over time, and how much of each."""

from dataclasses import dataclass

from cluster.pages.charts import Chart, Series, chart
from cluster.pages.panels import Tile
from cluster.pages.run_files import StoredRun, number_of, objects_of, part_of
from cluster.pages.words import count, duration, figure, label, percent, rate

COLORS = 6
_HEADS = ["label", "windows", "share", "time", "mean confidence"]
_SPAN_KEYS = ("begin_seconds", "end_seconds")


@dataclass(frozen=True)
class Recognised:
    """The picture `day`, the totals by label in `heads` and `rows`, and lines of `gaps`."""

    day: Chart
    heads: list[str]
    rows: list[list[str]]
    gaps: list[str]


def recognised(run: StoredRun) -> Recognised | None:
    """What the result says; None for another job."""
    if run.view.job != "recognise":
        return None
    totals = objects_of(run.result, "totals")
    rows = [
        [
            label(str(part_of(found, "label"))),
            count(number_of(found, "windows")),
            percent(number_of(found, "share")),
            duration(number_of(found, "seconds")),
            figure(number_of(found, "confidence"), 3),
        ]
        for found in totals
    ]
    gaps = [
        f"at {number_of(found, 'after') or 0:.3f}, {part_of(found, 'detail')}"
        for found in objects_of(run.result, "gaps")
    ]
    return Recognised(
        _day(run, [str(part_of(found, "label")) for found in totals]), _HEADS, rows, gaps
    )


def recognised_tiles(run: StoredRun) -> list[Tile]:
    """The figures to look at first."""
    gaps = number_of(run.result, "faults", "gap") or 0.0
    return [
        Tile("Windows", count(number_of(run.result, "windows")), "that have a label in labels.csv"),
        Tile(
            "Throughput",
            rate(number_of(run.result, "windows_per_second")),
            "windows a second, of all workers",
        ),
        Tile("Gaps", count(gaps), "pauses of the recording; no window spans one"),
    ]


def _day(run: StoredRun, labels: list[str]) -> Chart:
    spans: dict[str, list[tuple[float | None, ...]]] = {name: [] for name in labels}
    for found in objects_of(run.result, "band"):
        begin, end = (number_of(found, key) for key in _SPAN_KEYS)
        name = str(part_of(found, "label"))
        if begin is not None and end is not None and name in spans:
            spans[name].append((float(labels.index(name)), begin, end))
    series = [
        Series(label(name), tuple(found), place % COLORS)
        for place, (name, found) in enumerate(spans.items())
        if found
    ]
    return chart("day", *series, labels=map(label, labels))
