"""What a run keeps, and what becomes of it. The shards are in this process."""

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.jobs import checkpointing
from cluster.jobs.checkpointing import FOLDER, Counts, Resumption, RunKeeper, resume, settings_of
from cluster.jobs.fit import Cursor, Fit
from cluster.jobs.roles import RoleTraffic, WireMeter
from core.checkpoints import CheckpointStore, Superseded, read_newest
from core.ground.errors import UsageError
from core.inventory.training import TrainJob
from core.parameters import Layout, ParameterSpec
from core.status.parts import Figures, StalenessCount
from ps_node.optimizers.adam import Adam
from ps_node.shard import VectorState
from ps_node.shards import ParameterShards
from tests.cluster.jobs.kit import raising
from tests.tables import table

SIZE = 1500
DATA = "sha256 of the recordings"
OPTIONS = {"batch_size": 20, "slots": 4}
JOB = TrainJob.model_validate(OPTIONS)


def state(updates: int) -> VectorState:
    """After so many updates; every value says which it is."""
    values = np.arange(SIZE, dtype=np.float32) + updates
    return VectorState(
        values, {"first_moment": values + 1, "second_moment": values + 2}, updates, updates
    )


def keeper(run: Path, updates: int, *fits: Fit, job: TrainJob = JOB, **before: int) -> RunKeeper:
    """As a run has it whose shards have applied so many updates; `before`: what it counted."""
    layout = Layout([ParameterSpec("weights", (SIZE,))])
    shards = ParameterShards(layout, state(updates), Adam(), ["/device:CPU:0"])
    counts = Counts(updates, 4, resumptions=2, elapsed_seconds=1.5, **before)
    wire = WireMeter(RoleTraffic(10, 20, 0))
    return RunKeeper(run, job, DATA, shards, lambda: counts, list(fits), wire, lambda _: None)


