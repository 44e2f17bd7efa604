"""The chunks of the job `pi`, and the estimate from what they count."""

from collections.abc import Iterator
from math import pi, sqrt

import numpy as np
import pytest

from cluster.jobs.pi import chunk_items, estimate_of
from core.engine.runtime import trace
from core.engine.workers import Item
from core.ground.lazy import tf
from core.inventory import PiJob
from worker_node.monte_carlo import BLOCK_SAMPLES, UNDECIDED_BLOCK_SAMPLES


def chunks(job: PiJob) -> Iterator[Item]:
    return chunk_items(job, trace(lambda: tf.constant(0)))


def seeds_drawn_from(job: PiJob) -> list[tuple[int, int]]:
    """Return the seeds of every block of every chunk, two for each undecided point's block."""
    seeds = []
    for (seed, begin), size in (item.arguments for item in chunks(job)):
        starts = [*range(0, int(size), BLOCK_SAMPLES)]
        undecided = range(0, int(size), UNDECIDED_BLOCK_SAMPLES)
        starts += [start + k for start in undecided for k in (1, 2)]
        seeds += [(int(seed), int(begin) + start) for start in starts]
    return seeds


def drawn(seed: tuple[int, int]) -> tuple[int, ...]:
    tensor = tf.constant(seed, tf.int64)
    return tuple(tf.random.stateless_uniform([4], tensor, None, None, tf.int32).numpy())


@pytest.mark.parametrize("chunk_samples", [1, 1000, BLOCK_SAMPLES, BLOCK_SAMPLES + 1, 1_000_000])
def test_no_two_blocks_of_a_job_share_a_seed(chunk_samples: int) -> None:
    seeds = seeds_drawn_from(
        PiJob(samples=chunk_samples * 20 + 7, chunk_samples=chunk_samples, seed=5)
    )
    assert len(set(seeds)) == len(seeds)
    assert {seed for seed, _ in seeds} == {5}
    few = seeds[:60]
    assert len({drawn(seed) for seed in few}) == len(few)


def test_chunks_add_up_to_the_samples_also_in_a_very_large_job() -> None:
    job = PiJob(samples=10**7 + 3, chunk_samples=10**6)
    assert sum(int(item.arguments[1]) for item in chunks(job)) == 10**7 + 3
    assert [item.id for item in chunks(job)] == list(range(11))
    large = PiJob(samples=10**14, chunk_samples=10**9, seed=2**31 - 1)
    *_, last = (item for item in chunks(large))
    assert 10**14 <= int(last.arguments[0][1]) + 10**9 < 2**62
    assert last.arguments[0].dtype == np.int64


def test_estimate_and_its_standard_error() -> None:
    estimate, error = estimate_of(785, 1000)
    assert estimate == pytest.approx(3.14)
    assert error == pytest.approx(4 * sqrt(0.785 * 0.215 / 1000))
    assert estimate_of(7_853_981_634, 10**10)[1] == pytest.approx(
        sqrt(pi * (4 - pi) / 10**10), rel=1e-6
    )


@pytest.mark.parametrize(("inside", "expected"), [(0, 0.0), (3, 4.0)])
def test_nothing_or_everything_inside_claims_no_certainty(inside: int, expected: float) -> None:
    estimate, error = estimate_of(inside, 3)
    assert estimate == expected
    assert error == pytest.approx(4 * sqrt(pi / 4 * (1 - pi / 4) / 3))
