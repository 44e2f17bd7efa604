"""The papers' tables beside ours, and our own results, in pages/.

`python -m experiments.tables.published --write` saves them.

Theirs come from `papers/`, ours from `experiments/results/` and `benchmarks/results/`: no person
types a number. What no file has is marked as not measured.
"""

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from core.logs import say
from experiments.tables.accuracies import (
    accuracies,
    causal,
    cross_validated,
    epochs_compared,
    kimm_layers,
    kimm_results,
    modes,
    people,
)
from experiments.tables.kth_charts import (
    CHARTS,
    chart,
    figures,
    kth_charts,
    kth_model,
    kth_rows,
    kth_sample,
)
from experiments.tables.measured import (
    NONE,
    NOT_YET,
    ROOT,
    TWINS,
    Ours,
    Row,
    clock,
    measured,
    names_of,
    of_processor,
    paper_table,
    place_of,
    processors_of,
    results,
    share,
    table,
    trained,
    with_legend,
)

PAGES = ROOT / "experiments/pages"
EPOCHS_THERE = 250
WINDOWS_THERE = 7352
"""Windows of the thesis's printed configuration, for its time a window."""
MILLION = 1_000_000
PIS = (1, 2, 4, 8, 16)
PIS_DREW = "pis-pi.json"


def network_of(run: Row) -> str:
    """Return the layers, such as `3 plain` or `4 x 4`."""
    deep = run["deep_layers"]
    cells = run["residual_layers"]
    if cells:
        return f"{deep} x {cells}"
    return f"{deep} plain"


MACHINES = ("device", "hardware", "framework")


def thesis_table(name: str) -> str:
    """One of Tables 6 to 21: each row with ours."""
    printed_table = paper_table(name)
    runs = paper_table("thesis-runs").rows
    number = int(printed_table.place.removeprefix("Table "))
    has = {column for row in printed_table.rows for column in row}
    figures = [
        figure for column, figure in (("accuracy", "accuracy"), ("f1", "F1")) if column in has
    ]
    figures += ["time", "ms a window"]
    heads = ["layers", "directions", "units"]
    heads += [
        head
        for head, columns in (("learning rate", ["learning_rate"]), ("on", MACHINES))
        if has & {*columns}
    ]
    heads += [*(f"thesis: {figure}" for figure in figures), f"ours: {figures[0]}", *figures[1:]]
    rows = []
    for row in printed_table.rows:
        place = place_of(number, row)
        run = runs[place]
        cells = [network_of(run), directions_of(run), str(row["hidden"])]
        cells += [f"{row['learning_rate']:g}"] if "learning_rate" in has else []
        cells += [str(row[column]) for column in MACHINES if column in row][:1]
        thesis_figures = {
            "accuracy": share(row.get("accuracy")),
            "F1": share(row.get("f1")),
            "time": row["time"],
        }
        thesis_figures["ms a window"] = _window_ms_there(row)
        our_figures = _figures_of(measured(number, row, place))
        rows.append(
            [
                *cells,
                *(thesis_figures[figure] for figure in figures),
                *_cells_of(our_figures, figures),
            ]
        )
    return table(heads, rows)


def directions_of(run: Row) -> str:
    """Return the directions: `2` also where the thesis does not say."""
    if run["bidirectional"] is False:
        return "1"
    return "2"


def _window_ms_there(row: Row) -> str:
    """Return no figure of the Pis: the thesis does not say what an epoch was for them."""
    if "Raspberry" in str(row.get("hardware")):
        return NONE
    return f"{1000 * row['seconds'] / EPOCHS_THERE / WINDOWS_THERE:.2f}"


def _figures_of(measurement: Ours | None) -> Mapping[str, str]:
    if measurement is None:
        return {}
    if measurement.window_ms is None:
        window = NONE
    else:
        window = f"{measurement.window_ms:.2f}"
    time = of_processor(clock(measurement.seconds), measurement.processors)
    return {
        "accuracy": share(measurement.accuracy),
        "F1": share(measurement.f1),
        "time": time,
        "ms a window": window,
    }


