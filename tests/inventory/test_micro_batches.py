"""What `auto` comes to, for clusters that there are."""

import pytest

from cluster.inventory.micro_batches import auto_micro_batches, cores_of_workers
from cluster.inventory.task import Task
from cluster.inventory.training import TrainJob

PIS = [4] * 16


def workers(*nodes: str) -> list[Task]:
    return [Task("worker", index, node, node, 2223, 9201) for index, node in enumerate(nodes)]


@pytest.mark.parametrize(
    ("cores", "batch_size", "number"),
    [
        (PIS, 100, 4),
        ([1], 100, 1),
        ([4, 4, 16], 100, 4),
        ([4, 16, 16], 100, 12),
        ([2, 16], 100, 2),
        ([4, 4], 20, 2),
        ([4, 4], 5, 1),
        ([128], 4096, 64),
        ([], 100, 4),
    ],
    ids=["Pis", "one core", "most have four", "eight windows at least", "a tie", "small", "tiny", "most", "unknown"],
)
@pytest.mark.parametrize("mode", ["async", "ssp", "local"])
def test_a_worker_that_computes_whole_batches_gets_one_a_core(
    mode: str, cores: list[int], batch_size: int, number: int
) -> None:
    assert auto_micro_batches(mode, batch_size, max(1, len(cores)), cores).number == number


@pytest.mark.parametrize(
    ("count", "cores", "batch_size", "number"),
    [
        (16, PIS, 100, 16),
        (1, [4], 100, 4),
        (2, [4, 4], 100, 8),
        (4, [4] * 4, 100, 8),
        (5, [1] * 5, 100, 8),
        (17, [4] * 17, 100, 32),
        (100, [4] * 100, 1000, 64),
        (64, [4] * 64, 20, 16),
        (16, [], 100, 16),
        (2, [1], 100, 2),
    ],
)
@pytest.mark.parametrize("mode", ["sync", "allreduce"])
def test_a_step_that_all_share_is_a_power_of_two_that_leaves_nobody_idle(
    mode: str, count: int, cores: list[int], batch_size: int, number: int
) -> None:
    assert auto_micro_batches(mode, batch_size, count, cores).number == number


@pytest.mark.parametrize("mode", ["async", "sync", "single", "local", "ssp", "allreduce", "mirrored"])
@pytest.mark.parametrize("batch_size", [1, 7, 8, 100, 65_536])
def test_any_batch_can_be_cut_into_it(mode: str, batch_size: int) -> None:
    for count in (1, 3, 64, 1000):
        for cores in ([], [4] * count, [1] * count, [256] * count):
            found = auto_micro_batches(mode, batch_size, count, cores)
            assert 1 <= found.number <= min(64, batch_size)
            assert TrainJob.model_validate({"batch_size": batch_size, "micro_batches": found.number}).pieces
            assert found.why


def test_why_names_the_cores_or_the_workers() -> None:
    assert auto_micro_batches("async", 100, 3, [4, 4, 16]).why == "one a core: 2 of 3 workers have 4 each"
    assert auto_micro_batches("sync", 100, 16, PIS).why == "one for each of 16 workers, a power of two"
    assert "4 are usual" in auto_micro_batches("async", 100, 2, []).why


def test_workers_of_one_node_share_its_cores() -> None:
    assert cores_of_workers(workers("a", "a", "b", "c"), {"a": 8, "b": 4}) == [4, 4, 4]
    assert cores_of_workers(workers("a", "a", "a"), {"a": 2}) == [1, 1, 1]


def test_a_job_that_is_still_auto_has_no_number() -> None:
    job = TrainJob()
    assert job.micro_batches == "auto"
    with pytest.raises(ValueError, match="got auto"):
        job.pieces  # noqa: B018
    assert job.cut_into(4).pieces == 4
