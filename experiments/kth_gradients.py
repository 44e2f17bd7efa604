"""Why KTH's sync at a rate of 0.5 ended at one class: `python -m experiments.kth_gradients`.

The network of `experiments.kth` takes some hundred updates in one process, with their optimizer at
their three rates, with their gradients cut to length 1, and with plain gradient descent at the same
rate. Of each update: loss, length of the gradient and of the step, the largest weight, and the
share of the LSTMs' gates that stand within 1 % of open or shut, where their own gradient is at most
a hundredth. At the end: how many held-out windows go to one class.
"""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from benchmarks.report import arguments, publish
from core.data import Dataset, find_source, prepare
from core.data.synthetic_hhar import write_hhar
from core.models.kth import Kth, KthModel
from core.models.lstm import block_forward
from core.models.network import Network, build
from core.user_cache import user_cache
from deploy.common.project import ROOT
from experiments.kth import BATCH, PEOPLE, STRIDE
from worker_node.recordings import Standardization

UPDATES = 500
QUICK_UPDATES = 12
EVALUATED = 1000
SHOWN = (1, 2, 5, 10, 20, 50, 100, 200, 500)
L2 = 0.0015
NEARLY = 0.01
SEED = tf.constant([0, 0], tf.int32)


@dataclass(frozen=True)
class Setting:
    """An optimizer, its rate, and the length that gradients are cut to."""

    optimizer: str
    learning_rate: float
    clip_norm: float | None = None


SETTINGS = (
    Setting("adam", 0.0025),
    Setting("adam", 0.00025),
    Setting("adam", 0.5),
    Setting("adam", 0.5, clip_norm=1.0),
    Setting("sgd", 0.5),
    Setting("sgd", 0.5, clip_norm=1.0),
)


def main() -> None:
    """Train with every setting and print the object."""
    parser = arguments(
        "kth_gradients", "Losses, gradients and gates of KTH's network at their learning rates."
    )
    parser.add_argument(
        "--data", type=Path, help="a Phones_accelerometer.csv; else invented recordings"
    )
    given = parser.parse_args()
    dataset = _dataset(given.data)
    if given.quick:
        updates = QUICK_UPDATES
    else:
        updates = UPDATES
    found = []
    for setting in SETTINGS:
        found.append(row(dataset, setting, updates))
        print(f"{setting}: {found[-1]['held_out_accuracy']:.3f}", file=sys.stderr, flush=True)
    if given.data is None:
        data = "invented"
    else:
        data = given.data.name
    publish(
        "kth_gradients",
        found,
        {"batch": BATCH, "updates": updates, "data": data},
        as_json=given.json,
    )


def _dataset(path: Path | None) -> Dataset:
    cache = user_cache() / "prepared"
    if path is None:
        path = ROOT / ".cache" / "kth-gradients" / "Phones_accelerometer.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_hhar(path, people=PEOPLE, devices=4, seconds=5.0)
    source = find_source(str(path), {}, ROOT, ROOT)
    return prepare(
        source, window_steps=200, window_stride=STRIDE, cache=cache, options={"split": "random"}
    )


def row(dataset: Dataset, setting: Setting, updates: int) -> dict[str, Any]:
    """One training, update by update."""
    network = build(KthModel(), window_steps=200, channels=3, classes=len(dataset.labels))
    train = np.arange(dataset.train_windows)
    standardization = Standardization.of(dataset, train)
    scaled = _scaled(dataset, standardization)
    gradient = _gradient(network)
    step = _OPTIMIZERS[setting.optimizer]()
    order = np.random.Generator(np.random.Philox(0)).permutation(train)
    vector = network.initial(0)
    curve = []
    for number in range(1, updates + 1):
        batch = order[np.arange(number * BATCH, (number + 1) * BATCH) % len(order)]
        windows = scaled(batch)
        loss, slope = (
            found.numpy() for found in gradient(vector, windows, dataset.classes()[batch])
        )
        length = float(np.linalg.norm(slope))
        if setting.clip_norm is not None and length > setting.clip_norm:
            slope = slope * np.float32(setting.clip_norm / length)
        change = step(slope, setting.learning_rate, number)
        vector = vector - change
        if number in SHOWN or number == updates:
            curve.append(
                _look(
                    network,
                    vector,
                    windows,
                    float(loss),
                    length,
                    float(np.linalg.norm(change)),
                    number,
                )
            )
        if not np.isfinite(vector).all():
            break
    return {
        "optimizer": setting.optimizer,
        "learning_rate": setting.learning_rate,
        "clip_norm": setting.clip_norm,
        **_evaluated(network, vector, dataset, scaled),
        "curve": curve,
    }


