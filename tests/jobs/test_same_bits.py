"""`mode: sync` gives the same bits whatever the cluster is, and whatever happens to it."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.errors import ExitCode
from tests.jobs.cluster import SMALL, Cluster, Done, cluster_of, own_recordings

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

STEPS_AN_EPOCH = 20
NORMALIZED = ("jobs.train.model.batch_norm=true", "jobs.train.keep_probability=0.8")
FP16 = ("jobs.train.codec={name: fp16}",)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with cluster_of(workers=4, servers=3) as running:
        own_recordings(running.folder / "mine.npz")
        yield running


def settings(cluster: Cluster, *others: str, mode: str = "sync", epochs: int = 3) -> tuple[str, ...]:
    source = f"jobs.train.data.source={cluster.folder / 'mine.npz'}"
    return (source, *SMALL, f"jobs.train.mode={mode}", f"jobs.train.epochs={epochs}",
            "jobs.train.micro_batches=4", "jobs.train.validation_subjects=0", *others)  # fmt: skip


def bits(done: Done) -> str:
    """The digest of a run that was trained to its end, every step applied once."""
    assert done.code == 0, done.errors
    updates, epochs = done.result["updates"], done.result["epochs_done"]
    assert updates["scheduled"] == updates["applied"] == epochs * STEPS_AN_EPOCH
    return str(done.result["parameters_sha256"])


@pytest.fixture(scope="module")
def alone(cluster: Cluster) -> dict[tuple[str, ...], str]:
    """The digests of `mode: single`, by what was set."""
    return {
        others: bits(cluster.job("train", *settings(cluster, *others, mode="single")))
        for others in ((), FP16, NORMALIZED)
    }


def test_other_settings_give_other_bits(alone: dict[tuple[str, ...], str]) -> None:
    assert len(set(alone.values())) == 3


@pytest.mark.parametrize(
    ("workers", "servers", "others"),
    [
        (1, 1, ()),
        (2, 1, ("jobs.train.sync.backup_workers=0",)),
        (2, 2, ()),
        (4, 3, ("jobs.train.sync.backup_workers=4",)),
        (2, 2, FP16),
        (4, 3, FP16),
        (4, 3, NORMALIZED),
    ],
    ids=["1-1", "2-1-no-backup", "2-2", "4-3-four-backups", "2-2-fp16", "4-3-fp16", "4-3-dropout-and-batch-norm"],
)
def test_any_number_of_workers_and_servers(
    cluster: Cluster, alone: dict[tuple[str, ...], str], workers: int, servers: int, others: tuple[str, ...]
) -> None:
    done = cluster.part(workers, servers).job("train", *settings(cluster, *others))
    assert (done.result["workers"], done.result["ps"]) == (workers, servers)
    assert bits(done) == alone[others if others in alone else ()]


def test_a_teacher_reaches_any_number_of_workers(cluster: Cluster) -> None:
    source = f"jobs.train.data.source={cluster.folder / 'mine.npz'}"
    statistics = ("jobs.train.model={name: spectral, hidden: 8}", "jobs.train.batch_size=20", "jobs.train.epochs=1")
    teacher = cluster.job("train", source, *statistics, "jobs.train.mode=single", "jobs.train.validation_subjects=0")
    assert teacher.folder is not None, teacher.errors
    taught = (
        f"jobs.train.distill={{run: {teacher.folder}, weight: 0.7}}",
        "jobs.train.augment={rotation_degrees: 20, time_warp: 0.2}",
    )
    expected = cluster.job("train", *settings(cluster, *taught, mode="single", epochs=1))
    for workers, servers in ((1, 1), (2, 1), (4, 3)):
        done = cluster.part(workers, servers).job("train", *settings(cluster, *taught, epochs=1))
        assert bits(done) == bits(expected)
        (entry,) = done.result["teachers"]
        assert entry["parameters_sha256"] == teacher.result["parameters_sha256"] != bits(done)


def test_devices_of_one_machine(cluster: Cluster, alone: dict[tuple[str, ...], str]) -> None:
    device = "jobs.train.device={kind: cpu, ids: [0, 1]}"
    done = cluster.job("train", *settings(cluster, *NORMALIZED, device, mode="mirrored"))
    assert bits(done) == alone[NORMALIZED]
    assert done.result["same_bits"] is True


@pytest.mark.parametrize(("workers", "others"), [(1, ()), (3, ()), (3, NORMALIZED)])
def test_workers_that_exchange_gradients_among_themselves(
    cluster: Cluster, alone: dict[tuple[str, ...], str], workers: int, others: tuple[str, ...]
) -> None:
    done = cluster.part(workers, 1).job("train", *settings(cluster, *others, mode="allreduce"))
    assert bits(done) == alone[others]
    wire = done.result["wire"]
    assert wire["pull_bytes_per_step"] + wire["push_bytes_per_step"] < 100, "the parameter server has no part in it"


def test_a_worker_that_takes_its_shard_along_ends_the_run_which_goes_on_without_it() -> None:
    with cluster_of(workers=2, servers=1) as own:
        own_recordings(own.folder / "mine.npz")
        expected = bits(own.job("train", *settings(own, mode="single", epochs=8)))
        long = settings(own, "jobs.train.checkpoint.every_seconds=0.2", mode="allreduce", epochs=8)
        with own.begun("train", *long) as job:
            own.metrics_when(job, "pscluster_train_steps_total", 40)
            own.kill("worker:1")
            lost = job.end()
        assert lost.code == ExitCode.SERVER_LOST, lost.errors
        assert "its part of them too" in lost.errors
        assert lost.folder is not None
        done = own.part(1, 1).job("train", *long, resumed=lost.folder)
        assert bits(done) == expected
        assert done.result["resumptions"] == 1


MEAN = ("jobs.train.averaging={start: 0.5}", "jobs.train.checkpoint.every_seconds=0.1")
MEAN_EPOCHS = 40


@pytest.fixture(scope="module")
def averaged(cluster: Cluster) -> str:
    """The digest of `mode: single` with a mean over the last epochs, which is not that without."""
    quiet = bits(cluster.job("train", *settings(cluster, mode="single", epochs=MEAN_EPOCHS)))
    expected = bits(cluster.job("train", *settings(cluster, *MEAN, mode="single", epochs=MEAN_EPOCHS)))
    assert expected != quiet
    return expected


@pytest.mark.parametrize("mode", ["single", "sync"])
def test_a_mean_over_the_last_epochs_has_the_same_bits_after_a_kill(cluster: Cluster, averaged: str, mode: str) -> None:
    """Killed when the mean has begun, and a checkpoint has a part of it."""
    mean = settings(cluster, *MEAN, mode=mode, epochs=MEAN_EPOCHS)
    with cluster.begun("train", *mean) as job:
        job.until(f"epoch  {MEAN_EPOCHS // 2 + 2}/")
        while not ((run := job.folder()) and newest(run) > (MEAN_EPOCHS // 2 + 1) * STEPS_AN_EPOCH):
            assert job.process.poll() is None, "it ended before it had a checkpoint of the mean"
            time.sleep(0.005)
        killed = job.kill()
    done = cluster.job("train", *mean, resumed=killed)
    assert bits(done) == averaged
    assert done.result["resumptions"] == 1


def newest(run: Path) -> int:
    """The update of the newest checkpoint; 0 before there is one."""
    return max((int(path.stem.partition("-")[2]) for path in run.glob("checkpoints/update-*.json")), default=0)


def test_whatever_happens_on_the_way() -> None:
    """A worker dies and returns, Ctrl-C, a coordinator that is killed; each goes on with other servers and workers."""
    with cluster_of(workers=4, servers=3) as own:
        own_recordings(own.folder / "mine.npz")
        whatever_happens(own)


def whatever_happens(cluster: Cluster) -> None:
    # `auto` is 4 for four workers, would be 2 for two, and stays what the run began with.
    auto = "jobs.train.micro_batches=auto"
    long = settings(cluster, *NORMALIZED, "jobs.train.checkpoint.every_seconds=0.2", auto, epochs=8)
    quiet = bits(cluster.job("train", *settings(cluster, *NORMALIZED, mode="single", epochs=8)))

    wide = cluster.part(4, 2)
    with wide.begun("train", *long) as job:
        wide.metrics_when(job, "pscluster_train_steps_total", 10)
        wide.kill("worker:3")
        wide.metrics_when(job, "pscluster_train_steps_total", 40)
        wide.start("worker:3")
        job.interrupt()
        cancelled = job.end()
    assert cancelled.code == 130, cancelled.errors
    assert cancelled.folder is not None

    narrow = cluster.part(2, 1)
    with narrow.begun("train", *long, resumed=cancelled.folder) as job:
        narrow.metrics_when(job, "pscluster_train_steps_total", 40)
        job.kill()

    done = cluster.part(4, 3).job("train", *long, resumed=cancelled.folder)
    assert bits(done) == quiet
    assert done.result["resumptions"] == 2
    assert done.result["micro_batches"] == {"number": 4, "why": "the run began with it"}
    assert "worker:3 left" in done.log
    assert done.folder is not None
    assert [event["epoch"] for event in done.epochs] == list(range(1, 9))
