"""What a run took of a worker's memory goes back to the system when it is over."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.metrics.process import memory_bytes
from tests.cluster.jobs.cluster import HANG_SECONDS, Cluster, cluster_of

pytestmark = pytest.mark.long


def held(cluster: Cluster) -> int:
    """Anonymous bytes of the worker."""
    status = Path(f"/proc/{cluster.processes['worker:0'].pid}/status").read_text()
    return memory_bytes(status)["RssAnon"]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """One of its own: of a worker that other tests used more is held all the time."""
    with cluster_of(workers=1) as started:
        yield started


def test_a_worker_is_small_again_after_each_run(cluster: Cluster) -> None:
    words = ("model.hidden=128", "batch_size=96", "slots=16", "epochs=1")
    settings = [f"jobs.train.{word}" for word in (f"data.source={cluster.mine}", *words)]
    for _ in range(2):
        seen = [0]
        over = threading.Event()

        def watch(seen: list[int], over: threading.Event) -> None:
            while not over.wait(0.05):
                seen.append(held(cluster))

        watcher = threading.Thread(target=watch, args=(seen, over))
        watcher.start()
        cluster.job("train", *settings, code=0)
        over.set()
        watcher.join()
        end = time.monotonic() + HANG_SECONDS
        while held(cluster) > 0.85 * max(seen):
            assert time.monotonic() < end, f"{held(cluster)} bytes of {max(seen)} are still held"
            time.sleep(0.1)
