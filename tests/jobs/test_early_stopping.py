"""Early stopping: when a fit ends, what is kept, and that a resumed run ends where the whole one does."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cluster.inventory.training import EarlyStopping, TrainJob
from cluster.jobs.cancel import Cancel
from cluster.jobs.fit import Cursor, Fit, Plan, epochs_of_refit, is_better
from cluster.status.parts import Figures
from tests.jobs.cluster import SMALL, Cluster, Done, cluster_of, own_recordings

FIGURES = Figures(
    accuracy=0.5, f1_macro=0.5, f1_weighted=0.5, precision_macro=0.5, precision_weighted=0.5, recall_macro=0.5,
    recall_weighted=0.5, loss=1.0,
)  # fmt: skip


def stopped_after(accuracies: list[float], early: EarlyStopping | None) -> tuple[int, int]:
    """Epochs that a fit trains whose epochs have these accuracies, and the one it selects."""
    fit = Fit(vector=np.zeros(1, np.float32))
    for epoch, accuracy in enumerate(accuracies, 1):
        if fit.stopped(early, len(accuracies)):
            break
        found = replace(FIGURES, accuracy=accuracy)
        if is_better(found, fit.selected, early):
            fit.epoch, fit.selected = epoch, found
        # What a checkpoint keeps is all that the decision needs.
        fit = Fit.of({**fit.facts(), "epochs_done": epoch}, fit.vector)
    return fit.epochs_done, fit.epoch


@pytest.mark.parametrize(
    ("accuracies", "patience", "min_delta", "expected"),
    [
        ([0.5, 0.6, 0.6, 0.6, 0.6], 2, 0.0, (4, 2)),
        ([0.5, 0.6, 0.55, 0.61, 0.6, 0.6, 0.9], 2, 0.0, (6, 4)),
        ([0.9, 0.1, 0.1], 1, 0.0, (2, 1)),
        ([0.5, 0.6, 0.7, 0.8], 1, 0.0, (4, 4)),
        ([0.5, 0.6, 0.6], 1, 0.0, (3, 2)),
        ([0.5, 0.505, 0.51, 0.515, 0.6], 3, 0.02, (4, 1)),
        ([0.5, 0.505, 0.521, 0.522, 0.523, 0.6], 3, 0.02, (6, 6)),
        ([0.5, 0.5, 0.5], 100, 0.0, (3, 1)),
    ],
)
def test_it_ends_after_so_many_epochs_without_a_better_one(
    accuracies: list[float], patience: int, min_delta: float, expected: tuple[int, int]
) -> None:
    assert stopped_after(accuracies, EarlyStopping(patience=patience, min_delta=min_delta)) == expected


def test_without_the_key_every_epoch_is_trained_and_the_best_one_selected() -> None:
    assert stopped_after([0.9, 0.1, 0.1, 0.91, 0.1], None) == (5, 4)


def test_a_fit_that_reached_its_last_epoch_did_not_stop_early() -> None:
    fit = Fit(vector=np.zeros(1, np.float32), epoch=1, epochs_done=5, selected=FIGURES)
    assert not fit.stopped(EarlyStopping(patience=4), 5)
    assert fit.stopped(EarlyStopping(patience=4), 6)


def test_a_fit_that_is_resumed_after_it_stopped_early_says_so_no_more() -> None:
    from cluster.jobs.training import Trainer
    from worker_node.recordings import Standardization

    job, said = TrainJob(epochs=9, early_stopping=EarlyStopping(patience=2)), list[Any]()
    nobody: Any = None
    fit = Fit(vector=np.zeros(1, np.float32), epoch=1, epochs_done=3, selected=FIGURES, cursor=Cursor(3))
    trainer = Trainer(nobody, nobody, job, Cancel(), said.append, nobody, nobody, nobody)
    plan = Plan(np.arange(100, dtype=np.int32), 10, job.epochs, 0, 0)
    standardization = Standardization(np.zeros(1, np.float32), np.ones(1, np.float32))
    trainer.fit("train", fit, plan, standardization, None, lambda: None)
    assert [type(event).__name__ for event in said] == ["Planned"]


def test_a_refit_trains_as_long_as_the_selected_epoch_on_the_same_schedule() -> None:
    chosen = Fit(vector=np.zeros(1, np.float32), epoch=4, epochs_done=7, selected=FIGURES)
    assert epochs_of_refit(TrainJob(epochs=30), chosen) == 30
    assert epochs_of_refit(TrainJob(epochs=30, early_stopping=EarlyStopping(patience=3)), chosen) == 4
    rows = np.arange(100, dtype=np.int32)
    whole, cut = Plan(rows, 10, 30, 2, 0), Plan(rows, 10, 30, 2, 0, until=4)
    assert (cut.epochs, cut.updates, cut.per_epoch) == (4, 4 * 12, 12)
    assert cut.batches == whole.batches, "what the learning rate is a function of"
    for ours, theirs in zip(cut.fresh(3), whole.fresh(3), strict=True):
        assert (ours.id, ours.batches) == (theirs.id, theirs.batches)
        np.testing.assert_array_equal(ours.rows, theirs.rows)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with cluster_of(workers=2, servers=2) as running:
        own_recordings(running.folder / "mine.npz")
        yield running


PATIENCE = 6


def settings(cluster: Cluster, mode: str, *others: str) -> tuple[str, ...]:
    source = f"jobs.train.data.source={cluster.folder / 'mine.npz'}"
    return (source, *SMALL, f"jobs.train.mode={mode}", "jobs.train.epochs=500", "jobs.train.validation_subjects=1",
            f"jobs.train.early_stopping={{patience: {PATIENCE}}}", "jobs.train.refit=true",
            "jobs.train.schedule={name: constant}", "jobs.train.optimizer.learning_rate=0.01",
            "jobs.train.micro_batches=4", "jobs.train.class_weights=balanced", *others)  # fmt: skip


def stopped(done: Done) -> int:
    """The epoch after which a run ended early, which it says everywhere."""
    assert done.code == 0, done.errors
    result = done.result
    after, best = result["stopped_early"]["epoch"], result["selected"]["epoch"]
    assert (result["status"], result["stopped_early"]["patience"]) == ("done", PATIENCE)
    assert after == best + PATIENCE < 500
    assert result["refit"]
    assert result["epochs_done"] == best
    assert result["updates"]["scheduled"] == result["updates"]["applied"]
    epochs = [(event["stage"], event["epoch"]) for event in done.epochs]
    assert epochs == [("train", k + 1) for k in range(after)] + [("refit", k + 1) for k in range(best)]
    assert f"stopped early after epoch {after}: no better for {PATIENCE} epochs (best: epoch {best})" in done.errors
    return int(after)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_resumed_run_stops_where_the_whole_one_does_with_the_same_bits(cluster: Cluster) -> None:
    whole = cluster.job("train", *settings(cluster, "single"))
    after = stopped(whole)

    often = settings(cluster, "sync", "jobs.train.checkpoint.every_seconds=0.1")
    with cluster.begun("train", *often) as job:
        job.until(f"epoch {after - PATIENCE // 2:>3}/")
        run = job.kill()
    resumed = cluster.part(1, 1).job("train", *often, resumed=run)
    assert resumed.code == 0, resumed.errors
    assert resumed.result["resumptions"] == 1
    for entry in ("parameters_sha256", "selected", "stopped_early", "epochs_done", "final"):
        assert resumed.result[entry] == whole.result[entry], entry

    refused = cluster.job("train", *often, resumed=run)
    assert refused.code == 2
    assert "is finished: there is nothing to resume" in refused.errors


@pytest.mark.long
@pytest.mark.timeout(300)
def test_without_steps_every_update_counts_once_before_and_after_it(cluster: Cluster) -> None:
    stopped(cluster.job("train", *settings(cluster, "async")))
