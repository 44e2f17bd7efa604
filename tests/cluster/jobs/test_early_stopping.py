"""Early stopping: when a fit ends, what is kept, and that a resumed run ends alike."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cluster.jobs.fit import Cursor, Fit, Plan, epochs_of_refit, is_better
from core.inventory.training import TrainJob
from core.inventory.training_sections import EarlyStopping
from core.models.tasks import Classification
from core.status.parts import Figures
from tests.cluster.jobs.kit import trainer_of
from tests.tables import table
from worker_node.recordings import Standardization

FIGURES = Figures(loss=1.0, accuracy=0.5)
NOTHING = np.zeros(1, np.float32)


def stopped_after(accuracies: list[float], early: EarlyStopping | None) -> tuple[int, int]:
    """Epochs that a fit trains whose epochs have these accuracies, and the one it selects."""
    fit = Fit(vector=NOTHING)
    for epoch, accuracy in enumerate(accuracies, 1):
        if fit.stopped(early, len(accuracies)):
            break
        found = replace(FIGURES, accuracy=accuracy)
        if is_better(found, fit.selected, early):
            fit.epoch = epoch
            fit.selected = found
        # What a checkpoint keeps is all that the decision needs.
        fit = Fit.of({**fit.facts(), "epochs_done": epoch}, fit.vector)
    return fit.epochs_done, fit.epoch


@pytest.mark.parametrize(
    ("accuracies", "early", "expected"), table("cluster/jobs/rows", "early stopping")
)
def test_it_ends_after_so_many_epochs_without_a_better_one(
    accuracies: list[float], early: Any, expected: list[int]
) -> None:
    stopping = early and EarlyStopping(**early)
    assert [*stopped_after(accuracies, stopping)] == expected


def test_a_fit_that_reached_its_last_epoch_did_not_stop_early() -> None:
    fit = Fit(vector=NOTHING, epoch=1, epochs_done=5, selected=FIGURES)
    assert not fit.stopped(EarlyStopping(patience=4), 5)
    assert fit.stopped(EarlyStopping(patience=4), 6)


def test_a_fit_that_is_resumed_after_it_stopped_early_says_so_no_more() -> None:
    job = TrainJob(batch_size=10, epochs=9, early_stopping=EarlyStopping(patience=2))
    said = list[Any]()
    fit = Fit(vector=NOTHING, epoch=1, epochs_done=3, selected=FIGURES, cursor=Cursor(3))
    mode: Any = SimpleNamespace(weights=SimpleNamespace(mean=1.0))
    trainer = trainer_of(None, mode, job, said.append, objective=Classification(2))
    plan = Plan(job, np.arange(100))
    trainer.fit("train", fit, plan, Standardization(NOTHING, NOTHING + 1), None, lambda: None)
    assert [type(event).__name__ for event in said] == ["Planned"]


def test_a_refit_trains_as_long_as_the_selected_epoch_on_the_same_schedule() -> None:
    chosen = Fit(vector=NOTHING, epoch=4, epochs_done=7, selected=FIGURES)
    early = EarlyStopping(patience=3)
    assert epochs_of_refit(TrainJob(epochs=30), chosen) == 30
    assert epochs_of_refit(TrainJob(epochs=30, early_stopping=early), chosen) == 4
    job = TrainJob(batch_size=10, epochs=30, replay_worst_batches=2)
    whole, cut = (Plan(job, np.arange(100), until) for until in (None, 4))
    assert (cut.epochs, cut.updates, cut.per_epoch) == (4, 4 * 12, 12)
    assert cut.batches == whole.batches, "what the learning rate is a function of"
    np.testing.assert_equal(
        [(one.id, one.batches, one.rows) for one in cut.fresh(3)],
        [(one.id, one.batches, one.rows) for one in whole.fresh(3)],
    )


@pytest.mark.parametrize("changes", [{"more": 1}, {"first_id": None}])
def test_a_fit_of_another_version_is_none(changes: dict[str, int | None]) -> None:
    facts = {**Fit(vector=NOTHING).facts(), **changes}
    with pytest.raises(ValueError, match=r"more|first_id"):
        Fit.of(facts, NOTHING)
