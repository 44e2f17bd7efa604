"""What a run took of a worker's memory goes back to the system when it is over."""

import threading
import time
from pathlib import Path

import pytest

from cluster.metrics.process import memory_bytes
from tests.jobs.cluster import HANG_SECONDS, Cluster, cluster_of, own_recordings

pytestmark = pytest.mark.long


def held(cluster: Cluster) -> int:
    """Anonymous bytes of the worker."""
    return memory_bytes(Path(f"/proc/{cluster.processes['worker:0'].pid}/status").read_text())["RssAnon"]


def test_a_worker_is_small_again_after_each_run() -> None:
    with cluster_of(workers=1) as cluster:
        own_recordings(cluster.folder / "mine.npz")
        for _ in range(2):
            highest, over = 0, threading.Event()

            def watch(over: threading.Event) -> None:
                nonlocal highest
                while not over.wait(0.05):
                    highest = max(highest, held(cluster))

            watcher = threading.Thread(target=watch, args=(over,))
            watcher.start()
            done = cluster.job(
                "train", f"jobs.train.data.source={cluster.folder / 'mine.npz'}", "jobs.train.model.hidden=32",
                "jobs.train.batch_size=96", "jobs.train.micro_batches=16", "jobs.train.epochs=2",
            )  # fmt: skip
            over.set()
            watcher.join()
            assert done.code == 0, done.errors
            end = time.monotonic() + HANG_SECONDS
            while held(cluster) > 0.85 * highest:
                assert time.monotonic() < end, f"{held(cluster)} bytes of {highest} are still held"
                time.sleep(0.1)
