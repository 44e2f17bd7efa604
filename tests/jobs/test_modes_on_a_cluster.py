"""Every mode trains to its end on a real cluster, with what is special to it."""

from collections.abc import Iterator

import pytest

from tests.jobs.cluster import SMALL, Cluster, Done, cluster_of, own_recordings

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

BATCHES = 20
WORKERS = 2


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with cluster_of(workers=WORKERS, servers=2) as running:
        own_recordings(running.folder / "mine.npz")
        yield running


def trained(cluster: Cluster, mode: str, *others: str, epochs: int = 4) -> Done:
    """Trained to the end, each update applied once."""
    source = f"jobs.train.data.source={cluster.folder / 'mine.npz'}"
    settings = (f"jobs.train.mode={mode}", f"jobs.train.epochs={epochs}", "jobs.train.validation_subjects=0", *others)
    done = cluster.job("train", source, *SMALL, *settings)
    assert done.code == 0, done.errors
    updates = done.result["updates"]
    assert updates["applied"] == updates["scheduled"]
    assert done.result["epochs_done"] == epochs
    return done


def losses(done: Done) -> list[float]:
    return [event["loss"] for event in done.epochs]


@pytest.mark.parametrize("bound", [0, 1])
def test_ssp_bounds_what_an_update_may_miss(cluster: Cluster, bound: int) -> None:
    done = trained(cluster, "ssp", f"jobs.train.ssp.bound={bound}", "jobs.train.replay_worst_batches=3")
    assert done.result["updates"]["scheduled"] == 4 * (BATCHES + 3)
    # While an update of a clock is under way, those of `bound` clocks before it, its own and `bound` after it may end.
    assert done.result["staleness"]["maximum"] <= (2 * bound + 1) * WORKERS - 1
    assert losses(done)[-1] < losses(done)[0]


def test_local_pushes_once_for_several_batches_and_the_last_ones_of_an_epoch_too(cluster: Cluster) -> None:
    done = trained(cluster, "local", "jobs.train.local.steps=8", "jobs.train.replay_worst_batches=3")
    # 20 batches are two groups of eight and one of four; the three repeated ones are one more.
    assert done.result["updates"]["scheduled"] == 4 * (3 + 1)
    assert losses(done)[-1] < losses(done)[0]


def test_topk_sends_a_part_and_trains(cluster: Cluster) -> None:
    optimizer = "jobs.train.optimizer={name: sgd, learning_rate: 0.1, momentum: 0.0}"
    whole = trained(cluster, "async", optimizer, epochs=2)
    part = trained(cluster, "async", optimizer, "jobs.train.codec={name: topk, density: 0.05, momentum: 0.5}", epochs=8)
    sent = [done.result["wire"]["push_bytes_per_step"] for done in (part, whole)]
    assert sent[0] < 0.5 * sent[1]
    assert losses(part)[-1] < losses(part)[0]


def test_topk_with_a_warm_up_and_local_clipping_trains(cluster: Cluster) -> None:
    optimizer = "jobs.train.optimizer={name: sgd, learning_rate: 0.1, momentum: 0.0}"
    codec = "{{name: topk, density: 0.01, momentum: 0.5, clip_norm: 2.0, warmup_epochs: {}}}"
    cold, warm = (
        trained(cluster, "async", optimizer, f"jobs.train.codec={codec.format(epochs)}", epochs=4) for epochs in (0, 3)
    )
    assert losses(warm)[-1] < losses(warm)[0]
    # A mean of 9 % of 2,292 values instead of 1 %, 8 bytes each: some 1,500 bytes more a step.
    more = warm.result["wire"]["push_bytes_per_step"] - cold.result["wire"]["push_bytes_per_step"]
    assert 1_000 < more < 3_000


def test_a_worker_s_server_compiles_with_xla_and_the_run_says_what_ran_where(cluster: Cluster) -> None:
    fused = trained(cluster, "sync", epochs=1)
    compiled = trained(cluster, "sync", "jobs.train.model.kernel=xla", "jobs.train.tensorboard=true", epochs=1)
    assert losses(compiled)[0] == pytest.approx(losses(fused)[0], rel=1e-3)
    assert compiled.result["final"]["loss"] == pytest.approx(fused.result["final"]["loss"], rel=1e-2)
    ran = {task["task"]: task for task in fused.result["busy"]["tasks"]}
    assert set(ran) == {"ps:0", "ps:1", "worker:0", "worker:1", "coordinator:0"}
    assert all(task["cpu_seconds"] > 0 and 0 < task["cpu_share"] <= 1 for task in ran.values())
    assert [name for name, task in ran.items() if task["computes"]] == ["worker:0", "worker:1"]
    assert compiled.folder is not None
    assert {path.parent.name for path in compiled.folder.glob("tensorboard/*/events*")} == {"train", "test"}


@pytest.mark.parametrize("mode", ["sync", "single"])
def test_a_refit_and_repeated_batches_under_whole_steps(cluster: Cluster, mode: str) -> None:
    others = ("jobs.train.refit=true", "jobs.train.validation_subjects=[2]", "jobs.train.replay_worst_batches=3")
    done = trained(cluster, mode, *others, epochs=2)
    assert done.result["refit"] is True
    assert done.result["updates"]["scheduled"] == 2 * (15 + 3) + 2 * (BATCHES + 3)
    assert done.result["staleness"]["maximum"] == 0
    assert done.folder is not None
    assert [event["stage"] for event in done.epochs] == ["train", "train", "refit", "refit"]


@pytest.mark.parametrize("codec", ["{name: fp16}", "{name: topk, density: 0.1, momentum: 0.0}"])
def test_the_figures_are_those_of_the_stored_model_to_the_bit(cluster: Cluster, codec: str) -> None:
    """With `fp16` they used to be those of rounded parameters."""
    done = trained(cluster, "async", f"jobs.train.codec={codec}", epochs=2)
    source = f"jobs.train.data.source={cluster.folder / 'mine.npz'}"
    again = cluster.job("evaluate", source, f"jobs.evaluate.run={done.folder}", flags=["--json", "--quiet"])
    assert again.code == 0, again.errors
    for key in ("parameters_sha256", "final", "confusion"):
        assert again.result[key] == done.result[key]


@pytest.mark.parametrize("mode", ["async", "local"])
def test_a_worker_that_is_killed_takes_what_it_kept_along_and_the_result_says_so(mode: str) -> None:
    with cluster_of(workers=2, servers=1) as own:
        own_recordings(own.folder / "mine.npz")
        settings = [f"jobs.train.data.source={own.folder / 'mine.npz'}", f"jobs.train.mode={mode}"]
        settings += ["jobs.train.epochs=30", "jobs.train.validation_subjects=0", "jobs.train.local.steps=2"]
        settings += ["jobs.train.codec={name: topk, density: 0.1, momentum: 0.0}"]
        with own.begun("train", *SMALL, *settings) as job:
            job.until("epoch   2/")
            own.kill("worker:1")
            own.start("worker:1")
            done = job.end()
        assert done.code == 0, done.errors
        updates = done.result["updates"]
        assert updates["applied"] == updates["scheduled"]
        assert updates["memories_lost"] == ("worker:1 is back" in done.log)
