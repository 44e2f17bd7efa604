"""The papers' tables beside ours in docs/: `python -m tools.published_tables --write` saves them.

Theirs come from `cluster/references/`, ours from `benchmarks/results/`: no person types a number. What no file has is
marked as not measured.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from cluster.logs.terminal import say
from cluster.models.dblstm import DeepBidirectionalModel
from cluster.models.network import build
from cluster.references.cells import reference_cells
from cluster.references.tables import Row, own_names, own_table
from tools.kth_rows import kth_table

ROOT = Path(__file__).parents[1]
DOCS, RESULTS = ROOT / "docs", ROOT / "benchmarks" / "results"
NOT_YET = "not measured"
NONE = "\N{EN DASH}"
EPOCHS_THERE, WINDOWS_THERE = 250, 7352
"""Of the thesis's printed configuration: what its time for a window is computed with."""
BATCH = 100
MILLION = 1_000_000
PIS = (1, 2, 4, 8, 16)
SWEEP, PIS_TRAINED, PIS_DREW = "sweep-thesis.json", "pis-table-21.json", "pis-pi.json"
TWINS, KIMM, KTH, KTH_SAMPLE = "pytorch_twin*.json", "sweep-kimm.json", "kth.json", "kth-sample.json"


@dataclass(frozen=True)
class Ours:
    """What we measured for one training."""

    accuracy: float
    f1: float | None
    seconds: float
    window_ms: float | None
    """Processor time for a trained window, all cores added up."""


def results(name: str) -> Mapping[str, Any]:
    """A file of `benchmarks/results/`; empty if it does not exist yet."""
    path = RESULTS / name
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines)


def clock(seconds: float) -> str:
    """`1:43:51`, as the thesis writes times."""
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


@cache
def trained() -> Mapping[int, Ours]:
    """Our training of each of the 52 runs, by its place in `thesis-runs`; of several seeds the means."""
    found: dict[int, list[Mapping[str, Any]]] = {}
    theirs = own_table("thesis-runs")
    for run in results(SWEEP).get("runs", ()):
        if run["state"] == "finished":
            named = {(cell.name, *cell.figures.items()) for cell in reference_cells(theirs, run["settings"])}
            for place, row in enumerate(theirs.rows):
                if _identity(row) in named:
                    found.setdefault(place, []).append(run)
    return {place: _mean(runs) for place, runs in found.items()}


def _mean(runs: Sequence[Mapping[str, Any]]) -> Ours:
    windows = [1000 * run["cpu_seconds"] / run["updates"] / BATCH for run in runs if run.get("cpu_seconds")]
    accuracy, f1 = (fmean(run["final"][name] for run in runs) for name in ("accuracy", "f1_weighted"))
    times = [run.get("cpu_seconds", run["seconds"]) for run in runs]
    return Ours(accuracy, f1, fmean(times), fmean(windows) if windows else None)


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
        theirs = {"accuracy": _share(row.get("accuracy")), "F1": _share(row.get("f1")), "time": str(row["time"])}
        theirs["ms a window"] = _window_ms_there(row)
        mine = _ours(_measured(number, row, place))
        rows.append([*cells, *(theirs[figure] for figure in figures), *_shown(mine, figures)])
    return table(heads, rows)


def directions_of(run: Row) -> str:
    """`2` also where the thesis does not say."""
    return "1" if run["bidirectional"] is False else "2"


def _share(value: Any) -> str:
    return NONE if value is None else f"{value:.4f}"


def _window_ms_there(row: Row) -> str:
    """No figure of the Pis: the thesis does not say what an epoch was for them."""
    if "Raspberry" in str(row.get("hardware")):
        return NONE
    return f"{1000 * float(str(row['seconds'])) / EPOCHS_THERE / WINDOWS_THERE:.2f}"


