"""The trainings of `benchmarks.kth` as rows of docs/kth.md."""

from collections.abc import Mapping
from typing import Any

NONE = "\N{EN DASH}"
MODES = {"single": "one process"}
LEVELS = ("0.50", "0.60")
"""Accuracies to which the time is shown."""


def kth_table(found: Mapping[str, Any], splits: Mapping[str, str]) -> tuple[list[str], list[list[str]]]:
    """Heads and rows: accuracy at each number of updates that any training has reached, and when half was reached.

    `splits` are the words for what was held out, none where that is the same for all.
    """
    trained_so_far = found.get("rows", ())
    marks = [str(mark) for mark in found.get("summary", {}).get("marks", ())]
    marks = [mark for mark in marks if any(row["at"].get(mark) for row in trained_so_far)]
    heads = [*(["split"] if splits else []), "mode", "workers", "rate", *(f"{int(mark):,} updates" for mark in marks),
             *(f"to {level}" for level in LEVELS), "best so far", "trained"]  # fmt: skip
    rows = []
    for row in trained_so_far:
        cells = [splits[row["split"]]] if splits else []
        cells += [MODES.get(row["mode"], row["mode"]), str(row["workers"] or NONE), f"{row['learning_rate']:g}"]
        cells += [_share_at(row["at"].get(mark)) for mark in marks]
        for level in LEVELS:
            updates, seconds = row["updates_to"][level], row["seconds_to"][level]
            cells.append(NONE if updates is None else f"{updates:,} in {seconds:.0f} s")
        best = max((point for point in row["curve"] if point["accuracy"] is not None), key=lambda one: one["accuracy"])
        last = row["curve"][-1]
        cells += [f"{best['accuracy']:.3f} at {best['updates']:,}", f"{last['updates']:,} in {last['seconds']:.0f} s"]
        rows.append(cells)
    return heads, rows


def _share_at(point: Mapping[str, Any] | None) -> str:
    return NONE if point is None or point["accuracy"] is None else f"{point['accuracy']:.3f}"
