"""KTH's figures beside our trainings of its network.

The rows of experiments/pages/kth.md.
"""

from collections.abc import Mapping
from typing import Any

from experiments.tables.measured import (
    NONE,
    NOT_YET,
    clock,
    of_processor,
    processors_of,
    results,
    table,
    with_legend,
)
from experiments.tables.paper import paper_table

KTH = "kth.json"
KTH_SAMPLE = "kth-sample.json"
NO_SUCH_MACHINE: Mapping[str, str] = {"local-gpu": "no GPU here"}
"""Setups of theirs that no machine here has."""
MODES = {"single": "one process"}
LEVELS = ("0.50", "0.60")
"""Accuracies to which the time is shown."""


def kth_table(
    measurements: Mapping[str, Any], splits: Mapping[str, str]
) -> tuple[list[str], list[list[str]]]:
    """Return heads and rows: accuracy at each number of updates, and when half was reached.

    `splits` are the words for what was held out, none where that is the same for all.
    """
    trained_so_far = measurements.get("rows", ())
    marks = [str(mark) for mark in measurements.get("summary", {}).get("marks", ())]
    marks = [mark for mark in marks if any(row["at"].get(mark) for row in trained_so_far)]
    heads = [
        *(["split"] if splits else []),
        "mode",
        "workers",
        "rate",
        *(f"{int(mark):,} updates" for mark in marks),
        *(f"to {level}" for level in LEVELS),
        "best so far",
        "trained",
    ]
    rows = []
    for row in trained_so_far:
        if splits:
            cells = [splits[row["split"]]]
        else:
            cells = []
        cells += [
            MODES.get(row["mode"], row["mode"]),
            str(row["workers"] or NONE),
            f"{row['learning_rate']:g}",
        ]
        cells += [_share_at(row["at"].get(mark)) for mark in marks]
        for level in LEVELS:
            updates = row["updates_to"][level]
            seconds = row["seconds_to"][level]
            cells.append(NONE if updates is None else f"{updates:,} in {seconds:.0f} s")
        best = max(
            (point for point in row["curve"] if point["accuracy"] is not None),
            key=lambda point: point["accuracy"],
        )
        last = row["curve"][-1]
        cells += [
            f"{best['accuracy']:.3f} at {best['updates']:,}",
            f"{last['updates']:,} in {last['seconds']:.0f} s",
        ]
        rows.append(cells)
    return heads, rows


def _share_at(point: Mapping[str, Any] | None) -> str:
    if point is None or point["accuracy"] is None:
        return NONE
    return f"{point['accuracy']:.3f}"


def kth_charts() -> str:
    """KTH's bars; ours by setup and updates, on either split."""
    measurements = results(KTH)
    our_rows = {
        (row["theirs"], row["split"]): row for row in measurements.get("rows", ()) if row["theirs"]
    }
    heads = [
        "KTH's setup",
        "updates",
        "KTH: accuracy",
        "time",
        "ours, random windows: accuracy",
        "time",
        "ours, other people: accuracy",
        "time",
    ]
    rows = []
    for row in paper_table("kth-charts").rows:
        setup = row["setup"]
        cells = [setup, f"{row['steps']:,}", f"{row['test_accuracy']:.2f}", f"{row['hours']:.1f} h"]
        for split in ("random", "people"):
            our_row = our_rows.get((setup, split), {"at": {}})
            point = our_row["at"].get(str(row["steps"]))
            if point is None or point["accuracy"] is None:
                cells += [NO_SUCH_MACHINE.get(setup, NOT_YET), NONE]
            else:
                time = of_processor(clock(point["seconds"]), processors_of(measurements, [our_row]))
                cells += [f"**{point['accuracy']:.4f}**", time]
        rows.append(cells)
    return with_legend(table(heads, rows), "KTH's network")


def kth_rows() -> str:
    """Every training of KTH's network on invented recordings that was begun."""
    return table(*kth_table(results(KTH), {"random": "at random", "people": "by people"}))


def kth_sample() -> str:
    """Return the trainings on the published readings, which one person made with one phone."""
    return table(*kth_table(results(KTH_SAMPLE), {}))


def kth_model() -> str:
    """KTH's network and data, as the slides have them."""
    rows = [
        [
            row["item"],
            "not given" if row["value"] is None else f"{row['value']:,} {row['unit']}".strip(),
        ]
        for row in paper_table("kth-model").rows
    ]
    return table(["item", "KTH"], rows)