def _ours(ours: Ours | None) -> Mapping[str, str]:
    if ours is None:
        return {}
    window = NONE if ours.window_ms is None else f"{ours.window_ms:.2f}"
    return {
        "accuracy": _share(ours.accuracy), "F1": _share(ours.f1), "time": clock(ours.seconds), "ms a window": window,
    }  # fmt: skip


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
    """The rows of all files of the twins, a width each."""
    names = sorted(path.name for path in RESULTS.glob(TWINS))
    return {"rows": [{**row, "seconds": row["train_seconds"]} for name in names for row in results(name)["rows"]]}


def _of_rows(found: Mapping[str, Any], fits: Callable[[Mapping[str, Any]], bool]) -> Ours | None:
    rows = [one for one in found.get("rows", ()) if fits(one)]
    if not rows:
        return None
    return Ours(fmean(one["accuracy"] for one in rows), None, fmean(one["seconds"] for one in rows), None)


def thesis_tables() -> str:
    """Tables 6 to 19, each under its number and title."""
    parts = []
    for name in own_names():
        found = own_table(name)
        number = found.source.place.removeprefix("Table ")
        if name.startswith("thesis-table-") and 6 <= int(number) <= 19:
            parts += [f"## Table {number}: {found.title}", thesis_table(name)]
    return "\n\n".join(parts)


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
            rows.append([network_of(run), directions_of(run), on, _share(run["accuracy"]), ours])
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
    return table(heads, rows)


def kimm_layers() -> str:
    """Kimm's layers and ours."""
    sizes = dict[str, int]()
    network = build(DeepBidirectionalModel(), window_steps=128, channels=9, classes=6)
    for slot in network.layout.slots:
        layer = slot.spec.name.partition("/")[0]
        sizes[layer] = sizes.get(layer, 0) + slot.spec.size
    rows = [
        [str(row["layer"]), str(row["output"]), f"{row['parameters']:,}", name, f"**{size:,}**"]
        for row, (name, size) in zip(own_table("kimm-layers").rows, sizes.items(), strict=True)
    ]
    total = sum(int(str(row["parameters"])) for row in own_table("kimm-layers").rows)
    rows.append(["total", "", f"{total:,}", "", f"**{network.layout.trained_size:,}**"])
    return table(["Kimm's layer", "output", "parameters", "ours", "parameters"], rows)


def kimm_results() -> str:
    """Kimm's figures, and the mean and deviation of ours over the repeats."""
    heads = ["", "units", "layers", "batch", "accuracy", "precision", "recall", "F1", "time", "repeats"]
    rows = []
    for row in own_table("kimm-tpu-cpu").rows:
        shares = [f"{float(str(row[key])) / 100:.4f}" for key in ("accuracy", "precision", "recall", "f1")]
        rows.append([f"Kimm, {row['device']}", "128", "3", NONE, *shares, clock(float(str(row["seconds"]))), NONE])
    model, groups = "jobs.train.model.", dict[tuple[Any, ...], list[Mapping[str, Any]]]()
    for run in results(KIMM).get("runs", ()):
        given = run["settings"]
        key = (given[f"{model}units"], given[f"{model}layers"], given["jobs.train.batch_size"])
        groups.setdefault(key, []).extend([run] if run["state"] == "finished" else [])
    for key, runs in (groups or {(128, 3, 64): [], (128, 3, 128): []}).items():
        rows.append(["ours", *map(str, key), *_repeats(runs)])
    shipped = results("accuracy-dblstm.json")["rows"]
    accuracy, f1, seconds = (fmean(one[key] for one in shipped) for key in ("accuracy", "f1_macro", "elapsed_seconds"))
    who = ["ours, recipe `shipped`, asynchronous", "128", "3", "100"]
    rows.append([*who, f"**{accuracy:.4f}**", NONE, NONE, f"{f1:.4f}", clock(seconds), str(len(shipped))])
    return table(heads, rows)


