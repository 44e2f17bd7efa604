"""An asynchronous run whose coordinator was killed goes on: each update counts once, and what was lost is told."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.jobs.cluster import SMALL, Cluster, Done, cluster_of, own_recordings

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

EPOCHS = 40
BATCHES, REPLAYED = 20, 2
RUN = (*SMALL, f"jobs.train.epochs={EPOCHS}", "jobs.train.validation_subjects=0",
       f"jobs.train.replay_worst_batches={REPLAYED}")  # fmt: skip


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with cluster_of(workers=2, servers=2) as running:
        own_recordings(running.folder / "mine.npz")
        own_recordings(running.folder / "others.npz", train=440)
        yield running


@pytest.fixture(scope="module")
def mine(cluster: Cluster) -> tuple[str, ...]:
    return (f"jobs.train.data.source={cluster.folder / 'mine.npz'}", *RUN)


def manifests(run: Path) -> list[Path]:
    return sorted((run / "checkpoints").glob("update-*.json"))


def newest(run: Path) -> int:
    """The update of the newest checkpoint."""
    return int(manifests(run)[-1].stem.partition("-")[2])


def known(run: Path) -> int:
    """The last update that the run has noted."""
    return int((run / "checkpoints" / "progress").read_text())


@pytest.fixture(scope="module")
def killed(cluster: Cluster, mine: tuple[str, ...]) -> Path:
    """The folder of a run whose coordinator was killed with several checkpoints behind it and updates since."""
    with cluster.begun("train", *mine, "jobs.train.checkpoint.every_seconds=0.1") as job:
        job.until("epoch   3/")
        while not ((run := job.folder()) and len(manifests(run)) >= 2 and known(run) > newest(run)):
            assert job.process.poll() is None, "it ended before it had two checkpoints and updates since"
            time.sleep(0.005)
        return job.kill()


def copied(run: Path, name: str) -> Path:
    return Path(shutil.copytree(run, run.parent / name))


def ended_well(done: Done, epochs: int = EPOCHS) -> None:
    assert done.code == 0, done.errors
    updates = done.result["updates"]
    assert updates["scheduled"] == updates["applied"] == epochs * (BATCHES + REPLAYED)
    assert done.folder is not None
    assert [event["epoch"] for event in done.epochs] == list(range(1, epochs + 1))
    assert done.result["final"]["accuracy"] is not None


def test_it_goes_on_from_the_newest_checkpoint_and_is_finished_then(
    cluster: Cluster, mine: tuple[str, ...], killed: Path
) -> None:
    run = copied(killed, "20990101T000001Z-train")
    done = cluster.part(2, 1).job("train", *mine, resumed=run)
    ended_well(done)
    assert done.result["resumptions"] == 1
    assert done.result["updates"]["rolled_back"] == known(killed) - newest(killed)
    assert f"continues from update {newest(killed)}" in done.log

    again = cluster.job("train", *mine, resumed=run)
    assert again.code == 2
    assert "is finished: there is nothing to resume" in again.errors
    assert len(again.errors.splitlines()) == 1


def test_a_live_run_takes_no_notice_of_a_second_one_that_would_go_on_with_it(
    cluster: Cluster, mine: tuple[str, ...]
) -> None:
    with cluster.begun("train", *mine, "jobs.train.checkpoint.every_seconds=0.3", "jobs.train.epochs=100") as job:
        job.until("epoch   2/")
        (run,) = set(job.runs.glob("*-*/")) - job.before
        second = cluster.job("train", *mine, resumed=run, flags=["--quiet"])
        assert second.code == 1, second.errors
        (line,) = second.errors.splitlines()
        assert "expected to be the only one who writes there" in line
        done = job.end()
    assert done.folder == run
    ended_well(done, epochs=100)
    assert done.result["resumptions"] == 0
    assert '"state":"failed"' not in (run / "history.jsonl").read_text()


def test_a_truncated_checkpoint_is_refused_by_name_and_the_one_before_it_is_used(
    cluster: Cluster, mine: tuple[str, ...], killed: Path
) -> None:
    run = copied(killed, "20990101T000002Z-train")
    *_, before, last = manifests(run)
    arrays = last.with_suffix(".safetensors")
    arrays.write_bytes(arrays.read_bytes()[:-100])
    done = cluster.job("train", *mine, resumed=run)
    ended_well(done)
    assert arrays.name in done.errors
    assert arrays.name in done.log
    assert done.result["updates"]["rolled_back"] == known(killed) - int(before.stem.partition("-")[2]) > 0


def test_without_any_checkpoint_it_begins_anew_and_says_how_much_is_lost(
    cluster: Cluster, mine: tuple[str, ...], killed: Path
) -> None:
    run = copied(killed, "20990101T000003Z-train")
    for path in (run / "checkpoints").glob("update-*"):
        path.unlink()
    done = cluster.job("train", *mine, resumed=run)
    ended_well(done)
    assert done.result["updates"]["rolled_back"] == known(killed) > 0
    assert f"no checkpoint: {known(killed)} updates run again" in done.errors


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ("jobs.train.batch_size=10", "jobs.train.batch_size was 20 and is 10"),
        ("jobs.train.mode=sync", "jobs.train.mode was 'async' and is 'sync'"),
        ("jobs.train.data.source={folder}/others.npz", "other recordings"),
    ],
    ids=["batch", "mode", "recordings"],
)
def test_another_run_than_the_one_that_began_is_refused(
    cluster: Cluster, mine: tuple[str, ...], killed: Path, changed: str, named: str
) -> None:
    done = cluster.job("train", *mine, changed.format(folder=cluster.folder), resumed=killed, flags=["--quiet"])
    assert done.code == 2, done.errors
    (line,) = done.errors.splitlines()
    assert named in line
    assert str(killed) in line
    assert not (killed / "result.json").exists(), "it can still go on with the right ones"


def test_nothing_to_go_on_with_is_told_in_one_line(cluster: Cluster, mine: tuple[str, ...]) -> None:
    nowhere = cluster.folder / "empty"
    done = cluster.job("train", *mine, f"runs={nowhere}", flags=["--resume"])
    assert done.code == 2
    assert done.errors.splitlines() == [
        f"{nowhere}: expected an interrupted training run, found none: start one without --resume"
    ]
    done = cluster.job("pi", flags=["--resume"])
    assert done.code == 2
    assert "only train, cv, run and sweep can be resumed" in done.errors


def test_killed_workers_and_updates_sent_twice_lose_and_double_nothing(mine: tuple[str, ...]) -> None:
    with cluster_of(workers=2, servers=2) as own:
        with own.begun("train", *mine) as job:
            for seen, name in enumerate(("worker:0", "worker:1", "worker:0"), 1):
                own.metrics_when(job, "pscluster_train_steps_total", 40 * seen)
                own.kill(name)
                own.start(name)
            done = job.end()
        ended_well(done)
        assert "worker:0 left" in done.log
        assert "worker:1 left" in done.log
