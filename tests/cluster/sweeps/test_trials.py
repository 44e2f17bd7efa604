import sys
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.pages.files import RunRecord
from cluster.sweeps.progress import Epoch
from cluster.sweeps.sweep_file import Search
from cluster.sweeps.trials import STUDY, Trials
from core.ground.errors import ClusterError

HIDDEN = "jobs.train.model.hidden"
RATE = "jobs.train.optimizer.learning_rate"
EPOCHS = "jobs.train.epochs"
SPACE = {
    HIDDEN: (8, 16),
    RATE: {"low": 1e-4, "high": 1e-2, "log": True},
    EPOCHS: {"low": 2, "high": 6, "step": 2, "whole": True},
}


def search(trials: int = 6, pruner: str = "none", metric: str = "accuracy") -> Search:
    return Search.model_validate(
        {"trials": trials, "pruner": pruner, "metric": metric, "space": SPACE}
    )


def finished(run: RunRecord, accuracy: float) -> RunRecord:
    return replace(run, state="finished", final={"accuracy": 0.0}, selected={"accuracy": accuracy})


def draw(trials: Trials) -> RunRecord:
    """The next run, which there is."""
    run = trials.next_run()
    assert run is not None
    return run


def running(run: RunRecord) -> RunRecord:
    return replace(run, state="running")


def test_trials_are_drawn_from_the_space_and_no_more_than_asked_for(tmp_path: Path) -> None:
    trials = Trials(search(3), tmp_path, 7)
    for number in range(1, 4):
        run = draw(trials)
        assert (run.id, run.seed) == (f"{number:04d}", 7)
        assert run.settings[HIDDEN] in (8, 16)
        assert 1e-4 <= run.settings[RATE] <= 1e-2
        assert run.settings[EPOCHS] in (2, 4, 6)
        assert type(run.settings[EPOCHS]) is int
        trials.over(finished(run, 0.5))
    assert trials.next_run() is None
    assert trials.to_come == 0


@pytest.mark.parametrize(("sampler", "count"), [("tpe", 14), ("random", 4)])
def test_drivers_that_die_between_the_draws_draw_what_one_would(
    tmp_path: Path, sampler: str, count: int
) -> None:
    """More trials than TPE draws before it looks at results."""
    found = []
    for died in (False, True):
        folder = tmp_path / f"{died}"
        known = list[RunRecord]()
        folder.mkdir()
        order = search(count).model_copy(update={"sampler": sampler})
        trials = Trials(order, folder, 7)
        while (run := trials.next_run()) is not None:
            if died:
                trials = Trials(order, folder, 7, known)
                assert trials.next_run() == run, "it was drawn, and not taken down"
            known.append(finished(run, float(run.settings[RATE]) * 50))
            trials.over(known[-1])
        found.append([dict(one.settings) for one in known])
    assert found[0] == found[1]
    assert len({one[RATE] for one in found[0]}) == count


def test_a_trial_that_is_worse_than_the_others_is_ended_early(tmp_path: Path) -> None:
    trials = Trials(search(20, "median"), tmp_path, 7)
    for _ in range(5):  # the pruner lets the first ones run
        run = draw(trials)
        for epoch in (1, 2):
            assert trials.epoch_ended(running(run), Epoch(epoch, {"accuracy": 0.9})) == ""
        trials.over(finished(run, 0.9))
    bad = running(draw(trials))
    why = trials.epoch_ended(bad, Epoch(1, {"accuracy": 0.1}))
    assert why == "ended early after epoch 1: validation accuracy 0.1000 (median)"
    trials.over(replace(bad, state="pruned"))
    assert trials.epoch_ended(bad, Epoch(2, {"accuracy": 0.1})) == ""
    draw(trials)


def test_without_a_pruner_or_a_validation_nothing_is_ended(tmp_path: Path) -> None:
    trials = Trials(search(2), tmp_path, 7)
    record = running(draw(trials))
    assert trials.epoch_ended(record, Epoch(1, {"accuracy": 0.0})) == ""
    trials.over(replace(record, state="failed"))
    assert trials.to_come == 1


def test_a_study_that_is_none_and_a_machine_without_optuna(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / STUDY).write_bytes(b"no database" * 100)
    with pytest.raises(ClusterError, match="expected the study of this search"):
        Trials(search(), tmp_path, 7)
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ClusterError, match="expected the package optuna"):
        Trials(search(), tmp_path, 7)
