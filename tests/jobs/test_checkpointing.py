"""What a run keeps, and what becomes of it. The shards are in this process."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.checkpoints import CheckpointStore
from cluster.checkpoints.store import read_newest
from cluster.errors import UsageError
from cluster.inventory.training import TrainJob
from cluster.jobs import checkpointing
from cluster.jobs.checkpointing import FOLDER, Counts, Resumption, RunKeeper, resume, settings_of
from cluster.jobs.fit import Cursor, Fit
from cluster.jobs.roles import RoleTraffic, WireMeter
from cluster.parameters import Layout, ParameterSpec
from cluster.status.parts import Figures, StalenessCount
from ps_node.optimizers.adam import Adam
from ps_node.shard import VectorState
from ps_node.shards import ParameterShards

SIZE = 1500
DATA = "sha256 of the recordings"
JOB = TrainJob.model_validate({"batch_size": 20, "micro_batches": 4})


def state(updates: int) -> VectorState:
    """After so many updates; every value says which it is."""
    values = np.arange(SIZE, dtype=np.float32) + updates
    return VectorState(values, {"first_moment": values + 1, "second_moment": values + 2}, updates, updates)


def keeper(
    run: Path, updates: int, rolled_back: int = 0, fits: list[Fit] | None = None, job: TrainJob = JOB
) -> RunKeeper:
    """As a run has it whose shards have applied so many updates."""
    layout = Layout([ParameterSpec("weights", (SIZE,))])
    shards = ParameterShards(layout, state(updates), Adam(), ["/device:CPU:0"])
    counts = Counts(updates, 4, rolled_back, 2, 1.5)
    return RunKeeper(
        run, job, DATA, shards, lambda: counts, fits or [], WireMeter(RoleTraffic(10, 20, 0)), lambda _: None
    )


def resumed(run: Path, job: TrainJob = JOB, data: str = DATA, size: int = SIZE) -> Resumption:
    found, refused = resume(run, job, data, size)
    assert found is not None
    assert refused == ()
    return found


def test_all_there_is_comes_back(tmp_path: Path) -> None:
    fit = Fit(
        vector=np.full(SIZE, 7.0, np.float32), first_id=3, epoch=2,
        selected=Figures(loss=1.5, accuracy=0.5, f1_macro=0.4, recall_weighted=0.7, others={"top 5": 0.25}),
        epochs_done=4, scheduled=90, windows=1800, train_seconds=12.5, cursor=Cursor(4, True, 1),
        losses={80: 1.25, 81: 0.5}, hits=33.0, staleness=StalenessCount((85, 5, 0, 0, 0, 0, 0, 0, 0), 5.0, 2.0),
    )  # fmt: skip
    fit.step_seconds.extend([0.1, 0.2])
    with keeper(tmp_path, 90, fits=[fit, Fit(vector=np.zeros(SIZE, np.float32))]) as kept:
        kept.keep()
    found = resumed(tmp_path)
    assert found.state.next_id == found.state.optimizer_updates == 90
    np.testing.assert_array_equal(found.state.vector, state(90).vector)
    for name, slot in state(90).slots.items():
        np.testing.assert_array_equal(found.state.slots[name], slot)
    assert found.fits[0].facts() == fit.facts()
    np.testing.assert_array_equal(found.fits[0].vector, fit.vector)
    assert len(found.fits) == 2
    assert (found.counts.applied, found.counts.duplicates_dropped) == (90, 4)
    assert (found.counts.resumptions, found.counts.elapsed_seconds, found.counts.rolled_back) == (3, 1.5, 0)
    assert found.wire.carried.sent == 10


@pytest.mark.parametrize("subjects", [3, (1, 2)])
def test_a_key_that_is_newer_than_the_checkpoint_has_its_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subjects: int | tuple[int, ...]
) -> None:
    job = JOB.model_copy(update={"validation_subjects": subjects})

    def older(now: TrainJob) -> dict[str, Any]:
        described = settings_of(now)
        del described["class_weights"], described["optimizer"]["decay_biases"]
        return described

    with monkeypatch.context() as patched:
        patched.setattr(checkpointing, "settings_of", older)
        with keeper(tmp_path, 3, job=job) as kept:
            kept.keep()
    assert resumed(tmp_path, job).state.next_id == 3
    decaying = job.optimizer.model_copy(update={"decay_biases": False})
    with pytest.raises(UsageError, match=r"jobs\.train\.optimizer was"):
        resumed(tmp_path, job.model_copy(update={"optimizer": decaying}))


def test_what_came_after_the_checkpoint_is_rolled_back_and_adds_up_over_several_ends(tmp_path: Path) -> None:
    with keeper(tmp_path, 10) as kept:
        kept.keep()
        for _ in range(7):
            kept.progress(1)
    assert resumed(tmp_path).counts.rolled_back == 7
    with keeper(tmp_path, 10, rolled_back=7) as kept:
        kept.progress(3)
    assert resumed(tmp_path).counts.rolled_back == 10, "seven were lost first, then three"
    with keeper(tmp_path, 10, rolled_back=10) as kept:
        kept.progress(5)
    with keeper(tmp_path, 15, rolled_back=10) as kept:
        kept.keep()
    assert resumed(tmp_path).counts.rolled_back == 10, "what a checkpoint has is not lost"


def test_without_a_checkpoint_there_is_nothing_to_go_on_from(tmp_path: Path) -> None:
    assert resume(tmp_path, JOB, DATA, SIZE) == (None, ())


@pytest.mark.parametrize(
    ("job", "data", "size", "words"),
    [
        ({"batch_size": 10}, DATA, SIZE, "jobs.train.batch_size was 20 and is 10"),
        ({"batch_size": 20, "codec": {"name": "fp16"}}, DATA, SIZE, "jobs.train.codec was"),
        ({"batch_size": 20}, "others", SIZE, "other recordings"),
        ({"batch_size": 20}, DATA, SIZE + 1, f"shape \\({SIZE},\\) for a network of {SIZE + 1} values"),
    ],
    ids=["batch", "codec", "recordings", "network"],
)
def test_another_run_is_refused(tmp_path: Path, job: dict[str, Any], data: str, size: int, words: str) -> None:
    with keeper(tmp_path, 10) as kept:
        kept.keep()
    with pytest.raises(UsageError, match=words) as refused:
        resume(tmp_path, TrainJob.model_validate(job), data, size)
    assert str(tmp_path) in str(refused.value)


def test_patience_and_checkpoints_may_be_others(tmp_path: Path) -> None:
    with keeper(tmp_path, 10) as kept:
        kept.keep()
    other = {"batch_size": 20, "deadline_seconds": 7.0, "checkpoint": {"every_seconds": 1.0}, "refit": True}
    assert resumed(tmp_path, TrainJob.model_validate(other)).state.next_id == 10


@pytest.mark.parametrize(("given", "refused"), [("auto", None), (4, None), (8, "micro_batches was 4 and is 8")])
def test_a_run_keeps_the_number_of_micro_batches_that_it_began_with(
    tmp_path: Path, given: int | str, refused: str | None
) -> None:
    with keeper(tmp_path, 10) as kept:
        kept.keep()
    job = TrainJob.model_validate({"batch_size": 20, "micro_batches": given})
    if refused is None:
        assert resumed(tmp_path, job).micro_batches == 4
        return
    with pytest.raises(UsageError, match=refused):
        resume(tmp_path, job, DATA, SIZE)


def test_a_checkpoint_that_another_version_made_is_refused(tmp_path: Path) -> None:
    with keeper(tmp_path, 10) as kept:
        kept.keep()
    checkpoint, _ = read_newest(tmp_path / FOLDER)
    assert checkpoint is not None
    with CheckpointStore(tmp_path / FOLDER, 3) as store:
        store.write(type(checkpoint)(11, checkpoint.tensors, {**checkpoint.facts, "fits": [{"epoch": 3}]}))
    with pytest.raises(UsageError, match="update 11 is not one that this version of pscluster made"):
        resume(tmp_path, JOB, DATA, SIZE)


def test_the_app_of_a_resumed_run_may_lie_elsewhere() -> None:
    """The run continues with its own copy, wherever the app lay when it began."""
    there, here = (TrainJob.model_validate({"app": app}) for app in ("/job/app", "/runs/x/app"))
    assert settings_of(there) == settings_of(here)
    assert "mode" in settings_of(here)
