"""`mode: sync` gives the golden bits whatever the cluster is, and whatever happens to it."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.cluster.conftest import Pool
from tests.cluster.jobs.cluster import Cluster, Done, cluster_of
from tests.cluster.jobs.golden import golden, recipes
from tests.cluster.jobs.golden import trained as trained_alone
from tests.tables import table

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

STEPS_AN_EPOCH = 20
PLAIN = ()
NORMALIZED = ("model.batch_norm=true", "keep_probability=0.8")
FP16 = ("codec={name: fp16}",)
COMMON = ("epochs=3", "slots=4", "validation_subjects=0")
LONGER = ("epochs=8", *COMMON[1:])

Words = Sequence[str]


@pytest.fixture
def cluster(clusters: Pool) -> Cluster:
    return clusters(4, 3)


def bits(done: Done) -> str:
    """The digest of a run that was trained to its end, every step applied once."""
    assert done.updates == done.result["epochs_done"] * STEPS_AN_EPOCH
    return str(done.result["parameters_sha256"])


def trained(cluster: Cluster, *words: str, **how: Any) -> Done:
    """The training of `words`; it is of `mode: sync` where they do not say another."""
    return cluster.train("mode=sync", *COMMON, *words, **how)


@pytest.mark.parametrize("name", recipes())
def test_one_process_gives_the_golden_bits(name: str) -> None:
    recipe = recipes()[name]
    with cluster_of(1, start=False) as cluster:
        assert trained_alone(cluster, recipe["settings"], recipe["small"]) == recipe


def test_older_coordinators_give_the_bits_of_the_recipe_that_a_first_run_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its statistics are measured, its epoch is chosen and its model is tested on each of them."""
    recipe = recipes()["unseen"]
    with cluster_of(1, start=False) as cluster:
        for oldest in ("AVX2", "AVX", "SSE41"):
            monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", oldest)
            assert trained_alone(cluster, recipe["settings"], recipe["small"]) == recipe


def test_other_settings_give_other_bits() -> None:
    found = recipes()
    assert len({recipe["parameters_sha256"] for recipe in found.values()}) == len(found)


@pytest.mark.parametrize(
    ("workers", "servers", "of", "words"),
    table("cluster/jobs/rows", "workers and servers"),
)
def test_any_number_of_workers_and_servers(
    cluster: Cluster, workers: int, servers: int, of: Words, words: Words
) -> None:
    done = trained(cluster.part(workers, servers), *of, *words)
    assert (done.result["workers"], done.result["ps"]) == (workers, servers)
    assert bits(done) == golden((*COMMON, *of))


@pytest.mark.parametrize(("workers", "words"), [(1, PLAIN), (3, PLAIN), (3, NORMALIZED)])
def test_workers_that_exchange_gradients_among_themselves(
    cluster: Cluster, workers: int, words: Words
) -> None:
    done = trained(cluster.part(workers, 1), "mode=allreduce", *words)
    assert bits(done) == golden((*COMMON, *words))
    wire = done.result["wire"]
    assert wire["pull_bytes_per_step"] + wire["push_bytes_per_step"] < 100, (
        "the parameter server has no part in it"
    )


def test_whatever_happens_on_the_way(cluster: Cluster) -> None:
    """A worker returns, Ctrl-C, a killed coordinator; each goes on with other machines."""
    # `auto` is 4 for four workers, would be 2 for two, and stays what the run began with.
    words = ("mode=sync", *LONGER, *NORMALIZED, "checkpoint.every_updates=15", "slots=auto")

    wide = cluster.part(4, 2)
    with wide.held(10, 40, 70, words=words) as job:
        job.let_go(10)
        wide.kill("worker:3")
        job.until_held(40)
        wide.start("worker:3")
        job.let_go(40)
        run = job.cancelled().run

    narrow = cluster.part(2, 1)
    with narrow.held(110, words=words, resumed=run) as job:
        job.kill()

    done = cluster.train(*words, resumed=run)
    assert bits(done) == golden((*LONGER, *NORMALIZED))
    assert done.result["resumptions"] == 2
    assert done.result["slots"] == {"number": 4, "why": "the run began with it"}
    assert "worker:3 left" in done.log
    assert [event["epoch"] for event in done.epochs] == list(range(1, 9))
