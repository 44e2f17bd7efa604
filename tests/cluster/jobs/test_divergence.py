"""Divergence is a loss that rises and stays, not a loss that is high."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from cluster.jobs.fit import DivergedError, Fit, LossCourse, Plan, Update
from cluster.jobs.modes import Step
from core.inventory import TrainJob
from tests.cluster.jobs.kit import trainer_of
from tests.tables import table

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


def course(row: list[Any]) -> list[list[float]]:
    """The epochs of a row of `losses.yaml`."""
    found = []
    for part in row:
        if isinstance(part, dict):
            found += epochs_of(**part)
        else:
            found.append([loss for loss, batches in part for _ in range(batches)])
    return found


@pytest.mark.parametrize("row", table("cluster/jobs/losses", "learning"))
def test_a_loss_that_falls_or_is_low_is_learning(row: list[Any]) -> None:
    assert not any(said(course(row)))


@pytest.mark.parametrize("row", table("cluster/jobs/losses", "diverged"))
def test_a_loss_that_rises_and_stays_has_diverged(row: list[Any]) -> None:
    assert any(said(course(row)))


def test_the_words_name_both_ends() -> None:
    assert (
        LossCourse(GUESSING).diverged([2.3, *[400.0] * 9])
        == "the loss rose from 2.3 to 400 and stays there; that of guessing is 2.3"
    )


@pytest.mark.parametrize(
    ("loss", "norm", "behind", "words"), table("cluster/jobs/losses", "not finite")
)
def test_what_is_not_finite_is_named_with_the_update_that_it_is_of(
    loss: float, norm: float, behind: int, words: str
) -> None:
    job = TrainJob(batch_size=1)
    update = Update(3, (3,), np.zeros((1, 1), np.int32))
    step = Step({3: loss}, 0.0, norm, behind)
    with pytest.raises(DivergedError, match=rf"^{words} at learning rate"):
        trainer_of(None, None, job)._account(
            Plan(job, np.arange(9)), update, step, Fit(vector=np.zeros(1, np.float32))
        )
