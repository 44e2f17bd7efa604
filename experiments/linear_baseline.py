"""Logistic regression on the statistics of `spectral`, cross-validated over the training people.

`python -m experiments.linear_baseline` chooses the regularization by the folds of `fab job cv` and
reads nothing of the test set. `--look` then fits the chosen one on all training people and looks at
the test people: once, with nothing to choose after it.
"""

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from benchmarks.people import recordings, shares
from benchmarks.report import arguments, publish
from core.data import Dataset
from core.data.folds import folds_of
from core.models.network import build
from core.models.spectral import Spectral, SpectralModel
from core.models.tensorflow_operations import TensorFlowOperations
from worker_node.recordings import Standardization

import tensorflow as tf  # isort: skip

STRENGTHS = (0.001, 0.003, 0.01, 0.03)
"""scikit-learn's C, the inverse of the regularization."""
ITERATIONS = 300

Statistics = NDArray[np.float32]


def statistics_of(
    dataset: Dataset, train: NDArray[np.integer], rows: NDArray[np.integer]
) -> Statistics:
    """The statistics of `rows` as `spectral` has them, standardized over `train`."""
    network = build(
        SpectralModel(hidden=0),
        window_steps=dataset.window_steps,
        channels=dataset.channels,
        classes=dataset.outputs,
    )
    assert isinstance(network, Spectral)
    standardization = Standardization.of(dataset, train)
    blocks = standardization.blocks(dataset, train)
    vector = network.measured(network.initial(0), standardization.packed(), blocks)
    ops = TensorFlowOperations(network.unpack(tf.constant(vector)))
    found = [
        network.statistics(ops, tf.constant(block)).numpy()
        for block in standardization.blocks(dataset, rows)
    ]
    return np.concatenate(found)


def fitted(x: Statistics, y: NDArray[np.integer], strength: float) -> Any:
    """The regression."""
    return LogisticRegression(C=strength, max_iter=ITERATIONS).fit(x, y)


def main() -> None:
    """Cross-validate each strength, and with --look test the best one."""
    parser = arguments("linear_baseline", "Logistic regression on the statistics of `spectral`.")
    parser.add_argument("--data", help="recordings, as `fab job train --data` takes them")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--strengths", type=float, nargs="+", default=list(STRENGTHS))
    parser.add_argument(
        "--look", action="store_true", help="test the chosen one on the test people"
    )
    given = parser.parse_args()
    whole = recordings(given.data)
    dataset = whole.training_part()
    people = dataset.subjects()
    classes = dataset.classes()
    folds = folds_of(people, given.folds, 0)
    every = np.arange(dataset.rows)
    parts = [statistics_of(dataset, fold.train, every) for fold in folds]
    rows: list[dict[str, Any]] = []
    for strength in given.strengths[:1] if given.quick else given.strengths:
        right = np.zeros(dataset.rows, bool)
        accuracies = []
        for fold, found in zip(folds, parts, strict=True):
            model = fitted(found[fold.train], classes[fold.train], strength)
            right[fold.held_out] = model.predict(found[fold.held_out]) == classes[fold.held_out]
            accuracies.append(float(right[fold.held_out].mean()))
        mean = float(np.mean(accuracies))
        rows.append(
            {
                "strength": strength,
                "mean": mean,
                "folds": accuracies,
                "by_person": shares(right, people),
            }
        )
        print(f"C {strength:g}: {mean:.4f} over {len(folds)} folds", file=sys.stderr, flush=True)
    chosen = max(rows, key=lambda row: float(row["mean"]))["strength"]
    summary: dict[str, Any] = {"chosen": chosen, "statistics": parts[0].shape[1], "test": None}
    if given.look:
        summary["test"] = _test(whole, every, float(chosen))
    publish("linear_baseline", rows, summary, as_json=given.json)


def _test(whole: Dataset, train: NDArray[np.integer], strength: float) -> dict[str, Any]:
    rows = np.arange(whole.train_windows, whole.rows)
    classes = whole.classes()
    model = fitted(statistics_of(whole, train, train), classes[train], strength)
    right = model.predict(statistics_of(whole, train, rows)) == classes[rows]
    return {"accuracy": float(right.mean()), "by_person": shares(right, whole.subjects()[rows])}


if __name__ == "__main__":
    main()