def _repeats(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    if not runs:
        return [NOT_YET, *[NONE] * 4, "0"]
    cells = []
    for name in ("accuracy", "precision_macro", "recall_macro", "f1_macro"):
        values = [run["final"][name] for run in runs]
        spread = f" ± {stdev(values):.4f}" if len(values) > 1 else ""
        cells.append(f"{fmean(values):.4f}{spread}")
    return [f"**{cells[0]}**", *cells[1:], clock(fmean(run["seconds"] for run in runs)), str(len(runs))]


def kth_charts() -> str:
    """KTH's bars; ours by setup and updates, on either split."""
    ours = {(row["theirs"], row["split"]): row["at"] for row in results(KTH).get("rows", ()) if row["theirs"]}
    heads = ["KTH's setup", "updates", "KTH: accuracy", "time", "ours, random windows: accuracy", "time",
             "ours, other people: accuracy", "time"]  # fmt: skip
    rows = []
    for row in own_table("kth-charts").rows:
        cells = [str(row["setup"]), f"{row['steps']:,}", f"{row['test_accuracy']:.2f}", f"{row['hours']:.1f} h"]
        for split in ("random", "people"):
            mine = ours.get((row["setup"], split), {}).get(str(row["steps"]))
            known = mine is not None and mine["accuracy"] is not None
            cells += [f"**{mine['accuracy']:.4f}**", clock(mine["seconds"])] if known else [NOT_YET, NONE]
        rows.append(cells)
    return table(heads, rows)


def kth_rows() -> str:
    """Every training of KTH's network on invented recordings that was begun."""
    return table(*kth_table(results(KTH), {"random": "at random", "people": "by people"}))


def kth_sample() -> str:
    """The same on the published readings at hand, which one person made with one phone."""
    return table(*kth_table(results(KTH_SAMPLE), {}))


def kth_model() -> str:
    """KTH's network and data, as the slides have them."""
    rows = [
        [str(row["item"]), "not given" if row["value"] is None else f"{row['value']:,} {row['unit']}".strip()]
        for row in own_table("kth-model").rows
    ]
    return table(["item", "KTH"], rows)


PARTS: Mapping[str, tuple[str, Callable[[], str]]] = {
    "table-5": ("tables.md", pi_seconds),
    "table-20": ("tables.md", partial(thesis_table, "thesis-table-20-pytorch-tensorflow")),
    "table-21": ("tables.md", partial(thesis_table, "thesis-table-21-pis-xeon")),
    "wide": ("tables.md", wide),
    "tables-6-to-19": ("tables-thesis.md", thesis_tables),
    "kimm-layers": ("tables-kimm.md", kimm_layers),
    "kimm-results": ("tables-kimm.md", kimm_results),
    "kth-charts": ("tables-kth.md", kth_charts),
    "kth-model": ("tables-kth.md", kth_model),
    "kth-rows": ("kth.md", kth_rows),
    "kth-sample": ("kth.md", kth_sample),
}
"""By the name in the page's marks: the page, and what makes the part."""


def pages() -> dict[str, str]:
    """Each page as it should be. Raises ValueError for a page without the marks of a part."""
    found: dict[str, str] = {}
    for name, (page, part) in PARTS.items():
        text = found.get(page) or (DOCS / page).read_text(encoding="utf-8")
        begin, end = f"<!-- {name}: made by tools/published_tables.py -->\n\n", "\n\n<!-- end -->"
        marked = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
        if not marked.search(text):
            raise ValueError(f"docs/{page}: expected a line {begin.strip()!r} and below it {end.strip()!r}")
        made = begin + part() + end
        found[page] = marked.sub(made.replace("\\", r"\\"), text, count=1)
    return found


def main() -> int:
    """Write the pages, or name those that are not up to date."""
    parser = argparse.ArgumentParser(prog="python -m tools.published_tables", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the pages instead of comparing them")
    write = parser.parse_args().write
    stale = [name for name, text in pages().items() if (DOCS / name).read_text(encoding="utf-8") != text]
    for name in stale:
        if write:
            (DOCS / name).write_text(pages()[name], encoding="utf-8")
        else:
            say(f"docs/{name}: not up to date - run python -m tools.published_tables --write", error=True)
    return 1 if stale and not write else 0


if __name__ == "__main__":
    sys.exit(main())
