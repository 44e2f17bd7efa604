"""The papers' tables beside ours in docs/: `python -m tools.published_tables --write` saves them.

Theirs come from `cluster/references/`, ours from `benchmarks/results/`: no person types a number. What no file has is
marked as not measured.
"""

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from statistics import fmean
from typing import Any

from cluster.logs.terminal import say
from cluster.references.cells import reference_cells
from cluster.references.tables import Row, own_names, own_table
from tools.kimm_tables import kimm_layers, kimm_results
from tools.kth_charts import CHARTS, chart, figures
from tools.kth_rows import kth_charts, kth_model, kth_rows, kth_sample
from tools.measured import (
    NONE,
    NOT_YET,
    ROOT,
    clock,
    legend,
    names_of,
    of_processor,
    processors_of,
    results,
    share,
    table,
    with_legend,
)  # fmt: skip

DOCS = ROOT / "docs"
EPOCHS_THERE, WINDOWS_THERE = 250, 7352
"""Of the thesis's printed configuration: what its time for a window is computed with."""
BATCH, WINDOWS_HERE = 100, 7400
"""Of ours: the last batch of an epoch, which is not full, is left out."""
MILLION = 1_000_000
PIS = (1, 2, 4, 8, 16)
SWEEP, PIS_TRAINED, PIS_DREW, TWINS = "sweep-thesis.json", "pis-table-21.json", "pis-pi.json", "pytorch_twin*.json"


@dataclass(frozen=True)
class Ours:
    """What we measured for one training."""

    accuracy: float
    f1: float | None
    seconds: float
    window_ms: float | None
    """Time for a trained window, of the same kind as `seconds`."""
    processors: frozenset[str] = frozenset()
    """Whose seconds these are."""


@cache
def trained() -> Mapping[int, Ours]:
    """Our training of each of the 52 runs, by its place in `thesis-runs`; of several seeds the means."""
    found: dict[int, list[Mapping[str, Any]]] = {}
    theirs = own_table("thesis-runs")
    swept = results(SWEEP)
    for run in swept.get("runs", ()):
        if run["state"] == "finished":
            named = {(cell.name, *cell.figures.items()) for cell in reference_cells(theirs, run["settings"])}
            for place, row in enumerate(theirs.rows):
                if _identity(row) in named:
                    found.setdefault(place, []).append(run)
    return {place: _mean(runs, processors_of(swept, runs)) for place, runs in found.items()}


def _mean(runs: Sequence[Mapping[str, Any]], processors: frozenset[str]) -> Ours:
    windows = [1000 * run["cpu_seconds"] / run["updates"] / BATCH for run in runs if run.get("cpu_seconds")]
    accuracy, f1 = (fmean(run["final"][name] for run in runs) for name in ("accuracy", "f1_weighted"))
    times = [run.get("cpu_seconds", run["seconds"]) for run in runs]
    return Ours(accuracy, f1, fmean(times), fmean(windows) if windows else None, processors)


def _identity(row: Row) -> tuple[Any, ...]:
    names = [str(row[key]) for key in ("device", "hardware", "framework") if row.get(key)]
    figures = [("accuracy", row["accuracy"]), ("f1_weighted", row["f1"]), ("seconds", row["seconds"])]
    return (", ".join(names), *((name, float(str(value))) for name, value in figures if value is not None))


def place_of(number: int, row: Row) -> int:
    """Which of the 52 runs a row of a table shows: equal settings, where the row names them, and equal figures."""
    devices = {"CPU": "Xeon", "Intel Xeon CPU": "Xeon"}
    device = row.get("device", row.get("hardware"))
    keys = [key for key in ("deep_layers", "residual_layers", "hidden", "learning_rate", "bidirectional", "framework")
            if key in row]  # fmt: skip
    for place, run in enumerate(own_table("thesis-runs").rows):
        apart = abs(float(str(row["seconds"])) - float(str(run["seconds"])))
        if (
            str(number) in str(run["tables"]).split(", ")
            and all(row[key] == run[key] for key in keys)
            and (device is None or devices.get(str(device), device) == run["device"])
            and (apart <= 1 or str(row["time"]) in str(run["other_times"]))
        ):
            return place
    raise ValueError(f"Table {number}: no run for {dict(row)}")


def network_of(run: Row) -> str:
    """`3 plain`, `4 x 4`."""
    deep, cells = run["deep_layers"], run["residual_layers"]
    return f"{deep} x {cells}" if cells else f"{deep} plain"


MACHINES = ("device", "hardware", "framework")


