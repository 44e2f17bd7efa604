"""Folders of sweeps as `fab sweep` leaves them."""

import json
from itertools import product
from pathlib import Path
from typing import Any

from tests.cluster.pages.example import HOSTILE
from tests.tables import table

MODEL = "jobs.train.model"
TABLE = table("cluster/pages/sweeps")


def final(accuracy: float) -> dict[str, float | None]:
    """The figures of a test."""
    shares = dict.fromkeys(TABLE["shares"], accuracy)
    return {**shares, "f1_macro": accuracy - 0.01, "recall_weighted": None, "loss": 0.3}


def run(number: int, settings: dict[str, Any], seed: int = 0, **changes: Any) -> dict[str, Any]:
    """A run that has ended well, or as `changes` say."""
    name = f"{number:04d}"
    found = {"id": name, "settings": settings, "seed": seed, "folder": name}
    return {**TABLE["run"], **found, "final": final(0.9 + 0.01 * seed), **changes}


def waiting(number: int, settings: dict[str, Any], seed: int = 0) -> dict[str, Any]:
    """A run that has not begun."""
    return run(number, settings, seed, **TABLE["waiting"])


def sweep(runs: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    """What is in `sweep.json`."""
    keys = dict.fromkeys(key for one in runs for key in one["settings"])
    axes = []
    for key in keys:
        values: list[Any] = []
        for one in runs:
            if key in one["settings"] and one["settings"][key] not in values:
                values.append(one["settings"][key])
        axes.append({"key": key, "values": values})
    seeds = sorted({one["seed"] for one in runs}) or [0]
    return {**TABLE["sweep"], "seeds": seeds, "axes": axes, "runs": runs, **changes}


def left(folder: Path, found: dict[str, Any]) -> Path:
    """The folder with its file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sweep.json").write_text(json.dumps(found))
    return folder


def of_the_thesis(seeds: int = 2) -> dict[str, Any]:
    """Plain and residual networks of three widths, some of them unfinished."""
    kinds = [
        {
            f"{MODEL}.n_stacked_layers": 3,
            f"{MODEL}.n_layers_in_highway": cells,
            f"{MODEL}.bidirectional": bool(cells),
        }
        for cells in (0, 3)
    ]
    runs = []
    for number, (kind, hidden, seed) in enumerate(product(kinds, (32, 64, 128), range(seeds)), 1):
        runs.append(run(number, {**kind, f"{MODEL}.hidden": hidden}, seed))
    runs[-1] |= {"state": "failed", "final": None, "error": "update 5: the loss is not finite"}
    runs[-2] |= {"state": "running", "final": None}
    runs[-3] |= TABLE["waiting"]
    return sweep(runs, state="running")


def hostile() -> dict[str, Any]:
    """Every text is an attack."""
    texts = {
        "node": HOSTILE,
        "error": HOSTILE,
        "final": {**final(0.5), HOSTILE[:60]: 1.0},
    }
    runs = [
        run(at, {HOSTILE: value}, 0, **texts)
        for at, value in enumerate((HOSTILE, HOSTILE * 9, [HOSTILE], {HOSTILE: None}), 1)
    ]
    return sweep(
        runs,
        name=HOSTILE,
        id=HOSTILE,
    )
