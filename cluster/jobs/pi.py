"""The job `pi`: Monte Carlo estimation of pi, which is also how the nodes are calibrated.

A point (x, y) with coordinates uniform in [0, 1) falls inside the quarter circle with probability pi / 4. Hits are
counted as integers: float32 sums stop growing at 2^24 = 16.7 million.
"""

import time
from collections.abc import Iterator
from math import pi, sqrt
from pathlib import Path
from typing import Any

import numpy as np

import cluster.engine.environment  # noqa: F401  (before tensorflow)
from cluster.engine.chaos import ChaosPlan
from cluster.engine.messages import Item
from cluster.engine.runtime import trace
from cluster.inventory import Inventory, PiJob
from cluster.jobs.cancel import Cancel
from cluster.jobs.chaos_log import sabotage
from cluster.jobs.coordinator_metrics import CoordinatorMetrics
from cluster.jobs.job_metrics import JobMetrics, PiMetrics
from cluster.jobs.progress import Display, Terminal
from cluster.jobs.run_folder import RunFolder, keep_calibration
from cluster.jobs.session import Session
from cluster.status.events import Advanced, Calibrated, PointsDrawn, StageBegan, Stream
from worker_node.monte_carlo import BLOCK_SAMPLES, count_inside

import tensorflow as tf  # isort: skip

FUNCTION = "pi"
FIRST_REPLY_SECONDS = 120.0


def chunk_items(job: PiJob) -> Iterator[Item]:
    """The work: chunks of points, each a random stream of its own whichever worker draws it."""
    blocks_of_chunk = -(-job.chunk_samples // BLOCK_SAMPLES)
    for chunk in range(-(-job.samples // job.chunk_samples)):
        size = min(job.chunk_samples, job.samples - chunk * job.chunk_samples)
        # Streams never meet: a chunk starts where the one before it ends, and every block's seed is a key of its own.
        seed = np.array([job.seed, chunk * blocks_of_chunk * BLOCK_SAMPLES], np.int64)
        yield Item(chunk, FUNCTION, (seed, np.int64(size)))


def estimate_of(inside: int, samples: int) -> tuple[float, float]:
    """Estimate of pi and its standard error, 4 * sqrt(p (1 - p) / n) with the share p that was found inside.

    With nothing or everything inside, p is taken at the truth: an error of 0 would claim certainty.
    """
    share = inside / samples
    spread = share if 0.0 < share < 1.0 else pi / 4
    return 4.0 * share, 4.0 * sqrt(spread * (1.0 - spread) / samples)


class PiRun:
    """One run of the job."""

    name = "pi"

    def __init__(
        self, inventory: Inventory, display: Display, cancel: Cancel, chaos: ChaosPlan | None = None
    ) -> None:  # fmt: skip
        """`chaos`: faults to inject."""
        self.chaos = chaos
        self.inventory, self.job = inventory, inventory.jobs.pi
        self.display, self.cancel = display, cancel
        self.begin = time.monotonic()
        self.inside = self.samples = 0
        self.speeds: dict[str, float] = {}
        self.metrics = CoordinatorMetrics(inventory.shared_folder, display.busy)
        registry = self.metrics.registry
        of_job = JobMetrics(registry, membership=lambda: self.metrics.membership)
        of_pi = PiMetrics(registry, self.job.samples)
        self.stream = Stream(self.metrics.metered(of_job.consume, of_pi.consume), Terminal(display).consume)

    def prepare(self) -> None:
        """Nothing: the inventory says it all."""

    def run(self, folder: RunFolder) -> None:
        """Count, and keep the calibration. Raises ClusterError; when cancelled it ends with what there is by then."""
        job = self.job
        with Session(self.inventory, self.cancel, self.metrics, self.display) as session:
            function = trace(count_inside, tf.TensorSpec([2], tf.int64), tf.TensorSpec([], tf.int64))
            saboteur, _ = sabotage(self.chaos, folder.path, len(session.places), self.stream.emit)
            dispatcher = session.dispatch({FUNCTION: function}, FIRST_REPLY_SECONDS, saboteur)
            drawn: dict[int, int] = {}
            busy: dict[int, float] = {}
            chunks = -(-job.samples // job.chunk_samples)
            self.stream.emit(StageBegan("pi", chunks, "chunks"))
            for done, outcome in enumerate(dispatcher.run(chunk_items(job), lambda: self.cancel.asked), 1):
                size = int(outcome.item.arguments[1])
                self.inside += int(outcome.value)
                self.samples += size
                # The first chunk of a worker also instantiates the graph there: it says nothing about speed.
                if outcome.task in drawn:
                    drawn[outcome.task] += size
                    busy[outcome.task] += outcome.seconds
                else:
                    drawn[outcome.task], busy[outcome.task] = 0, 0.0
                so_far = estimate_of(self.inside, self.samples)
                self.stream.emit(PointsDrawn(outcome.task, size, outcome.seconds, self.samples, *so_far))
                self.stream.emit(Advanced(done))
        self.speeds = {f"worker:{task}": drawn[task] / busy[task] for task in sorted(drawn) if busy[task]}
        if self.speeds:
            self.stream.emit(Calibrated(self.speeds))
            keep_calibration(Path(self.inventory.runs), self.inventory.cluster, self.speeds)
        if self.samples:
            estimate, error = estimate_of(self.inside, self.samples)
            speeds = ", ".join(f"{task} {speed / 1e6:.1f} M/s" for task, speed in self.speeds.items())
            self.display.say(
                f"pi: {estimate:.9f} +- {error:.9f} from {self.samples:,} samples" + (speeds and f"; {speeds}")
            )

    def complete(self) -> bool:
        """Whether every sample was drawn."""
        return self.samples == self.job.samples

    def result(self) -> dict[str, Any]:
        """What there is so far."""
        so_far = estimate_of(self.inside, self.samples) if self.samples else None
        return {
            "cluster": self.inventory.cluster,
            "workers": len(self.inventory.of_role("worker")),
            "ps": len(self.inventory.of_role("ps")),
            "seed": self.job.seed,
            "planned_samples": self.job.samples,
            "samples": self.samples,
            "inside": self.inside,
            "estimate": so_far and so_far[0],
            "standard_error": so_far and so_far[1],
            "samples_per_second": self.speeds,
            "elapsed_seconds": time.monotonic() - self.begin,
        }
