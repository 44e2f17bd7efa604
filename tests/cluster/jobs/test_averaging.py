"""Stochastic weight averaging: which epochs are in the mean, in whatever pieces."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from cluster.jobs.fit import Cursor, Fit, Plan
from core.inventory.training import TrainJob
from core.status.parts import Figures
from tests.cluster.jobs.kit import trainer_of
from tests.tables import table


def job_of(averaging: Any, **others: object) -> TrainJob:
    held_out = {"averaging": averaging, "validation_subjects": 0}
    return TrainJob.model_validate({**held_out, **others})


def ended(averaging: Any, epochs: int, validation: Figures | None = None) -> list[float]:
    """What a fit holds after each epoch, whose parameters are 1, 2, 3, ..."""
    job = job_of(averaging, epochs=epochs, batch_size=10)
    now = [0.0]
    mode = SimpleNamespace(shards=SimpleNamespace(read=lambda: np.array(now, np.float32)))
    trainer = trainer_of(None, mode, job)
    plan = Plan(job, np.arange(10))
    fit = Fit(vector=np.zeros(1, np.float32))
    found = []
    for epoch in range(epochs):
        # A checkpoint keeps the vector and the cursor; another coordinator goes on from there.
        fit = Fit.of(Fit(vector=fit.vector, cursor=Cursor(epoch)).facts(), fit.vector)
        now[0] = epoch + 1.0
        fit.vector = trainer._at_the_end(fit, plan, validation)
        assert fit.vector.dtype == np.float32
        found.append(float(fit.vector[0]))
    return found


@pytest.mark.parametrize(
    ("averaging", "found"),
    table("cluster/jobs/rows", "averaging"),
)
def test_the_mean_is_over_the_epochs_after_the_start(averaging: Any, found: list[float]) -> None:
    assert ended(averaging, 4) == pytest.approx(found)


def test_a_fit_that_chooses_an_epoch_is_not_averaged() -> None:
    assert ended({"start": 0.0}, 3, Figures(loss=1.0)) == [1, 2, 3]


def test_people_who_choose_an_epoch_are_refused_unless_a_refit_follows() -> None:
    averaging = {"start": 0.5}
    with pytest.raises(ValidationError) as caught:
        job_of(averaging, validation_subjects=3)
    (problem,) = caught.value.errors()
    assert problem["loc"] == ("averaging",)
    assert problem["ctx"]["remedy"].startswith("set validation_subjects: 0")
    assert job_of(averaging, validation_subjects=3, refit=True).averaging is not None
