"""What staleness does to a large network.

`python -m experiments.staleness` trains with gradients of old parameters.

As sixteen equal workers would push them, one after the other: each gradient is computed at the
parameters of `--workers` - 1 updates ago and applied by the shard of `mode: async`, on this
process's own device, with `staleness_power` 0 (plain) and 1 (the default). The same order and the
same stale parameters on every machine, which a cluster of sixteen processes on two cores would not
give. The learning rate is constant: a schedule that ends low would hide the harm.
"""

import os
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.report import arguments, publish
from cluster.jobs.fit import Plan
from cluster.jobs.modes.mode import optimizer_of
from core.data import find_source, prepare
from core.data.source import PROJECT_ROOT
from core.engine.devices import HOST
from core.engine.runtime import trace
from core.inventory.training import TrainJob
from core.models.network import build
from core.user_cache import user_cache
from ps_node.shard import VectorState
from ps_node.shards import Header, ParameterShards
from worker_node.gradient import GradientOfBatch
from worker_node.recordings import Standardization, WorkerWindows

import tensorflow as tf  # isort: skip

PLAIN = {
    "optimizer": {"name": "adam", "learning_rate": 0.002},
    "clip_norm": None,
    "label_smoothing": 0.0,
}

UPDATES = 222
QUICK_UPDATES = 60
"""Quick trains the same network until the harm shows, the 51st to the 60th update, and no longer.
"""

GUESSING_TIMES = 5.0
"""A mean loss of this many times that of guessing ends a run as diverged, as the job does."""


def main() -> None:
    """Train with both powers and print the object."""
    parser = arguments("staleness", "Losses of asynchronous training with many workers.")
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument(
        "--updates", type=int, help=f"default {UPDATES} (74 are an epoch), quick {QUICK_UPDATES}"
    )
    parser.add_argument(
        "--plain", action="store_true", help="Adam alone: no clipping, decay or label smoothing"
    )
    parser.add_argument("--powers", type=float, nargs="+", default=[0.0, 1.0])
    given = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    updates = given.updates or (QUICK_UPDATES if given.quick else UPDATES)
    if given.plain:
        recipe = PLAIN
    else:
        recipe = {}
    rows = [trained(power, given.workers, given.hidden, updates, recipe) for power in given.powers]
    summary = {
        "workers": given.workers,
        "updates": updates,
        "last_loss": {str(row["staleness_power"]): row["losses"][-1] for row in rows},
    }
    publish("staleness", rows, summary, as_json=given.json)


def _job(power: float, hidden: int, recipe: Mapping[str, Any]) -> TrainJob:
    return TrainJob.model_validate(
        {
            "model": {"name": "thesis", "hidden": hidden},
            "schedule": {"name": "constant"},
            "staleness_power": power,
            "slots": 4,
            **recipe,
        }
    )


def _losses(
    batches: Sequence[Any],
    workers: int,
    highest: float,
    compute: Callable[..., Any],
    push: Callable[..., Any],
    pull: Callable[[], Any],
) -> list[float]:
    """Train each batch with the parameters of `workers` updates ago; stop beyond `highest`."""
    seen: deque[Any] = deque(maxlen=workers)
    losses: list[float] = []
    for update in batches:
        seen.append(pull())
        old, statistics, versions = seen[0]
        seed = tf.constant([0, 4 * update.id])
        loss, change, new = compute(old, statistics, tf.constant(update.rows[0]), seed)
        losses.append(float(loss))
        push(change, new, np.int64(update.id), versions)
        if not np.isfinite(losses[-1]) or losses[-1] > highest:
            break
    return losses


def trained(
    power: float, workers: int, hidden: int, updates: int, recipe: Mapping[str, Any]
) -> dict[str, Any]:
    """Mean loss over each ten updates, the first `workers` of which see fresh parameters."""
    source = find_source(None, os.environ, PROJECT_ROOT, user_cache())
    data = prepare(source, cache=user_cache())
    job = _job(power, hidden, recipe)
    network = build(
        job.model,
        window_steps=data.window_steps,
        channels=data.channels,
        classes=len(data.labels),
        keep_probability=1.0,
    )
    shards = ParameterShards(
        network.layout,
        VectorState(network.initial(0)),
        optimizer_of(job.optimizer),
        [HOST],
        staleness_power=power,
    )
    windows = WorkerWindows(data)
    gradient_of = GradientOfBatch(network, job)
    rows = np.arange(data.train_windows, dtype=np.int32)
    packed = Standardization.of(data, rows).packed()

    def gradient(trained: Any, statistics: Any, chosen: Any, seed: Any) -> Any:
        inputs, classes = windows.gather(chosen, tf.constant(packed))
        batch = gradient_of(trained, statistics, inputs, classes, seed)
        return batch.loss, batch.gradient, batch.statistics

    size = network.layout.trained_size
    untrained = network.layout.statistics_size
    compute = trace(
        gradient,
        tf.TensorSpec([size]),
        tf.TensorSpec([untrained]),
        tf.TensorSpec([job.batch_size], tf.int32),
        tf.TensorSpec([2], tf.int32),
    )
    push = trace(
        lambda values, new, *header: shards.push(values, new, Header(*header)).staleness,
        tf.TensorSpec([size]),
        tf.TensorSpec([untrained]),
        tf.TensorSpec([], tf.int64),
        tf.TensorSpec([]),
        tf.TensorSpec([1], tf.int64),
    )
    pull = trace(shards.pull)
    plan = Plan(rows, job.batch_size, -(-updates // (len(rows) // job.batch_size)), 0, 0)
    batches = [update for epoch in range(plan.epochs) for update in plan.fresh(epoch)][:updates]
    highest = GUESSING_TIMES * np.log(len(data.labels))

    def applied(change: Any, new: Any, update: np.int64, versions: Any) -> None:
        push(change, new, update, np.float32(job.optimizer.learning_rate), versions)

    losses = _losses(batches, workers, highest, compute, applied, pull)
    means = [float(np.mean(losses[k : k + 10])) for k in range(0, len(losses), 10)]
    ends = f"{means[0]:.3f} -> {means[-1]:.3f}"
    print(f"power {power}: {ends} after {len(losses)} updates", file=sys.stderr, flush=True)
    return {
        "staleness_power": power,
        "hidden": hidden,
        "clip_norm": job.clip_norm,
        "optimizer": job.optimizer.name,
        "dataset": data.name,
        "updates": len(losses),
        "losses": means,
        "highest": max(means),
    }


if __name__ == "__main__":
    main()