def _cells_of(our_figures: Mapping[str, str], figures: Sequence[str]) -> list[str]:
    """Cells of ours: the first one bold, or a mark that nothing was measured."""
    first, *later_cells = (our_figures.get(figure, NONE) for figure in figures)
    return [f"**{first}**" if our_figures else NOT_YET, *later_cells]


def twins() -> str:
    """Each contestant of the twins in PyTorch, alone and distributed.

    Empty before there is a file.
    """
    rows = []
    for name in names_of(TWINS):
        measurements = results(name)
        for contestant, summary in measurements["summary"].items():
            contestant_rows = [
                row for row in measurements["rows"] if row["contestant"] == contestant
            ]
            over = summary.get("time_over_ours")
            rows.append(
                (
                    contestant_rows[0]["hidden"],
                    [
                        contestant,
                        str(contestant_rows[0]["hidden"]),
                        share(summary["mean_accuracy"]),
                        of_processor(
                            f"{summary['seconds']:.0f} s",
                            processors_of(measurements, contestant_rows),
                        ),
                        NONE if over is None else f"{over:.2f}",
                    ],
                )
            )
    if not rows:
        return ""
    markdown = table(
        ["contestant", "units", "accuracy", "seconds", "time over ours"],
        [row for _, row in sorted(rows)],
    )
    return f"### Alone and distributed\n\n{with_legend(markdown, 'the twins')}"


def thesis_grid() -> str:
    """Return Tables 6 to 19 as one: a row a training, on the Xeon, on the GPUs and here."""
    trainings: dict[tuple[Any, ...], dict[str, int]] = {}
    runs = paper_table("thesis-runs").rows
    for place, run in enumerate(runs):
        if any(6 <= int(number) <= 19 for number in _tables_of(run)):
            settings = (network_of(run), directions_of(run), run["hidden"], run["learning_rate"])
            trainings.setdefault(settings, {})[run["device"]] = place
    rows = []
    for settings, places in sorted(trainings.items(), key=lambda entry: _order(entry[0])):
        layers, directions, hidden, rate = settings
        thesis_cells: list[str] = []
        numbers: set[str] = set()
        for device in ("Xeon", "GPU"):
            if device in places:
                run = runs[places[device]]
                numbers |= {*_tables_of(run)}
                thesis_cells += [_accuracy_of(run), _times_of(run)]
            else:
                thesis_cells += [NONE, NONE]
        our_figures = _figures_of(trained().get(next(iter(places.values()))))
        table_numbers = ",".join(
            sorted(numbers & {str(number) for number in range(6, 20)}, key=int)
        )
        our_cells = _cells_of(our_figures, ["accuracy", "F1", "time"])
        rows.append(
            [layers, directions, str(hidden), f"{rate:g}", table_numbers, *thesis_cells, *our_cells]
        )
    heads = ["layers", "directions", "units", "rate", "tables", "Xeon: accuracy", "time"]
    heads += ["GPU: accuracy", "time", "ours: accuracy", "F1", "time"]
    return with_legend(table(heads, rows), "Tables 6 to 19")


def _tables_of(run: Row) -> list[str]:
    return str(run["tables"]).split(", ")


def _order(settings: tuple[Any, ...]) -> tuple[Any, ...]:
    layers, directions, hidden, rate = settings
    return layers.replace("plain", "0"), directions, -rate, hidden


def _accuracy_of(run: Row) -> str:
    """Return the accuracy, with F1 in brackets where the thesis gives it."""
    if run["f1"] is None:
        return share(run["accuracy"])
    return f"{share(run['accuracy'])} ({share(run['f1'])})"


def _times_of(run: Row) -> str:
    """Return the time, with another one that a table prints for the same training."""
    if run["other_times"] is None:
        return str(run["time"])
    return f"{run['time']}; {run['other_times']}"