Scaled = Callable[[NDArray[Any]], NDArray[np.float32]]


def _scaled(dataset: Dataset, standardization: Standardization) -> Scaled:
    windows = dataset.windows()
    return lambda rows: ((windows[rows] - standardization.mean) / standardization.deviation).astype(
        np.float32
    )


def _gradient(network: Network) -> Any:
    """Trace (vector, windows, classes) to the mean loss and its gradient, L2 included."""
    decayed = np.concatenate(
        [
            np.full(slot.spec.size, L2 if slot.spec.decayed else 0.0, np.float32)
            for slot in network.layout.slots
        ]
    )

    @tf.function
    def of(flat: tf.Tensor, windows: tf.Tensor, classes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(flat)
            logits = network.apply(network.unpack(flat), windows, training=True, seed=SEED).logits
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(classes, logits))
        return loss, tape.gradient(loss, flat) + decayed * flat

    return of


Step = Callable[[NDArray[np.float32], float, int], NDArray[np.float32]]


def _adam() -> Step:
    """Adam's step, https://arxiv.org/abs/1412.6980, with the defaults of the paper."""
    moments: list[Any] = [0.0, 0.0]

    def step(slope: NDArray[np.float32], rate: float, number: int) -> NDArray[np.float32]:
        moments[0] = (0.9 * moments[0] + 0.1 * slope).astype(np.float32)
        moments[1] = (0.999 * moments[1] + 0.001 * slope**2).astype(np.float32)
        mean = moments[0] / (1 - 0.9**number)
        square = moments[1] / (1 - 0.999**number)
        found: NDArray[np.float32] = (rate * mean / (np.sqrt(square) + 1e-8)).astype(np.float32)
        return found

    return step


def _sgd() -> Step:
    return lambda slope, rate, number: (rate * slope).astype(np.float32)


_OPTIMIZERS: dict[str, Callable[[], Step]] = {"adam": _adam, "sgd": _sgd}


def _look(
    network: Network,
    vector: NDArray[np.float32],
    windows: NDArray[np.float32],
    loss: float,
    length: float,
    change: float,
    number: int,
) -> dict[str, Any]:
    return {
        "update": number,
        "loss": _rounded(loss),
        "gradient_length": _rounded(length),
        "step_length": _rounded(change),
        "largest_weight": _rounded(float(np.abs(vector).max())),
        "gates_at_an_end": _rounded(saturated(network, vector, windows)),
    }


def _rounded(value: float) -> float | None:
    if math.isfinite(value):
        return float(f"{value:.4g}")
    return None


def saturated(network: Network, vector: NDArray[np.float32], windows: NDArray[np.float32]) -> float:
    """Share of the input, forget and output gates of both LSTMs that are nearly 0 or 1."""
    assert isinstance(network, Kth)
    parameters = network.unpack(tf.constant(vector))
    hidden = tf.nn.relu(
        tf.transpose(tf.constant(windows), [1, 0, 2]) @ parameters["projection/kernel"]
        + parameters["projection/bias"]
    )
    shares = []
    for layer in ("layer0", "layer1"):
        run = block_forward(hidden, parameters[f"{layer}/kernel"], parameters[f"{layer}/bias"])
        gates = tf.stack([run.i, run.f, run.o]).numpy()
        shares.append(float(((gates < NEARLY) | (gates > 1 - NEARLY)).mean()))
        hidden = run.h
    return float(np.mean(shares))


def _evaluated(
    network: Network, vector: NDArray[np.float32], dataset: Dataset, scaled: Scaled
) -> dict[str, Any]:
    """On windows that were not trained on."""
    rows = dataset.train_windows + np.arange(min(EVALUATED, dataset.test_windows))
    logits = network.apply(
        network.unpack(tf.constant(vector)), tf.constant(scaled(rows)), training=False, seed=SEED
    ).logits.numpy()
    named = logits.argmax(1)
    return {
        "held_out_accuracy": round(float((named == dataset.classes()[rows]).mean()), 4),
        "share_of_the_commonest_answer": round(float(np.bincount(named).max() / len(named)), 4),
    }


if __name__ == "__main__":
    main()