def resumed(run: Path, job: TrainJob = JOB, data: str = DATA, size: int = SIZE) -> Resumption:
    found, refused = resume(run, job, data, size)
    assert found is not None
    assert refused == ()
    return found


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with a checkpoint of update 10."""
    with keeper(tmp_path, 10) as kept:
        kept.keep()
    return tmp_path


def test_all_there_is_comes_back(tmp_path: Path) -> None:
    fit = Fit(
        vector=np.full(SIZE, 7.0, np.float32),
        first_id=3,
        epoch=2,
        selected=Figures(
            loss=1.5, accuracy=0.5, f1_macro=0.4, recall_weighted=0.7, others={"top 5": 0.25}
        ),
        epochs_done=4,
        scheduled=90,
        windows=1800,
        train_seconds=12.5,
        cursor=Cursor(4, True, 1),
        losses={80: 1.25, 81: 0.5},
        hits=33.0,
        staleness=StalenessCount((85, 5, 0, 0, 0, 0, 0, 0, 0), 5.0, 2.0),
    )
    fit.step_seconds.extend([0.1, 0.2])
    with keeper(tmp_path, 90, fit, Fit(vector=np.zeros(SIZE, np.float32))) as kept:
        kept.keep()
    found = resumed(tmp_path)
    expected = state(90)
    assert found.state.next_id == found.state.optimizer_updates == 90
    np.testing.assert_array_equal(found.state.vector, expected.vector)
    np.testing.assert_equal(found.state.slots, expected.slots)
    assert found.fits[0].facts() == fit.facts()
    np.testing.assert_array_equal(found.fits[0].vector, fit.vector)
    assert len(found.fits) == 2
    assert found.counts == Counts(90, 4, resumptions=3, elapsed_seconds=1.5)
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


def test_what_came_after_the_checkpoint_is_rolled_back_and_adds_up_over_several_ends(
    run: Path,
) -> None:
    with keeper(run, 10) as kept:
        for _ in range(7):
            kept.progress(1)
    assert resumed(run).counts.rolled_back == 7
    with keeper(run, 10, rolled_back=7) as kept:
        kept.progress(3)
    assert resumed(run).counts.rolled_back == 10, "seven were lost first, then three"
    with keeper(run, 10, rolled_back=10) as kept:
        kept.progress(5)
    with keeper(run, 15, rolled_back=10) as kept:
        kept.keep()
    assert resumed(run).counts.rolled_back == 10, "what a checkpoint has is not lost"


def test_a_checkpoint_is_due_after_so_many_updates(tmp_path: Path) -> None:
    often = TrainJob.model_validate({**OPTIONS, "checkpoint": {"every_updates": 3}})
    with keeper(tmp_path, 10, job=often) as kept:
        left = []
        for _ in range(3):
            left.append((kept.updates_left(), kept.due()))
            kept.progress(1)
        assert left == [(3, False), (2, False), (1, False)]
        assert kept.due()
        kept.keep()
        assert (kept.updates_left(), kept.due()) == (3, False)
        kept._last -= 2 * kept.every_seconds
        assert kept.due(), "the sooner of the two counts"
    with keeper(tmp_path, 10) as kept:
        assert kept.updates_left() == float("inf")


def test_memories_that_workers_hold_are_lost_with_the_coordinator(run: Path) -> None:
    """A worker, then the coordinator was killed: one memory, then those of both workers."""
    with keeper(run, 10) as kept:
        kept.progress(1, lost=0, memories=2)
        kept.progress(1, lost=1, memories=2)
    assert resumed(run).counts.memories_lost == 3
    with keeper(run, 10, memories_lost=3) as kept:
        kept.progress(1, lost=0, memories=1)
        kept.keep()
    assert resumed(run).counts.memories_lost == 4
    (run / FOLDER / checkpointing.PROGRESS).write_bytes(b"%020d" % 12)
    assert resumed(run).counts.memories_lost == 3, "a version that noted updates alone wrote it"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.ESTALE])
def test_a_disk_that_refuses_for_a_while_ends_no_training(
    run: Path, number: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    words = os.strerror(number)
    with monkeypatch.context() as patched, keeper(run, 12) as kept:
        for name in ("pwrite", "fsync"):
            patched.setattr(os, name, raising(OSError(number, words)))
        for _ in range(3):
            kept.progress(1)
        kept._last -= 2 * kept.every_seconds
        assert kept.due()
        kept.keep()
        assert not kept.due(), "it waits for its next turn"
        assert resumed(run).state.next_id == 10
        patched.undo()
        kept.keep()
    assert resumed(run).state.next_id == 12
    said = [message for message in caplog.messages if words in message]
    assert len(said) == 2, "the progress once, the checkpoint once"
    assert not list((run / FOLDER).glob("*.partial"))


def test_a_disk_that_refuses_the_file_of_the_progress_ends_no_training(
    tmp_path: Path,
) -> None:
    (tmp_path / FOLDER / checkpointing.PROGRESS).mkdir(parents=True)
    with keeper(tmp_path, 10) as kept:
        kept.progress(1)
        kept.keep()
    assert resumed(tmp_path).state.next_id == 10


def test_a_writer_that_was_superseded_ends(run: Path) -> None:
    with keeper(run, 10) as kept:
        (run / FOLDER / ".lock").write_text("77\n9\n")
        with pytest.raises(
            Superseded, match=r"no longer the writer \(process 77; its epoch was 2 and is 9\)"
        ):
            kept.keep()


def test_without_a_checkpoint_there_is_nothing_to_go_on_from(tmp_path: Path) -> None:
    assert resume(tmp_path, JOB, DATA, SIZE) == (None, ())


@pytest.mark.parametrize(
    ("job", "data", "size", "words"),
    table("cluster/jobs/rows", "another run"),
)
def test_another_run_is_refused(
    run: Path, job: dict[str, Any], data: str, size: int, words: str
) -> None:
    with pytest.raises(UsageError, match=words) as refused:
        resume(run, TrainJob.model_validate({**OPTIONS, **job}), data, size)
    assert str(run) in str(refused.value)


def test_patience_and_checkpoints_may_be_others(run: Path) -> None:
    other = {"deadline_seconds": 7.0, "checkpoint": {"every_seconds": 1.0}, "refit": True}
    assert resumed(run, TrainJob.model_validate({**OPTIONS, **other})).state.next_id == 10


@pytest.mark.parametrize("given", ["auto", 4])
def test_a_run_keeps_the_number_of_slots_that_it_began_with(run: Path, given: int | str) -> None:
    job = TrainJob.model_validate({**OPTIONS, "slots": given})
    assert resumed(run, job).slots == 4


def test_a_checkpoint_that_another_version_made_is_refused(run: Path) -> None:
    checkpoint, _ = read_newest(run / FOLDER)
    assert checkpoint is not None
    facts = {**checkpoint.facts, "fits": [{"epoch": 3}]}
    with CheckpointStore(run / FOLDER, 3) as store:
        store.write(replace(checkpoint, update=11, facts=facts))
    with pytest.raises(
        UsageError, match="update 11 is not one that this version of pscluster made"
    ):
        resume(run, JOB, DATA, SIZE)


def test_the_app_of_a_resumed_run_may_lie_elsewhere() -> None:
    """The run continues with its own copy, wherever the app lay when it began."""
    there, here = (TrainJob.model_validate({"app": app}) for app in ("/job/app", "/runs/x/app"))
    assert settings_of(there) == settings_of(here)
    assert "mode" in settings_of(here)