def thesis_table(name: str) -> str:
    """One of Tables 6 to 21: each row with ours."""
    found, runs = own_table(name), own_table("thesis-runs").rows
    number = int(found.source.place.removeprefix("Table "))
    has = {column for row in found.rows for column in row}
    figures = [figure for column, figure in (("accuracy", "accuracy"), ("f1", "F1")) if column in has]
    figures += ["time", "ms a window"]
    heads = ["layers", "directions", "units"]
    heads += [head for head, columns in (("learning rate", ["learning_rate"]), ("on", MACHINES)) if has & {*columns}]
    heads += [*(f"thesis: {figure}" for figure in figures), f"ours: {figures[0]}", *figures[1:]]
    rows = []
    for row in found.rows:
        place = place_of(number, row)
        run = runs[place]
        cells = [network_of(run), directions_of(run), str(row["hidden"])]
        cells += [f"{row['learning_rate']:g}"] if "learning_rate" in has else []
        cells += [str(row[column]) for column in MACHINES if column in row][:1]
        theirs = {"accuracy": share(row.get("accuracy")), "F1": share(row.get("f1")), "time": str(row["time"])}
        theirs["ms a window"] = _window_ms_there(row)
        mine = _ours(_measured(number, row, place))
        rows.append([*cells, *(theirs[figure] for figure in figures), *_shown(mine, figures)])
    return table(heads, rows)


def directions_of(run: Row) -> str:
    """`2` also where the thesis does not say."""
    return "1" if run["bidirectional"] is False else "2"


def _window_ms_there(row: Row) -> str:
    """No figure of the Pis: the thesis does not say what an epoch was for them."""
    if "Raspberry" in str(row.get("hardware")):
        return NONE
    return f"{1000 * float(str(row['seconds'])) / EPOCHS_THERE / WINDOWS_THERE:.2f}"


def _ours(ours: Ours | None) -> Mapping[str, str]:
    if ours is None:
        return {}
    window = NONE if ours.window_ms is None else f"{ours.window_ms:.2f}"
    time = of_processor(clock(ours.seconds), ours.processors)
    return {"accuracy": share(ours.accuracy), "F1": share(ours.f1), "time": time, "ms a window": window}


def _shown(mine: Mapping[str, str], figures: Sequence[str]) -> list[str]:
    """Cells of ours: the first one bold, or a mark that nothing was measured."""
    first, *others = (mine.get(figure, NONE) for figure in figures)
    return [f"**{first}**" if mine else NOT_YET, *others]


def _measured(number: int, row: Row, place: int) -> Ours | None:
    """Ours for a row: on emulated Pis, in PyTorch, or the training of the sweep."""
    if number == 21 and "Raspberry" in str(row["hardware"]):
        return _of_rows(results(PIS_TRAINED), lambda one: one["hidden"] == row["hidden"] and one["workers"] == 16)
    if number == 20:
        contestant = "pytorch" if row["framework"] == "PyTorch" else "ours single"
        twin = _of_rows(_twins(), lambda one: one["contestant"] == contestant and one["hidden"] == row["hidden"])
        return twin if twin is not None or contestant == "pytorch" else trained().get(place)
    return trained().get(place)


def _of_run(place: int, run: Row) -> Ours | None:
    """The same for one of the 52 runs."""
    number = 21 if run["tables"] == "21" else 20 if run["framework"] == "PyTorch" else 0
    return _measured(number, {**run, "hardware": run["device"]}, place)


def _twins() -> Mapping[str, Any]:
    """The rows of all files of the twins, a width each, and the processor of each row."""
    rows = []
    for name in names_of(TWINS):
        found = results(name)
        (processor,) = processors_of(found, [{}]) or [None]
        rows += [{"processor": processor, **row, "seconds": row["train_seconds"]} for row in found["rows"]]
    return {"rows": rows}


def _of_rows(found: Mapping[str, Any], fits: Callable[[Mapping[str, Any]], bool]) -> Ours | None:
    rows = [one for one in found.get("rows", ()) if fits(one)]
    if not rows:
        return None
    windows = [
        1000 * one["seconds"] / _epochs(one["epochs"]) / WINDOWS_HERE for one in rows if one.get("epochs")
    ]  # fmt: skip
    accuracy, seconds = (fmean(one[key] for one in rows) for key in ("accuracy", "seconds"))
    return Ours(accuracy, None, seconds, fmean(windows) if windows else None, processors_of(found, rows))


def _epochs(said: int | Sequence[float]) -> int:
    """`benchmarks.pis` says the speed of each epoch instead of their number."""
    return said if isinstance(said, int) else len(said)


def twins() -> str:
    """Each contestant of `benchmarks.pytorch_twin`, alone and distributed; empty before there is a file."""
    rows = []
    for name in names_of(TWINS):
        found = results(name)
        for contestant, said in found["summary"].items():
            mine = [row for row in found["rows"] if row["contestant"] == contestant]
            over = said.get("time_over_ours")
            rows.append((mine[0]["hidden"], [
                contestant, str(mine[0]["hidden"]), share(said["mean_accuracy"]),
                of_processor(f"{said['seconds']:.0f} s", processors_of(found, mine)),
                NONE if over is None else f"{over:.2f}",
            ]))  # fmt: skip
    if not rows:
        return ""
    made = table(["contestant", "units", "accuracy", "seconds", "time over ours"], [row for _, row in sorted(rows)])
    return f"### Alone and distributed\n\n{with_legend(made, 'the twins')}"