def table_with_legend(name: str) -> str:
    """One of Tables 20 and 21, and whose times they are."""
    return with_legend(thesis_table(name), paper_table(name).place)


def pi_seconds() -> str:
    """Table 5 beside our emulated Pis."""
    our_seconds = {
        row["workers"]: row["seconds_to_million_points"]
        for row in results(PIS_DREW).get("rows", ())
    }
    heads = [
        "million points",
        *(head for pis in PIS for head in (f"{pis} Pi{'s' if pis > 1 else ''}: thesis", "ours")),
    ]
    rows = []
    for row in paper_table("thesis-table-05-pi-seconds").rows:
        millions = row["samples"] // MILLION
        cells = [str(millions)]
        for pis in PIS:
            thesis_seconds = row[f"seconds_{pis}"]
            measured_seconds = our_seconds.get(pis, {}).get(str(millions))
            cells += [
                "N/A" if thesis_seconds is None else f"{thesis_seconds:.2f} s",
                NOT_YET if measured_seconds is None else f"**{measured_seconds:.1f} s**",
            ]
        rows.append(cells)
    (processor,) = processors_of(results(PIS_DREW), [{}]) or ["none yet"]
    return f"{table(heads, rows)}\n\nOurs: {processor}."


PARTS: Mapping[str, tuple[str, Callable[[], str]]] = {
    "table-5": ("tables.md", pi_seconds),
    "table-20": ("tables.md", partial(table_with_legend, "thesis-table-20-pytorch-tensorflow")),
    "twins": ("tables.md", twins),
    "table-21": ("tables.md", partial(table_with_legend, "thesis-table-21-pis-xeon")),
    "tables-6-to-19": ("tables-thesis.md", thesis_grid),
    "kimm-layers": ("tables-kimm.md", kimm_layers),
    "kimm-results": ("tables-kimm.md", kimm_results),
    "kth-charts": ("kth.md", kth_charts),
    "kth-model": ("kth.md", kth_model),
    "kth-figures": ("kth.md", figures),
    "kth-rows": ("kth.md", kth_rows),
    "kth-sample": ("kth.md", kth_sample),
    "accuracies": ("results.md", accuracies),
    "people": ("results.md", people),
    "causal": ("results.md", causal),
    "cross-validated": ("results.md", cross_validated),
    "epochs-compared": ("results.md", epochs_compared),
    "modes-compared": ("results.md", modes),
}
"""The page and what makes the part, by the name in the page's marks."""


def pages() -> dict[str, str]:
    """Each page, and each chart of one, as it should be.

    Raises ValueError for a page without the marks of a part.
    """
    texts: dict[str, str] = {}
    for name, (page, part) in PARTS.items():
        text = texts.get(page) or (PAGES / page).read_text(encoding="utf-8")
        begin = f"<!-- {name}: made by experiments/tables/published.py -->\n\n"
        end = "\n\n<!-- end -->"
        marked = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
        if not marked.search(text):
            raise ValueError(
                f"pages/{page}: expected a line {begin.strip()!r} and below it {end.strip()!r}"
            )
        section = begin + part() + end
        texts[page] = marked.sub(section.replace("\\", r"\\"), text, count=1)
    return {**texts, **{f"images/{name}.svg": chart(name) for name in CHARTS}}


def stale() -> dict[str, str]:
    """Return pages that are not up to date, as they should be."""
    return {
        name: text
        for name, text in pages().items()
        if not (path := PAGES / name).exists() or path.read_text(encoding="utf-8") != text
    }


def main() -> int:
    """Write the pages, or name those that are not up to date."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.tables.published", description=__doc__
    )
    parser.add_argument(
        "--write", action="store_true", help="write the pages instead of comparing them"
    )
    write = parser.parse_args().write
    stale_pages = stale()
    for name, text in stale_pages.items():
        if write:
            (PAGES / name).write_text(text, encoding="utf-8")
        else:
            say(
                f"{name}: not up to date - run python -m experiments.tables.published --write",
                error=True,
            )
    if stale_pages and not write:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
