"""The last figures of a job are read before its process ends."""

import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.jobs.job_metrics import TrainingMetrics
from cluster.jobs.run_folder import RunFolder
from core.ground.errors import ClusterError
from core.ground.waiting import until
from core.status.events import Diverged, Planned
from tests.cluster.jobs.kit import PlayedJob, inventory_in
from tests.hang import HANG_SECONDS

NAN = "the loss is nan"


def watched(folder: Path, during: Callable[[PlayedJob, str], None]) -> PlayedJob:
    """A training that serves its metrics, and does this meanwhile with their address."""
    inventory = inventory_in(folder)
    coordinator = inventory.task("coordinator", 0)

    def run(_: RunFolder) -> None:
        job.metrics.serve(coordinator)
        during(job, f"http://{coordinator.metrics_address}/metrics")

    job = PlayedJob(inventory, run)
    training = TrainingMetrics(job.metrics.registry, {"pull": "fp32", "push": "fp32"}, 60.0)
    job.stream.add(job.metrics.metered(training.consume))
    job.stream.emit(Planned(1, 0, 0.1))
    return job


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=HANG_SECONDS) as answer:
        return str(answer.read().decode())


def counted(job: PlayedJob) -> bool:
    """Whether a scrape counts: it does a moment after its reader has it."""
    assert job.metrics._exporter is not None
    scrapes = job.metrics._exporter.scrapes
    return until(lambda: scrapes.watched, HANG_SECONDS, 0.001)


def log_of(folder: Path) -> str:
    (path,) = folder.glob("runs/*/coordinator.log")
    return path.read_text()


def test_a_divergence_reaches_whoever_reads_the_metrics(tmp_path: Path) -> None:
    told: list[str] = []
    read_once = threading.Event()

    def scrape(url: str) -> None:
        told.append(read(url))
        read_once.set()
        while 'job_stage{role="coordinator",stage="ended",task="0"} 1.0' not in told[-1]:
            told.append(read(url))

    scrapers: list[threading.Thread] = []

    def diverge(job: PlayedJob, url: str) -> None:
        scrapers.append(threading.Thread(target=scrape, args=(url,)))
        scrapers[0].start()
        assert read_once.wait(HANG_SECONDS)
        assert counted(job)
        job.stream.emit(Diverged(NAN))
        raise ClusterError(NAN)

    with pytest.raises(ClusterError, match=NAN):
        watched(tmp_path, diverge).conducted(tmp_path / "runs")
    scrapers[0].join(HANG_SECONDS)
    assert 'pscluster_train_loss_finite{role="coordinator",task="0"} 0.0' in told[-1]
    assert "the last metrics were read" in log_of(tmp_path)


def test_nobody_is_waited_for_who_never_read(tmp_path: Path) -> None:
    watched(tmp_path, lambda job, url: None).conducted(tmp_path / "runs")
    assert "last metrics" not in log_of(tmp_path)


def test_nobody_is_waited_for_after_ctrl_c(tmp_path: Path) -> None:
    def during(job: PlayedJob, url: str) -> None:
        read(url)
        assert counted(job)
        job.cancel._asked.set()

    watched(tmp_path, during).conducted(tmp_path / "runs")
    assert "the last metrics were not read" in log_of(tmp_path)
