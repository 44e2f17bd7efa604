"""Folders of runs as jobs leave them."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cluster.status.events import Began, EpochEnded, Event
from cluster.status.history import NAME, line_of
from cluster.status.parts import Figures
from tests.pages.example import LABELS

STARTED = datetime(2026, 11, 21, 23, 35, 35, tzinfo=UTC)


def train_result(seed: int = 0, **changes: Any) -> dict[str, Any]:
    """What a training leaves in `result.json`."""
    accuracy = 0.90 + 0.01 * seed
    figures = {"accuracy": accuracy, "f1_macro": accuracy - 0.01, "f1_weighted": accuracy,
               "precision_macro": accuracy, "precision_weighted": accuracy, "recall_macro": accuracy,
               "recall_weighted": accuracy, "loss": 0.3}  # fmt: skip
    return {
        "schema": 1, "job": "train", "status": "done", "reason": None, "cluster": "thesis", "mode": "async",
        "workers": 2, "ps": 1, "seed": seed,
        "dataset": {"name": "hapt", "source": "x.zip", "sha256": "ab" * 32, "train_windows": 7415, "test_windows": 2996,
                    "channels": 9, "window_steps": 128, "labels": list(LABELS)},
        "model": {"name": "thesis", "parameters": 27590},
        "settings": {"recipe": "shipped", "mode": "async", "epochs": 2, "seed": seed, "codec": {"name": "fp32"}},
        "epochs_done": 2, "refit": False, "final": figures, "selected": {"epoch": 2, **figures},
        "confusion": [[10 if row == column else 1 for column in range(6)] for row in range(6)],
        "updates": {"scheduled": 126, "applied": 126, "duplicates_dropped": 1, "rolled_back": 0},
        "resumptions": 1, "chaos": {"injected": {"kill-worker": 3}},
        "wire": {"pull_bytes_per_step": 111_240.0, "push_bytes_per_step": 114_937.0, "packets_per_step": 227.0},
        "throughput": {"windows_per_second": 200.0, "step_seconds_p50": 1.9},
        "staleness": {"mean": 6.5, "maximum": 15.0}, "elapsed_seconds": 70.0, **changes,
    }  # fmt: skip


def pi_result(workers: int, samples: int, seconds: float, **changes: Any) -> dict[str, Any]:
    """What a pi job leaves in `result.json`."""
    return {
        "schema": 1, "job": "pi", "status": "done", "reason": None, "cluster": "thesis", "workers": workers, "ps": 1,
        "seed": 0, "planned_samples": samples, "samples": samples, "inside": 785, "estimate": 3.1416,
        "standard_error": 0.0001, "samples_per_second": {}, "elapsed_seconds": seconds, **changes,
    }  # fmt: skip


def left(folder: Path, result: dict[str, Any]) -> Path:
    """A run's folder with its result and, of a training, a history of nothing but its epochs."""
    folder.mkdir(parents=True)
    (folder / "result.json").write_text(json.dumps(result))
    if result["job"] == "train":
        held_out = Figures(**result["final"])
        found: list[Event] = [Began(result["cluster"], "train", STARTED, (), result["mode"], "thesis")]
        for at in (1, 2):
            validation = replace(held_out, accuracy=0.4 * at)
            found.append(EpochEnded("train", at, 2.0 / at, 0.4 * at, 0.001, 100.0, 0.0, validation))
        lines = [line_of(event, 10.0 * at, STARTED + timedelta(seconds=10 * at)) for at, event in enumerate(found)]
        (folder / NAME).write_bytes(b"".join(lines))
    return folder
