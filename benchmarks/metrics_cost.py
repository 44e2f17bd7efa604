"""What the metrics cost, as a share of the CPU seconds of a training.

A parameter server, workers and a coordinator train three plain layers on synthetic recordings while
something reads each `/metrics` every 5 s, as a Prometheus would, and once more every second. Each
process says what it spent: `pscluster_exporter_cpu_seconds_total` is the CPU time of the threads
that answer and sample and, in the coordinator, of the consumers that fill the registry;
`pscluster_process_cpu_seconds_total` is all of it. Counted while the coordinator can be read, to
its last reading, for which it waits: what loading TensorFlow costs is not in the total.
"""

import threading
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from benchmarks import viewers
from benchmarks.beds.local_cluster import PLAIN_LAYERS, LocalCluster, local_cluster
from benchmarks.report import arguments, publish, tell

INTERVALS_SECONDS = {"full": (5.0, 1.0), "quick": (5.0, 1.0), "smoke": (0.5, 0.2)}
"""The usual one, and a shorter one."""
SECONDS = {"full": 60.0, "quick": 15.0, "smoke": 2.0}
"""Of training, about."""
WORKERS = {"full": 2, "quick": 2, "smoke": 1}
SETTINGS = (
    "jobs.train.data.source=synthetic",
    "jobs.train.validation_subjects=0",
    "jobs.train.refit=false",
)
ANSWER_SECONDS = 5.0
UNTIL_IT_LISTENS_SECONDS = 0.1
COORDINATOR = "coordinator:0"
COST = "pscluster_exporter_cpu_seconds_total"
TOTAL = "pscluster_process_cpu_seconds_total"


@dataclass(frozen=True)
class Spent:
    """CPU seconds of one process: of its metrics, and of all of it."""

    metrics: float
    total: float

    def __sub__(self, other: "Spent") -> "Spent":
        return Spent(self.metrics - other.metrics, self.total - other.total)


class Reader:
    """Reads each `/metrics` again and again, from entering to leaving the context."""

    def __init__(self, addresses: Mapping[str, str], every_seconds: float) -> None:
        self._every_seconds = every_seconds
        self.readings: dict[str, list[tuple[float, Spent]]] = {name: [] for name in addresses}
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._read, args=place) for place in addresses.items()
        ]

    def __enter__(self) -> "Reader":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def spent(self) -> dict[str, Spent]:
        """Return what each task spent between the first and the last reading of the coordinator."""
        times = [when for when, _ in self.readings[COORDINATOR]]
        during = {
            name: [spent for when, spent in readings if times[0] <= when <= times[-1]]
            for name, readings in self.readings.items()
        }
        return {name: found[-1] - found[0] for name, found in during.items()}

    def _read(self, name: str, address: str) -> None:
        while True:
            try:
                found = spent_of(f"http://{address}/metrics")
            except OSError:  # the coordinator, before it listens or after it ended
                pause = UNTIL_IT_LISTENS_SECONDS
            else:
                self.readings[name].append((time.monotonic(), found))
                pause = self._every_seconds
            if self._stop.wait(pause):
                return


def spent_of(url: str) -> Spent:
    """The CPU seconds that a process reports. Raises OSError without an answer."""
    with urllib.request.urlopen(url, timeout=ANSWER_SECONDS) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        values = {sample.name: sample.value for family in families for sample in family.samples}
    return Spent(values[COST], values[TOTAL])


def measure(
    cluster: LocalCluster, settings: list[str], every_seconds: float
) -> list[dict[str, Any]]:
    """One training; a row for each process."""
    addresses = {task.name: task.metrics_address for task in cluster.inventory.tasks()}
    with Reader(addresses, every_seconds) as reader:
        cluster.job("train", settings)
    return [
        {
            "every_seconds": every_seconds,
            "task": name,
            "readings": len(reader.readings[name]),
            "metrics_cpu_seconds": spent.metrics,
            "total_cpu_seconds": spent.total,
            "percent": percent([spent]),
        }
        for name, spent in reader.spent().items()
    ]


def percent(all_spent: list[Spent]) -> float:
    """Share of the metrics, of all these processes together."""
    return 100 * sum(spent.metrics for spent in all_spent) / sum(spent.total for spent in all_spent)


def summarize(rows: list[dict[str, Any]], viewers_percent: float) -> dict[str, Any]:
    """All processes together, read as often as a Prometheus would, and every second.

    The page with fifty viewers.
    """
    usual, often = dict.fromkeys(row["every_seconds"] for row in rows)

    def together(every_seconds: float) -> float:
        chosen = [row for row in rows if row["every_seconds"] == every_seconds]
        return percent(
            [Spent(row["metrics_cpu_seconds"], row["total_cpu_seconds"]) for row in chosen]
        )

    return {
        "percent": together(usual),
        "percent_read_every_second": together(often),
        "viewers_percent": viewers_percent,
    }


def main() -> None:
    """Train twice and print the object."""
    parser = arguments("metrics_cost", "CPU seconds of the metrics over all of a training's.")
    parser.add_argument("--workers", type=int, help="default 2")
    parser.add_argument(
        "--hidden", type=int, default=32, help="units of a layer: fewer make more steps a second"
    )
    parser.add_argument("--seconds", type=float, help="of training, about; default 60")
    given = parser.parse_args()
    seconds = given.seconds or SECONDS[given.size]
    workers = given.workers or WORKERS[given.size]
    rows: list[dict[str, Any]] = []
    with local_cluster(workers) as cluster:
        layers = PLAIN_LAYERS.format(given.hidden)
        settings = cluster.about(seconds, [*SETTINGS, layers])
        for every_seconds in INTERVALS_SECONDS[given.size]:
            rows += measure(cluster, settings, every_seconds)
            for row in rows[-workers - 2 :]:
                tell(
                    f"every {every_seconds:g} s, {row['task']}: {row['metrics_cpu_seconds']:.3f} of"
                    f" {row['total_cpu_seconds']:.1f} CPU s ({row['percent']:.2f} %),"
                    f" {row['readings']} readings"
                )
        watched = viewers.measure(cluster, settings)
        tell(f"{watched['viewers']} viewers: {watched['percent']:.2f} %")
    publish("metrics_cost", rows, summarize(rows, watched["percent"]), given)


if __name__ == "__main__":
    main()
