"""What a service measures as drift where windows are as in the training, and where they are not.

And what that costs.

`python -m experiments.drift EXPORT` takes the test windows of the recordings that the export was
trained on. Each row is a way in which a client gets it wrong, with the two figures, and the
accuracy that they stand for. The cost is the time of the measure beside that of the model, one
thread each, in turn.
"""

import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import arguments, publish
from core.data import Dataset, find_source, prepare
from core.data.filters import CHANNELS
from core.data.source import PROJECT_ROOT
from core.errors import ClusterError
from core.exported import Model, open_model
from core.user_cache import user_cache
from recognise.service.drift import LEAST_WINDOWS, MOST_WINDOWS, Recent

Windows = NDArray[np.float32]
Change = Callable[[Windows], Windows]
STANDARD_GRAVITY = 9.80665
ACCELERATIONS = (0, 1, 2, 6, 7, 8)
ROTATIONS = (3, 4, 5)
BATCHES = (1, 64, 512)
ROUNDS = 60
QUICK_ROUNDS = 5


def scaled(channels: tuple[int, ...], factor: float) -> Change:
    """These channels times `factor`."""
    factors = np.ones(len(CHANNELS), np.float32)
    factors[list(channels)] = factor
    return lambda windows: windows * factors


def noisy(windows: Windows) -> Windows:
    """With white noise of 0.5 g in each acceleration."""
    noise = np.zeros_like(windows)
    drawn = np.random.default_rng(0).normal(0, 0.5, (*windows.shape[:2], len(ACCELERATIONS)))
    noise[..., list(ACCELERATIONS)] = drawn
    return windows + noise


def halved(windows: Windows) -> Windows:
    """As if 100 Hz were sent for 50."""
    return windows[:, : windows.shape[1] // 2].repeat(2, axis=1)


CHANGES: Mapping[str, Change] = {
    "as recorded": lambda windows: windows,
    "m/s2 for g": scaled(ACCELERATIONS, STANDARD_GRAVITY),
    "degrees for radians": scaled(ROTATIONS, 180 / np.pi),
    "upside down": scaled((0, 1, 3, 4, 6, 7), -1),
    "noise of 0.5 g": noisy,
    "x and y exchanged": lambda windows: windows[..., [1, 0, 2, 4, 3, 5, 7, 6, 8]],
    "no gravity in the total": lambda windows: windows[..., [0, 1, 2, 3, 4, 5, 0, 1, 2]],
    "no gyroscope": scaled(ROTATIONS, 0),
    "100 Hz for 50": halved,
}


def recordings(named: str | None) -> Dataset:
    """The prepared windows. Raises ClusterError without recordings."""
    return prepare(
        find_source(named, os.environ, PROJECT_ROOT, user_cache()), cache=user_cache() / "prepared"
    )


def row_of(name: str, model: Model, windows: Windows, classes: NDArray[np.int32]) -> dict[str, Any]:
    """The figures after these windows, at most the last thousand; few ones count several times."""
    repeats = -(-LEAST_WINDOWS // len(windows))
    windows, classes = (
        np.concatenate([one] * repeats)[-MOST_WINDOWS:] for one in (windows, classes)
    )
    logits = model.logits(windows)
    recent = Recent(model.description)
    recent.add(windows, logits)
    found = recent.figures()
    assert found is not None
    farthest = max(found.distance, key=lambda channel: found.distance[channel])
    return {
        "name": name,
        "low_confidence": round(found.low_confidence, 3),
        "distance": round(found.distance[farthest], 2),
        "channel": farthest,
        "accuracy": round(float((logits.argmax(axis=1) == classes).mean()), 3),
    }


def greatest(name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The greatest of both figures among these rows, each of another one of them."""
    return {
        "name": name,
        "low_confidence": max(row["low_confidence"] for row in rows),
        "distance": max(row["distance"] for row in rows),
    }


def costs(model: Model, windows: Windows, rounds: int) -> dict[str, Any]:
    """By the size of a request: milliseconds of the measure, and its share of the model's time."""
    recent = Recent(model.description)
    found = {}
    for count in BATCHES:
        given = np.resize(windows, (count, *windows.shape[1:]))
        logits = model.logits(given)
        shares = []
        measured = []
        for _ in range(rounds):
            begun = time.perf_counter()
            model.logits(given)
            middle = time.perf_counter()
            recent.add(given, logits)
            measured.append(time.perf_counter() - middle)
            shares.append(measured[-1] / (middle - begun))
        found[str(count)] = {
            "milliseconds": round(1e3 * statistics.median(measured), 3),
            "share_of_model": round(statistics.median(shares), 4),
        }
    return found


def main() -> int:
    """Measure and print; status 2 for an export of other windows."""
    parser = arguments(
        "drift", "The drift that a service measures, by what is wrong with the windows."
    )
    parser.add_argument(
        "export", type=Path, help="a folder that `fab export` wrote, trained on HAPT"
    )
    parser.add_argument("--data", help="the recordings, as `fab job train --data` takes them")
    given = parser.parse_args()
    try:
        model = open_model(given.export)
        dataset = recordings(given.data)
        if (
            model.description.input.channels != CHANNELS
            or dataset.labels != model.description.labels
        ):
            raise ClusterError(f"{given.export}: expected an export trained on {dataset.source}")
    except ClusterError as problem:
        print(problem, file=sys.stderr)
        return 2
    test = slice(dataset.train_windows, None)
    order = np.random.default_rng(0).permutation(dataset.test_windows)
    windows, classes, people = (
        np.asarray(values[test])[order]
        for values in (dataset.windows(), dataset.classes(), dataset.subjects())
    )
    rows = [row_of(name, model, change(windows), classes) for name, change in CHANGES.items()]
    each = [people == person for person in np.unique(people)]
    alone = [person & (classes == one) for person in each for one in np.unique(classes[person])]
    for name, groups in (("one person", each), ("one person's one activity", alone)):
        rows.append(
            greatest(
                name, [row_of(name, model, windows[group], classes[group]) for group in groups]
            )
        )
    cost = costs(model, windows, QUICK_ROUNDS if given.quick else ROUNDS)
    publish("drift", rows, {"cost": cost}, as_json=given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
