"""Folders of runs as jobs leave them; `results.yaml` has what is in their `result.json`."""

import json
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

from core.status.events import Began, EpochEnded, Event
from core.status.history import NAME, line_of
from core.status.parts import Figures
from tests.cluster.pages.example import STARTED
from tests.tables import table

RESULTS = table("cluster/pages/results")


def train_result(seed: int = 0, **changes: Any) -> dict[str, Any]:
    """What a training leaves in `result.json`."""
    result: dict[str, Any] = deepcopy(RESULTS["train"])
    accuracy = 0.90 + 0.01 * seed
    shares = ("accuracy", "f1_weighted", "precision_macro", "recall_macro")
    final = dict.fromkeys((*shares, "precision_weighted", "recall_weighted"), accuracy)
    final |= {"f1_macro": accuracy - 0.01, "loss": 0.3}
    result["settings"]["seed"] = seed
    result |= {"by_group": [{"group": "anna", "examples": 30, **final}]}
    result |= {
        "wrong": [{"group": "anna", "first": 7, "last": 9, "true": "SIT", "predicted": "LIE"}]
    }
    return {**result, "seed": seed, "final": final, "selected": {"epoch": 2, **final}, **changes}


def pi_result(workers: int, samples: int, seconds: float, **changes: Any) -> dict[str, Any]:
    """What a pi job leaves in `result.json`."""
    counts = {"workers": workers, "planned_samples": samples, "samples": samples}
    return {**RESULTS["pi"], **counts, "elapsed_seconds": seconds, **changes}


def left(folder: Path, result: dict[str, Any]) -> Path:
    """A run's folder with its result and, of a training, a history of nothing but its epochs."""
    folder.mkdir(parents=True)
    (folder / "result.json").write_text(json.dumps(result))
    if result["job"] == "train":
        held_out = Figures(**result["final"])
        began = Began(result["cluster"], "train", STARTED, (), result["mode"], "thesis")
        found: list[Event] = [began]
        for at in (1, 2):
            validation = replace(held_out, accuracy=0.4 * at)
            found.append(EpochEnded("train", at, 2.0 / at, 0.4 * at, 0.001, 100.0, 0.0, validation))
        lines = [line_of(event, 10.0 * at, STARTED) for at, event in enumerate(found)]
        (folder / NAME).write_bytes(b"".join(lines))
    return folder