def thesis_tables() -> str:
    """Tables 6 to 19, each under its number and title."""
    parts = []
    for name in own_names():
        found = own_table(name)
        number = found.source.place.removeprefix("Table ")
        if name.startswith("thesis-table-") and 6 <= int(number) <= 19:
            parts += [f"## Table {number}: {found.title}", thesis_table(name)]
    text = "\n\n".join(parts)
    return "\n\n".join(part for part in (legend(text, "Tables 6 to 19"), text) if part)


def table_with_legend(name: str) -> str:
    """One of Tables 20 and 21, and whose times they are."""
    return with_legend(thesis_table(name), own_table(name).source.place)


def wide() -> str:
    """All runs of 256 units, ours beside theirs."""
    rows = []
    for place, run in enumerate(own_table("thesis-runs").rows):
        if run["hidden"] == 256:
            on = ", ".join(str(run[key]) for key in ("device", "framework") if run[key])
            (ours,) = _shown(_ours(_of_run(place, run)), ["accuracy"])
            if (
                ours == NOT_YET
                and run["device"] == "Xeon"
                and (run["residual_layers"], run["bidirectional"]) == (0, False)
            ):
                ours = _six_epochs()
            rows.append([network_of(run), directions_of(run), on, share(run["accuracy"]), ours])
    return table(["layers", "directions", "thesis on", "thesis: accuracy", "ours: accuracy"], rows)


def _six_epochs() -> str:
    """Of three plain layers, from before the sweep."""
    found = results("accuracy-thesis-h256.json").get("summary")
    return NOT_YET if found is None else f"**{found['mean_accuracy']:.4f}** after {found['epochs']} epochs"


def pi_seconds() -> str:
    """Table 5 beside our emulated Pis."""
    ours = {row["workers"]: row["seconds_to_million_points"] for row in results(PIS_DREW).get("rows", ())}
    heads = ["million points", *(head for pis in PIS for head in (f"{pis} Pi{'s' if pis > 1 else ''}: thesis", "ours"))]
    rows = []
    for row in own_table("thesis-table-05-pi-seconds").rows:
        millions = int(str(row["samples"])) // MILLION
        cells = [str(millions)]
        for pis in PIS:
            theirs, mine = row[f"seconds_{pis}"], ours.get(pis, {}).get(str(millions))
            cells += ["N/A" if theirs is None else f"{theirs:.2f} s", NOT_YET if mine is None else f"**{mine:.1f} s**"]
        rows.append(cells)
    (processor,) = processors_of(results(PIS_DREW), [{}]) or ["none yet"]
    return f"{table(heads, rows)}\n\nOurs: {processor}."


PARTS: Mapping[str, tuple[str, Callable[[], str]]] = {
    "table-5": ("tables.md", pi_seconds),
    "table-20": ("tables.md", partial(table_with_legend, "thesis-table-20-pytorch-tensorflow")),
    "twins": ("tables.md", twins),
    "table-21": ("tables.md", partial(table_with_legend, "thesis-table-21-pis-xeon")),
    "wide": ("tables.md", wide),
    "tables-6-to-19": ("tables-thesis.md", thesis_tables),
    "kimm-layers": ("tables-kimm.md", kimm_layers),
    "kimm-results": ("tables-kimm.md", kimm_results),
    "kth-charts": ("tables-kth.md", kth_charts),
    "kth-model": ("tables-kth.md", kth_model),
    "kth-figures": ("kth.md", figures),
    "kth-rows": ("kth.md", kth_rows),
    "kth-sample": ("kth.md", kth_sample),
}
"""By the name in the page's marks: the page, and what makes the part."""


def pages() -> dict[str, str]:
    """Each page, and each chart of one, as it should be. Raises ValueError for a page without the marks of a part."""
    found: dict[str, str] = {}
    for name, (page, part) in PARTS.items():
        text = found.get(page) or (DOCS / page).read_text(encoding="utf-8")
        begin, end = f"<!-- {name}: made by tools/published_tables.py -->\n\n", "\n\n<!-- end -->"
        marked = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
        if not marked.search(text):
            raise ValueError(f"docs/{page}: expected a line {begin.strip()!r} and below it {end.strip()!r}")
        made = begin + part() + end
        found[page] = marked.sub(made.replace("\\", r"\\"), text, count=1)
    return {**found, **{f"images/{name}.svg": chart(name) for name in CHARTS}}


def stale() -> dict[str, str]:
    """Those that are not up to date, as they should be."""
    return {
        name: text
        for name, text in pages().items()
        if not (path := DOCS / name).exists() or path.read_text(encoding="utf-8") != text
    }


def main() -> int:
    """Write the pages, or name those that are not up to date."""
    parser = argparse.ArgumentParser(prog="python -m tools.published_tables", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the pages instead of comparing them")
    write, found = parser.parse_args().write, stale()
    for name, text in found.items():
        if write:
            (DOCS / name).write_text(text, encoding="utf-8")
        else:
            say(f"docs/{name}: not up to date - run python -m tools.published_tables --write", error=True)
    return 1 if found and not write else 0


if __name__ == "__main__":
    sys.exit(main())
