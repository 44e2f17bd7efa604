"""Settings of `spectral` by cross-validation, quickly.

A network in NumPy over statistics that are computed once.

`python -m experiments.spectral_settings` trains each setting on the folds of `fab job cv` with
three seeds, with the shipped recipe's schedule, weight decay and clipping; it reads nothing of the
test set. It ranks settings in a twentieth of the time; `fab job cv` then judges the best one as the
cluster trains it.
"""

import itertools
import statistics
import sys
import time
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.people import recordings
from benchmarks.report import arguments, publish
from cluster.jobs.schedule import learning_rate
from core.data.folds import folds_of
from core.inventory.training_sections import OneCycle
from experiments.linear_baseline import Statistics, statistics_of

PEAK = 0.002
DECAY = 0.01
CLIP = 1.0
BATCH = 100
MOMENTS = (0.9, 0.999)


@dataclass(frozen=True)
class Setting:
    """`hidden` 0 is none."""

    hidden: int = 64
    smoothing: float = 0.05
    dropout: float = 0.5
    epochs: int = 30


GRID = tuple(
    Setting(hidden, smoothing) for smoothing in (0.05, 0.2) for hidden in (0, 64, 128, 256)
)


class Adam:
    """AdamW over a few arrays, the gradient clipped as a whole."""

    def __init__(self, values: list[Statistics]) -> None:
        self.values = values
        self._count = 0
        self._first, self._second = ([np.zeros_like(value) for value in values] for _ in range(2))

    def step(self, gradients: list[Statistics], rate: float) -> None:
        """One update."""
        self._count += 1
        norm = float(np.sqrt(sum(float((each * each).sum()) for each in gradients)))
        fix = [1.0 - moment**self._count for moment in MOMENTS]
        for value, gradient, first, second in zip(
            self.values, gradients, self._first, self._second, strict=True
        ):
            cut = gradient * np.float32(CLIP / max(norm, CLIP))
            first += np.float32(1 - MOMENTS[0]) * (cut - first)
            second += np.float32(1 - MOMENTS[1]) * (cut * cut - second)
            change = (
                first
                / np.float32(fix[0])
                / (np.sqrt(second / np.float32(fix[1])) + np.float32(1e-8))
            )
            value -= np.float32(rate) * (change + np.float32(DECAY) * value)


def trained(
    x: Statistics, y: NDArray[np.int32], classes: int, setting: Setting, seed: int
) -> list[Statistics]:
    """Kernels, then biases, after all epochs."""
    random = np.random.default_rng(seed)
    widths = [x.shape[1], *([setting.hidden] if setting.hidden else []), classes]
    shapes = list(itertools.pairwise(widths))
    values = [
        (random.uniform(-1, 1, shape) * np.sqrt(6.0 / sum(shape))).astype(np.float32)
        for shape in shapes
    ]
    values += [np.zeros(shape[1], np.float32) for shape in shapes]
    optimizer = Adam(values)
    batches = len(x) // BATCH
    labels = (np.eye(classes) * (1 - setting.smoothing) + setting.smoothing / classes).astype(
        np.float32
    )
    for epoch in range(setting.epochs):
        order = random.permutation(len(x))
        for batch in range(batches):
            rows = order[batch * BATCH : (batch + 1) * BATCH]
            keep = np.ones((BATCH, 1), np.float32)
            if setting.hidden:
                kept = random.random((BATCH, setting.hidden)) >= setting.dropout
                keep = (kept / (1 - setting.dropout)).astype(np.float32)
            gradients = _gradient(values, x[rows], labels[y[rows]], keep)
            rate = learning_rate(
                OneCycle(), PEAK, epoch * batches + batch, setting.epochs * batches
            )
            optimizer.step(gradients, rate)
    return values


def answers(values: list[Statistics], x: Statistics) -> Statistics:
    """Logits (n, classes)."""
    half = len(values) // 2
    for place, (kernel, bias) in enumerate(zip(values[:half], values[half:], strict=True)):
        x = x @ kernel + bias
        if place < half - 1:
            x = np.maximum(x, 0)
        else:
            x = x
    return x


def _gradient(
    values: list[Statistics], x: Statistics, labels: Statistics, keep: Statistics
) -> list[Statistics]:
    hidden = len(values) == 4
    if hidden:
        below = np.maximum(x @ values[0] + values[2], 0) * keep
    else:
        below = x
    logits = below @ values[len(values) // 2 - 1] + values[-1]
    shares = np.exp(logits - logits.max(1, keepdims=True))
    wrong = (shares / shares.sum(1, keepdims=True) - labels) / np.float32(len(x))
    if not hidden:
        return [x.T @ wrong, wrong.sum(0)]
    back = (wrong @ values[1].T) * keep * (below > 0)
    return [x.T @ back, below.T @ wrong, back.sum(0), wrong.sum(0)]


def main() -> None:
    """Every setting of the grid."""
    parser = arguments(
        "spectral_settings", "Settings of `spectral` by cross-validation over the training people."
    )
    parser.add_argument("--data", help="recordings, as `fab job train --data` takes them")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    given = parser.parse_args()
    dataset = recordings(given.data).training_part()
    folds = folds_of(dataset.subjects(), given.folds, 0)
    classes = dataset.classes()
    every = np.arange(dataset.rows)
    parts = [statistics_of(dataset, fold.train, every) for fold in folds]
    rows = []
    for setting in GRID[:1] if given.quick else GRID:
        begin = time.monotonic()
        found = []
        for seed in given.seeds:
            accuracies = []
            for fold, part in zip(folds, parts, strict=True):
                values = trained(
                    part[fold.train], classes[fold.train], dataset.outputs, setting, seed
                )
                named = answers(values, part[fold.held_out]).argmax(1)
                accuracies.append(float((named == classes[fold.held_out]).mean()))
            found.append(statistics.fmean(accuracies))
        if len(found) > 1:
            spread = statistics.stdev(found)
        else:
            spread = None
        mean = statistics.fmean(found)
        rows.append({**asdict(setting), "mean": mean, "spread_over_seeds": spread, "seeds": found})
        print(
            f"{setting}: {mean:.4f}, {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True
        )
    best = max(rows, key=lambda row: row["mean"])
    publish("spectral_settings", rows, {"best": best, "folds": given.folds}, as_json=given.json)


if __name__ == "__main__":
    main()
