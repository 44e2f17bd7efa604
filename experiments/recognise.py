"""`fab job recognise` over a synthetic day.

By this process alone, and by two local workers, in turn.

The day is 4,320,000 readings at 50 Hz, every ten minutes another posture, and in every third of
these a stride. The model is three layers of 32 units, trained for one epoch on synthetic
recordings. Both write the same bytes. A command's time includes its imports and the reading of the
recording; the labelling is what `result.json` says.
"""

import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.beds.local_cluster import LocalCluster, local_cluster
from benchmarks.report import arguments, publish

HZ = 50
DAY_SECONDS = 24 * 3600
QUICK_SECONDS = 1800
POSTURE_SECONDS = 600
ROUNDS = 2
QUICK_ROUNDS = 1
WORKERS = 2
ALONE = "single"
TOGETHER = f"{WORKERS} workers"
MODEL = (
    "{name: thesis, n_layers_in_highway: 0, n_stacked_layers: 3, bidirectional: false, hidden: 32}"
)
TRAINING = (
    "jobs.train.mode=single",
    "jobs.train.data.source=synthetic",
    "jobs.train.epochs=1",
    "jobs.train.validation_subjects=0",
    "jobs.train.refit=false",
    f"jobs.train.model={MODEL}",
)


def record(path: Path, seconds: int) -> None:
    """An invented recording: `times` in seconds, acceleration in g, rotation in rad/s."""
    chance = np.random.default_rng(0)
    count = seconds * HZ
    times = np.arange(count) / HZ
    part = (times // POSTURE_SECONDS).astype(int)
    way = chance.normal(0, 1, (part[-1] + 1, 3))
    gravity = (way / np.linalg.norm(way, axis=1, keepdims=True))[part]
    stride = (
        np.where(part % 3 == 0, 0.3, 0.0)[:, np.newaxis] * np.sin(4 * np.pi * times)[:, np.newaxis]
    )
    np.savez(
        path,
        times=times,
        rotation=chance.normal(0, 0.1, (count, 3)),
        acceleration=gravity + stride + chance.normal(0, 0.02, (count, 3)),
    )


def labelled(
    cluster: LocalCluster, what: str, turn: int, run: Path, recording: Path
) -> dict[str, Any]:
    """A row: the recording labelled once."""
    mode = ("jobs.train.mode=single",) if what == ALONE else ()
    began = time.perf_counter()
    found = cluster.job(
        "recognise", (f"jobs.recognise.run={run}", f"jobs.recognise.data={recording}", *mode)
    )
    row = {
        "what": what,
        "round": turn,
        "windows": found["windows"],
        "windows_per_second": round(found["windows_per_second"], 1),
        "labelling_seconds": round(found["seconds"], 1),
        "command_seconds": round(time.perf_counter() - began, 1),
        "labels_sha256": found["labels_sha256"],
    }
    print(f"round {turn}: {row}", file=sys.stderr, flush=True)
    return row


def summarize(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return both medians, their ratio by round, and whether all labels are the same."""

    def of(what: str) -> list[float]:
        return [row["windows_per_second"] for row in rows if row["what"] == what]

    ratios = [together / alone for together, alone in zip(of(TOGETHER), of(ALONE), strict=True)]
    return {
        "windows_per_second": {
            what: round(statistics.median(of(what)), 1) for what in (ALONE, TOGETHER)
        },
        "workers_over_single": round(statistics.median(ratios), 2),
        "same_bytes": len({row["labels_sha256"] for row in rows}) == 1,
    }


def main() -> int:
    """Train, measure, and print the object."""
    given = arguments("recognise", (__doc__ or "").splitlines()[0]).parse_args()
    if given.quick:
        seconds, rounds = (QUICK_SECONDS, QUICK_ROUNDS)
    else:
        seconds, rounds = (DAY_SECONDS, ROUNDS)
    with local_cluster(WORKERS) as cluster:
        cluster.job("train", TRAINING)
        (run,) = (cluster.folder / "runs").glob("*-train")
        recording = cluster.folder / "day.npz"
        record(recording, seconds)
        rows = [
            labelled(cluster, what, turn + 1, run, recording)
            for turn in range(rounds)
            for what in ((ALONE, TOGETHER) if turn % 2 == 0 else (TOGETHER, ALONE))
        ]
    publish("recognise", rows, summarize(rows), as_json=given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
