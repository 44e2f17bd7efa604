"""Anonymous memory of a node's processes, idle and training.

The lean server beside `tf.distribute.Server` and Keras.

For each case a parameter server and workers are started as processes, three plain layers are
trained on synthetic recordings, and RssAnon of /proc/<pid>/status is read throughout, the
coordinator's too. The job `train` does that with 32 units on both kinds of server and with 128 on
the lean one, and there with sixteen micro-batches in `sync` too, which take most; Keras does it
under ParameterServerStrategy on stock servers (`benchmarks.coordinators.memory`). Anonymous memory
is what a node must hold; pages of the wheel's libraries are in its files and can be evicted.
"""

import statistics
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.beds.local_cluster import PLAIN_LAYERS, LocalCluster, local_cluster
from benchmarks.report import arguments, memory_bytes, publish, tell

SAMPLE_SECONDS = 0.1
IDLE_SAMPLES = 20
KERAS_STEPS_OF_EPOCH = 5
KERAS_DEADLINE_SECONDS = 900.0
"""ParameterServerStrategy has no deadline of its own: when a call of its never returns, this ends
it."""
MEGABYTE = 1e6
NARROW = 32


@dataclass(frozen=True)
class Case:
    """What trains three plain layers of `units`, on which kind of servers.

    `sync` with as many micro-batches.
    """

    server: str
    trainer: str
    units: int
    sync_micro_batches: int | None = None


KERAS = Case("stock", "keras", NARROW)
SIXTEEN = Case("lean", "pscluster", NARROW, 16)
CASES = {
    Case("lean", "pscluster", 128): "",
    Case("lean", "pscluster", NARROW): "",
    Case("stock", "pscluster", NARROW): "stock",
    KERAS: "stock_keras",
    Case("lean", "pscluster", 128, 16): "sixteen",
    SIXTEEN: "sixteen",
}
"""The part of the summary for each case. Idle, a server does not know how wide the layers will be:
that figure is the narrow case's, which comes last."""
SIZES = {"full": (2, 2, [*CASES]), "quick": (1, 1, [*CASES]), "smoke": (1, 1, [SIXTEEN, KERAS])}
"""Workers, epochs and cases."""


class Sampler:
    """Reads the anonymous memory of some processes again and again inside the context."""

    def __init__(
        self, process_ids: Mapping[str, int], every_seconds: float = SAMPLE_SECONDS
    ) -> None:
        self.samples: dict[str, list[int]] = {name: [] for name in process_ids}
        self._process_ids = process_ids
        self._every_seconds = every_seconds
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
                    self.samples[name].append(memory_bytes(process_id))
                except OSError:  # it died: the job that needs it reports that
                    return
            if self._stop.wait(self._every_seconds):
                return


def measure(case: Case, workers: int, epochs: int) -> list[dict[str, Any]]:
    """A row for each process of one case.

    Its role processes, and the coordinator, which has no idle time.
    """
    with local_cluster(workers, servers=1, server=case.server) as cluster, ExitStack() as samplers:
        process_ids = {name: process.pid for name, process in cluster.processes.items()}
        with Sampler(process_ids) as idle:
            time.sleep(IDLE_SAMPLES * SAMPLE_SECONDS)
        training: dict[str, list[int]] = {}

        def watch(process_ids: Mapping[str, int]) -> None:
            training.update(samplers.enter_context(Sampler(process_ids)).samples)

        watch(process_ids)
        trained = _train(
            cluster, case, epochs, lambda process_id: watch({"coordinator:0": process_id})
        )
    return [
        {
            **asdict(case),
            "task": name,
            "idle_anonymous_mb": (
                statistics.median(idle.samples[name]) / MEGABYTE if name in process_ids else None
            ),
            "training_anonymous_mb": max(samples) / MEGABYTE,
            "samples": len(samples),
            **trained,
        }
        for name, samples in training.items()
    ]


def _train(
    cluster: LocalCluster, case: Case, epochs: int, started: Callable[[int], None]
) -> dict[str, Any]:
    if case.trainer == "keras":
        # A step of the tutorial's takes ten of ours, and its processes are at their largest after a
        # few.
        flags = ["--units", str(case.units), "--steps", str(KERAS_STEPS_OF_EPOCH * epochs)]
        return cluster.coordinate(
            "benchmarks.coordinators.memory", [], flags, started, KERAS_DEADLINE_SECONDS
        )
    settings = [
        PLAIN_LAYERS.format(case.units),
        "jobs.train.data.source=synthetic",
        f"jobs.train.epochs={epochs}",
        "jobs.train.refit=false",
    ]
    # The estimate of `check` is drawn through these, so the number of micro-batches does not follow
    # this machine.
    settings.append(f"jobs.train.slots={case.sync_micro_batches or 4}")
    if case.sync_micro_batches is not None:
        settings.append("jobs.train.mode=sync")
    result = cluster.job("train", settings, started)
    windows = result["dataset"]["train_windows"] * result["epochs_done"]
    return {"windows": windows, "parameters": result["model"]["parameters"]}


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the idle memory of the parameter server, and the highest of each role while it trains.

    Three plain layers of 32 units on lean servers; those of 128 with `h128` in the key; `sixteen`
    are the same with sixteen micro-batches in `sync`; `stock` are the first job's figures on
    `tf.distribute.Server`, `stock_keras` those of Keras under ParameterServerStrategy on it.
    """
    summary: dict[str, dict[str, Any]] = {part: {} for part in CASES.values()}
    for case, part in CASES.items():
        figures = summary[part]
        wide = "" if case.units == NARROW else f"h{case.units}_"
        for row in rows:
            if any(row[key] != value for key, value in asdict(case).items()):
                continue
            role = row["task"].partition(":")[0]
            key = f"{role}_training_{wide}anonymous_mb"
            most = row["training_anonymous_mb"]
            figures[key] = max(most, figures.get(key, most))
            if role == "ps":
                figures["ps_idle_anonymous_mb"] = row["idle_anonymous_mb"]
    return summary.pop("") | summary


def main() -> None:
    """Measure all cases side by side, for time is not what is measured, and print the object."""
    given = arguments(
        "memory", "Anonymous memory of a node's processes, beside tf.distribute.Server's."
    ).parse_args()
    workers, epochs, cases = SIZES[given.size]
    rows: list[dict[str, Any]] = []
    with ThreadPoolExecutor(len(cases)) as pool:
        for found in pool.map(lambda case: measure(case, workers, epochs), cases):
            rows += found
            tell("\n".join(_line(row) for row in found))
    publish("memory", rows, summarize(rows), given)


def _line(row: dict[str, Any]) -> str:
    idle = row["idle_anonymous_mb"]
    if idle is None:
        before = ""
    else:
        before = f"idle {idle:.0f} MB, "
    if row["sync_micro_batches"] is None:
        pieces = ""
    else:
        pieces = f", sync x {row['sync_micro_batches']}"
    return (
        f"{row['server']}, {row['trainer']}, h{row['units']}{pieces}, {row['task']}: {before}"
        f"at most {row['training_anonymous_mb']:.0f} MB in training"
    )


if __name__ == "__main__":
    main()
