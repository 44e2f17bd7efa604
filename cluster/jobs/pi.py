"""The job `pi`: Monte Carlo estimation of pi, which is also how the nodes are calibrated.

A point (x, y) with coordinates uniform in [0, 1) falls inside the quarter circle with probability
pi / 4. Hits are counted as integers: float32 sums stop growing at 2^24 = 16.7 million.
"""

from collections.abc import Iterator, Mapping
from math import pi, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

import core.engine.environment  # noqa: F401  (before tensorflow)
from cluster.jobs.busy import WorkerSpeeds, keep_calibration
from cluster.jobs.lifecycle import Job
from cluster.jobs.modes import int64
from cluster.jobs.run_folder import RunFolder
from cluster.jobs.run_logs import sabotage
from cluster.jobs.session import Session
from core.engine.runtime import Traced, trace
from core.engine.workers import Item
from core.inventory import PiJob
from core.status.events import Advanced, Calibrated, PointsDrawn, StageBegan
from worker_node.monte_carlo import BLOCK_SAMPLES, count_inside

FUNCTION = "pi"
FIRST_REPLY_SECONDS = 120.0


def chunk_items(job: PiJob, function: Traced) -> Iterator[Item]:
    """The work: chunks of points, each a random stream of its own whichever worker draws it."""
    blocks_of_chunk = -(-job.chunk_samples // BLOCK_SAMPLES)
    for chunk in range(-(-job.samples // job.chunk_samples)):
        size = min(job.chunk_samples, job.samples - chunk * job.chunk_samples)
        # Streams never meet: a chunk starts where the one before it ends, and every block's seed is
        # a key of its own.
        seed = np.array([job.seed, chunk * blocks_of_chunk * BLOCK_SAMPLES], np.int64)
        yield Item(chunk, function, (seed, np.int64(size)))


def estimate_of(inside: int, samples: int) -> tuple[float, float]:
    """Return the estimate of pi and its standard error, 4 * sqrt(p (1 - p) / n).

    Here p is the share inside. With nothing or everything inside, p is taken at the truth: an error
    of 0 would claim certainty.
    """
    share = inside / samples
    if 0.0 < share < 1.0:
        spread = share
    else:
        spread = pi / 4
    return 4.0 * share, 4.0 * sqrt(spread * (1.0 - spread) / samples)


class PiRun(Job):
    """One run of the job."""

    name = "pi"

    inside = samples = 0
    speeds: Mapping[str, float] | None = None

    @override
    def prepare(self) -> None:
        """Refuse nothing: the inventory says it all."""

    def run(self, folder: RunFolder) -> None:
        """Count, and keep the calibration.

        Raises ClusterError; when cancelled it ends with what there is by then.
        """
        job = self.inventory.jobs.pi
        with Session(self.inventory, self.cancel, self.metrics, self.display) as session:
            function = trace(
                count_inside,
                int64(2),
                int64(),
                name=FUNCTION,
            )
            saboteur, _ = sabotage(self.chaos, folder.path, len(session.places), self.stream.emit)
            dispatcher = session.dispatch(FIRST_REPLY_SECONDS, saboteur)
            speeds = WorkerSpeeds()
            chunks = -(-job.samples // job.chunk_samples)
            self.stream.emit(StageBegan("pi", chunks, "chunks"))
            for done, outcome in enumerate(
                dispatcher.run(chunk_items(job, function), lambda: self.cancel.asked), 1
            ):
                size = int(outcome.item.arguments[1])
                self.inside += int(outcome.value)
                self.samples += size
                speeds.add(outcome.task, size, outcome.seconds)
                so_far = estimate_of(self.inside, self.samples)
                self.stream.emit(
                    PointsDrawn(outcome.task, size, outcome.seconds, self.samples, *so_far)
                )
                self.stream.emit(Advanced(done))
        self.speeds = speeds.by_name()
        if self.speeds:
            self.stream.emit(Calibrated(self.speeds))
            keep_calibration(Path(self.inventory.runs), self.inventory.cluster, self.speeds)
        if self.samples:
            estimate, error = estimate_of(self.inside, self.samples)
            speeds_text = ", ".join(
                f"{task} {speed / 1e6:.1f} M/s" for task, speed in self.speeds.items()
            )
            self.display.say(
                f"pi: {estimate:.9f} +- {error:.9f} from {self.samples:,} samples"
                + (speeds_text and f"; {speeds_text}")
            )

    def complete(self) -> bool:
        """Whether every sample was drawn."""
        return self.samples == self.inventory.jobs.pi.samples

    def result(self) -> dict[str, Any]:
        """Return the result so far."""
        job = self.inventory.jobs.pi
        so_far = estimate_of(self.inside, self.samples) if self.samples else None
        return {
            **super().result(),
            "seed": job.seed,
            "planned_samples": job.samples,
            "samples": self.samples,
            "inside": self.inside,
            "estimate": so_far and so_far[0],
            "standard_error": so_far and so_far[1],
            "samples_per_second": self.speeds or {},
        }
