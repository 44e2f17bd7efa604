"""Anonymous memory of the role processes, idle and training: the lean server beside `tf.distribute.Server`.

For each of the two: a parameter server and workers are started as processes, the job `train` of three plain
layers of 32 units runs on synthetic recordings, and RssAnon of /proc/<pid>/status is read throughout. Anonymous memory
is what a node must hold; pages of the wheel's libraries are in its files and can be evicted.
"""

import statistics
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.local_cluster import LocalCluster, local_cluster
from benchmarks.report import arguments, publish

SERVERS = ("lean", "stock")
SAMPLE_SECONDS = 0.1
IDLE_SAMPLES = 20
MEGABYTE = 1e6
MODEL = "{name: thesis, n_layers_in_highway: 0, n_stacked_layers: 3, bidirectional: false, hidden: 32}"


def anonymous_bytes(process_id: int) -> int:
    """Resident anonymous memory of a process. Raises OSError when it is gone."""
    with open(f"/proc/{process_id}/status") as stream:
        return 1024 * next(int(line.split()[1]) for line in stream if line.startswith("RssAnon:"))


class Sampler:
    """Reads the anonymous memory of some processes over and over, from entering to leaving the context."""

    def __init__(self, process_ids: Mapping[str, int], every_seconds: float = SAMPLE_SECONDS) -> None:
        self.samples: dict[str, list[int]] = {name: [] for name in process_ids}
        self._process_ids, self._every_seconds = process_ids, every_seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory")

    def __enter__(self) -> "Sampler":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            for name, process_id in self._process_ids.items():
                try:
                    self.samples[name].append(anonymous_bytes(process_id))
                except OSError:  # it died: the job that needs it says so
                    return
            if self._stop.wait(self._every_seconds):
                return


def measure(server: str, workers: int, epochs: int) -> list[dict[str, Any]]:
    """A row for each role process of one kind of server."""
    with local_cluster(workers, servers=1, server=server) as cluster:
        process_ids = {name: process.pid for name, process in cluster.processes.items()}
        with Sampler(process_ids) as idle:
            time.sleep(IDLE_SAMPLES * SAMPLE_SECONDS)
        with Sampler(process_ids) as training:
            result = _train(cluster, epochs)
    return [
        {
            "server": server,
            "task": name,
            "idle_anonymous_mb": statistics.median(idle.samples[name]) / MEGABYTE,
            "training_anonymous_mb": max(training.samples[name]) / MEGABYTE,
            "samples": len(training.samples[name]),
            "windows": result["dataset"]["train_windows"] * result["epochs_done"],
            "parameters": result["model"]["parameters"],
        }
        for name in process_ids
    ]


def _train(cluster: LocalCluster, epochs: int) -> dict[str, Any]:
    settings = ["data.source=synthetic", f"model={MODEL}", f"epochs={epochs}", "refit=false"]
    return cluster.job("train", [f"jobs.train.{setting}" for setting in settings])


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Of the parameter server idle, and of the largest worker at its highest while training; `stock` beside it."""

    def of(server: str) -> dict[str, float]:
        chosen = [row for row in rows if row["server"] == server]
        return {
            "ps_idle_anonymous_mb": max(row["idle_anonymous_mb"] for row in chosen if row["task"].startswith("ps")),
            "worker_training_anonymous_mb": max(
                row["training_anonymous_mb"] for row in chosen if row["task"].startswith("worker")
            ),
            "ps_training_anonymous_mb": max(
                row["training_anonymous_mb"] for row in chosen if row["task"].startswith("ps")
            ),
        }

    return {**of("lean"), "stock": of("stock")}


def main() -> None:
    """Measure both and print the object. Quick, they run side by side: time is not what is measured."""
    given = arguments("memory", "Anonymous memory of role processes, beside tf.distribute.Server's.").parse_args()
    workers, epochs = (1, 1) if given.quick else (2, 3)
    rows: list[dict[str, Any]] = []
    with ThreadPoolExecutor(len(SERVERS) if given.quick else 1) as pool:
        for found in pool.map(lambda server: measure(server, workers, epochs), SERVERS):
            rows += found
            print("\n".join(_line(row) for row in found), file=sys.stderr, flush=True)
    publish("memory", rows, summarize(rows), as_json=given.json)


def _line(row: dict[str, Any]) -> str:
    idle, training = row["idle_anonymous_mb"], row["training_anonymous_mb"]
    return f"{row['server']} {row['task']}: idle {idle:.0f} MB, at most {training:.0f} MB in training"


if __name__ == "__main__":
    main()
