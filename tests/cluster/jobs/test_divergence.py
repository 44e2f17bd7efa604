"""Divergence is a loss that rises and stays, not a loss that is high."""

from collections.abc import Sequence

import numpy as np
import pytest

from cluster.jobs.divergence import LossCourse

GUESSING = 2.3


def said(epochs: Sequence[Sequence[float]]) -> list[bool]:
    course = LossCourse(GUESSING)
    return [course.diverged(epoch) is not None for epoch in epochs]


def epochs_of(begin: float, end: float, count: int, noise: float = 0.3) -> list[list[float]]:
    """Losses from `begin` to `end`, geometrically, of forty batches an epoch."""
    random = np.random.default_rng(1)
    losses = np.geomspace(begin, end, 40 * count) * (
        1.0 + noise * random.uniform(-1, 1, 40 * count)
    )
    return [list(map(float, epoch)) for epoch in losses.reshape(count, 40)]


@pytest.mark.parametrize(
    "epochs",
    [
        epochs_of(200.0, 0.5, 6),
        epochs_of(3000.0, 20.0, 30),
        [[150.0, 60.0, *[110.0] * 38], *epochs_of(105.0, 0.5, 8, 0.0)],  # a lucky second batch
        [
            [2.3, *np.geomspace(900.0, 30.0, 39)],
            *epochs_of(28.0, 0.5, 4, 0.0),
        ],  # a spike from which it recovers
        epochs_of(2.3, 2.3, 5),
        epochs_of(2.3, 8.0, 5),
        [[1.0]] * 3,
    ],
)
def test_a_loss_that_falls_or_is_low_is_learning(epochs: Sequence[Sequence[float]]) -> None:
    assert not any(said(epochs))


@pytest.mark.parametrize(
    "epochs",
    [
        [[2.3, *[400.0] * 39]],
        [[2.3, *np.geomspace(2.3, 400.0, 39)]],
        [[100.0, *[900.0] * 39]],
        [[100.0] * 40, [260.0] * 40, [260.0] * 40],
        [*epochs_of(100.0, 1.0, 4), *epochs_of(40.0, 60.0, 2)],
        [[2.3, 900.0]],
    ],
)
def test_a_loss_that_rises_and_stays_has_diverged(epochs: Sequence[Sequence[float]]) -> None:
    assert any(said(epochs))


def test_the_words_name_both_ends() -> None:
    assert (
        LossCourse(GUESSING).diverged([2.3, *[400.0] * 9])
        == "the loss rose from 2.3 to 400 and stays there; that of guessing is 2.3"
    )
