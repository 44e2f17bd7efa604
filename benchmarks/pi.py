"""Monte Carlo samples per second and core.

Our `count_inside` beside the thesis's expression, in one process.

The thesis draws all points of a task at once and averages in float32: `random_uniform([n, 2])`,
`pow`, `sqrt`, `cast`. It adds the two squares with `reduce_sum(pow(points, 2), 1)`, a sum over each
row: ours is compared with that. The same over the columns x and y, which is faster, stands beside
it. Everything on one thread, in turn, medians of processor time: other processes on the machine
count less that way.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import core.engine.environment  # noqa: F401  (before tensorflow)
from benchmarks.report import arguments, publish, tell
from worker_node.monte_carlo import BLOCK_SAMPLES, count_inside

import tensorflow as tf  # isort: skip

SIZES = {
    "full": (128 * BLOCK_SAMPLES, 25),
    "quick": (64 * BLOCK_SAMPLES, 11),
    "smoke": (BLOCK_SAMPLES, 1),
}
"""Samples of an estimate, and estimates of each variant."""


def thesis_columns(samples: int) -> Any:
    """The same estimate over the columns x and y, which the thesis does not do."""
    points = tf.random.uniform([samples, 2])
    distance = tf.sqrt(tf.pow(points[:, 0], 2.0) + tf.pow(points[:, 1], 2.0))
    return 4.0 * tf.reduce_mean(tf.cast(distance < 1.0, tf.float32))


def thesis_rows(samples: int) -> Any:
    """The thesis's expression: the squares of each row summed; the estimate, float32."""
    distance = tf.sqrt(tf.reduce_sum(tf.pow(tf.random.uniform([samples, 2]), 2.0), 1))
    return 4.0 * tf.reduce_mean(tf.cast(distance < 1.0, tf.float32))


def ours(samples: int) -> Any:
    """Our count, as an estimate too."""
    inside = count_inside(tf.constant([0, 0], tf.int64), tf.constant(samples, tf.int64))
    return 4.0 * tf.cast(inside, tf.float64) / samples


VARIANTS: dict[str, Callable[[int], Any]] = {
    "ours": ours,
    "thesis_columns": thesis_columns,
    "thesis_rows": thesis_rows,
}


def measure(samples: int, repeats: int) -> list[dict[str, Any]]:
    """Return a row for each variant: samples a second of processor time, and its last estimate."""
    functions = {name: _traced(variant, samples) for name, variant in VARIANTS.items()}
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    estimates = {
        name: float(function()) for name, function in functions.items()
    }  # the first call also sets up
    for _ in range(repeats):
        for name, function in functions.items():
            begin = time.process_time()
            estimates[name] = float(function())
            seconds[name].append(time.process_time() - begin)
    return [
        {
            "variant": name,
            "samples": samples,
            "samples_per_second": samples / statistics.median(seconds[name]),
            "estimate": estimates[name],
        }
        for name in functions
    ]


def _traced(variant: Callable[[int], Any], samples: int) -> Callable[[], Any]:
    traced: Callable[[], Any] = tf.function(
        lambda: variant(samples), autograph=False
    ).get_concrete_function()
    return traced


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """How many times the samples of the thesis's expression, which sums rows.

    By the other way of adding too.
    """
    speeds = {row["variant"]: row["samples_per_second"] for row in rows}
    by_way = {name: speeds["ours"] / speed for name, speed in speeds.items() if name != "ours"}
    return {"ours_over_thesis": by_way["thesis_rows"], "ours_over": by_way}


def main() -> None:
    """Measure and print the object."""
    given = arguments(
        "pi", "Monte Carlo samples per second and core, beside the thesis's expression."
    ).parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    rows = measure(*SIZES[given.size])
    for row in rows:
        tell(f"{row['variant']}: {row['samples_per_second'] / 1e6:.1f} M samples/s")
    publish("pi", rows, summarize(rows), given)


if __name__ == "__main__":
    main()
