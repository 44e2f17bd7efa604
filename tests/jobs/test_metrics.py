"""A coordinator exports what the catalogue says, and so does a role; the last figures are read."""

import os
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric as Family

from cluster.engine.codecs import Codec
from cluster.engine.membership import Membership, Phase
from cluster.engine.messages import Answered, Item, Joined
from cluster.errors import ClusterError
from cluster.inventory.codecs import Fp16Codec, Fp32Codec, TopKCodec
from cluster.inventory.task import Task
from cluster.jobs.cancel import Cancel
from cluster.jobs.codec_choice import wire_codecs
from cluster.jobs.coordinator_metrics import CoordinatorMetrics
from cluster.jobs.figures import Figures
from cluster.jobs.job_metrics import JobMetrics, Stage
from cluster.jobs.lifecycle import conduct
from cluster.jobs.observer import EpochReport, Observer, Observers, Update, WorkedStep
from cluster.jobs.pi_metrics import PiMetrics
from cluster.jobs.run_folder import RunFolder
from cluster.jobs.training_metrics import TrainingMetrics
from cluster.jobs.wire import Traffic
from cluster.metrics import catalogue, standard
from cluster.metrics.catalogue import Metric, exported_by, metric
from cluster.metrics.filesystems import FilesystemCollector
from cluster.metrics.instruments import Identity
from cluster.metrics.node import NodeCollector, Throttling
from cluster.metrics.process import Cost
from ps_node.shard import Totals
from tests.jobs.cluster import free_port

NFS = "22 1 179:2 / / rw - ext4 /dev/sda1 rw\n61 22 0:51 / /mnt rw - nfs4 192.168.1.26:/srv rw\n"
FIGURES = Figures(0.9, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8, 0.5)
HANG_SECONDS = 60.0


def samples(registry: CollectorRegistry, name: str) -> dict[tuple[str, ...], float]:
    """Values of one series, by the values of its labels in the order of their names."""
    return {
        tuple(sample.labels[label] for label in sorted(sample.labels)): sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == name
    }


def agrees(family: Family, entry: Metric) -> None:
    """What is exported is what the entry says."""
    assert (family.type, family.documentation) == (entry.kind, entry.help), entry.name
    for sample in family.samples:
        assert set(sample.labels) - {"le"} == set(entry.label_names), sample
        assert sample.name in entry.series, sample
        for label, values in entry.labels.items():
            assert not values or sample.labels[label] in values, sample
        assert entry.subject == "itself" or sample.labels["role"] == "worker", sample
    if entry.buckets:
        found = [sample.labels["le"] for sample in family.samples if sample.name.endswith("_bucket")]
        assert [float(bound) for bound in dict.fromkeys(found)] == [*entry.buckets, float("inf")]


def exported(registry: CollectorRegistry) -> dict[str, Family]:
    families = [family for family in registry.collect() if family.samples]
    assert len({family.name for family in families}) == len(families)
    return {family.name: family for family in families}


@pytest.fixture
def everywhere() -> Iterator[CollectorRegistry]:
    """What this machine's process exports."""
    registry, identity = CollectorRegistry(), Identity("worker", 3)
    meter = standard.register(
        registry, identity, metrics_port=9201, server="lean", ready=lambda: True, cost=Cost(identity)
    )
    yield registry
    meter.close()


def test_a_process_exports_what_the_catalogue_says(everywhere: CollectorRegistry) -> None:
    found, entries = exported(everywhere), {entry.family: entry for entry in exported_by("every process")}
    assert {name for name, entry in entries.items() if not entry.where} <= found.keys() <= entries.keys()
    for name, family in found.items():
        agrees(family, entries[name])


def test_a_pi_with_a_shared_folder_exports_the_rest(tmp_path: Path, everywhere: CollectorRegistry) -> None:
    (tmp_path / "mountinfo").write_text(NFS)
    registry, identity = CollectorRegistry(), Identity("worker", 3)
    sensors = {"cpu_thermal": [SimpleNamespace(current=48.3)]}
    registry.register(NodeCollector(identity, Throttling(lambda: "50005"), lambda: sensors))
    registry.register(FilesystemCollector(identity, "/mnt", tmp_path / "mountinfo", ask=lambda _: os.statvfs("/")))
    entries = {entry.family: entry for entry in exported_by("every process")}
    found = exported(registry)
    assert found.keys() | exported(everywhere).keys() == entries.keys()
    for name, family in found.items():
        agrees(family, entries[name])
    assert len(found["pscluster_node_throttled"].samples) == 8


def played(observer: Observer) -> Membership:
    """Everything that a job can tell, once."""
    membership = Membership(range(2))
    observer.opened("20260101T000000Z-train", "train")
    observer.stage("train", 10, "updates")
    observer.totals(Totals(0, 0), 0, 1)
    observer.membership(membership)
    observer.planned(2, 0, 0.001)
    observer.step(WorkedStep(1, 100, 1.0, 0.3, {"pull": 0.1, "compute": 0.1, "push": 0.05, "wait": 0.05}))
    observer.update(Update(0, 1, 10, 1.7, 0.002, 330.0))
    for done in (1, 4):
        observer.advanced(done)
    observer.figures("validation", FIGURES, ["a", "b"], np.zeros((2, 2), np.int64), 1)
    observer.epoch("train", EpochReport(1, 1.5, 0.6, 0.002, 300.0, 12.0, FIGURES))
    observer.totals(Totals(5, 1), 2, 1)
    observer.traffic(Traffic(1000, 2000, 3), 5)
    observer.checkpoint(0.2, 4096, 5)
    observer.calibration({"worker:0": 2e6, "worker:1": 1e6})
    observer.pi(1, 1000, 0.1, 785, 1000)
    return membership


@pytest.fixture
def clock() -> Callable[[], float]:
    times = iter(range(1000))
    return lambda: float(next(times))


def test_a_coordinator_exports_what_the_catalogue_says(clock: Callable[[], float]) -> None:
    registry = CollectorRegistry()
    played(
        Observers(
            JobMetrics(registry, "async", "thesis", clock),
            TrainingMetrics(registry, "fp32", "topk", 30.0, lambda: 1.8e9),
            PiMetrics(registry, 10**6),
        )
    )
    found, entries = exported(registry), {e.family: e for e in exported_by("every job", "training", "pi")}
    assert found.keys() == entries.keys()
    for name, family in found.items():
        agrees(family, entries[name])


def test_what_a_training_tells_arrives() -> None:
    registry = CollectorRegistry()
    observer = TrainingMetrics(registry, "fp32", "topk", 30.0, lambda: 1.8e9)
    played(observer)
    ours = ("coordinator", "0")
    for short, value in {
        "train_latest_loss": 1.7, "train_loss_finite": 1, "train_updates_applied_total": 7,
        "train_duplicates_dropped_total": 1, "train_updates_rolled_back_total": 2, "train_resumptions_total": 1,
        "train_checkpoint_bytes": 4096, "train_checkpoint_interval_seconds": 30.0,
        "train_checkpoint_last_success_timestamp_seconds": 1.8e9, "train_epoch": 1,
    }.items():  # fmt: skip
        assert samples(registry, metric(short).name) == {ours: value}, short
    assert samples(registry, "pscluster_train_round_trip_seconds_sum") == {("worker", "1"): 0.3}
    assert samples(registry, "pscluster_train_wire_bytes_total") == {
        ("fp32", "pull", *ours): 1000, ("topk", "push", *ours): 2000
    }  # fmt: skip
    observer.traffic(Traffic(10, 20, 3), 5)
    assert samples(registry, "pscluster_train_wire_bytes_total")["fp32", "pull", *ours] == 1010
    observer.diverged("the loss is nan")
    assert samples(registry, "pscluster_train_loss_finite") == {ours: 0}


def test_a_coordinator_that_goes_on_sets_no_counter_back() -> None:
    applied: list[float] = []
    dropped: list[float] = []
    for begun, done, lost in ((Totals(0, 0), Totals(140, 3), 0), (Totals(130, 2), Totals(150, 4), 10)):
        registry = CollectorRegistry()
        observer = TrainingMetrics(registry, "fp32", "fp32", 60.0)
        for totals in (begun, done):
            observer.totals(totals, lost, 0)
            applied += samples(registry, "pscluster_train_updates_applied_total").values()
            dropped += samples(registry, "pscluster_train_duplicates_dropped_total").values()
    assert applied == [0, 140, 140, 160]
    assert dropped == [0, 3, 0, 2]


def test_held_out_people_are_looked_at_within_a_stage(clock: Callable[[], float]) -> None:
    registry = CollectorRegistry()
    observer = JobMetrics(registry, "async", "thesis", clock)
    observer.stage("train", 10, "updates")
    observer.advanced(4)
    for begins, stage in ((True, "validation"), (False, "train")):
        observer.validating(begins)
        stages = samples(registry, "pscluster_job_stage")
        assert [labels[1] for labels, value in stages.items() if value] == [stage]
        assert samples(registry, "pscluster_job_progress_ratio") == {("coordinator", "0"): 0.4}
    observer.validating(True)
    observer.ended("failed", "a parameter server is lost")
    assert samples(registry, "pscluster_job_stage")["coordinator", "ended", "0"] == 1


def test_what_any_job_tells_arrives(clock: Callable[[], float]) -> None:
    registry = CollectorRegistry()
    observer = JobMetrics(registry, "async", "thesis", clock)
    assert samples(registry, "pscluster_job_stage")["coordinator", "preparing", "0"] == 1
    membership = played(observer)
    ours = ("coordinator", "0")
    assert [*samples(registry, "pscluster_job_info")] == [
        ("train", "async", "thesis", "coordinator", "20260101T000000Z-train", "0")
    ]
    stages = samples(registry, "pscluster_job_stage")
    assert len(stages) == len(catalogue.STAGES)
    assert [labels[1] for labels, value in stages.items() if value] == ["train"]
    assert samples(registry, "pscluster_job_progress_ratio") == {ours: 0.4}
    assert samples(registry, "pscluster_calibration_samples_per_second") == {
        ("worker", "0"): 2e6, ("worker", "1"): 1e6
    }  # fmt: skip
    membership.handle(Answered(0), 0.0)
    membership.handle(Joined(0), 0.0)
    membership.schedule([Item(7, "step"), Item(8, "step")], 0.0)
    assert samples(registry, "pscluster_queue_items") == {ours: 2}
    states = {labels[1:]: value for labels, value in samples(registry, "pscluster_worker_state").items()}
    assert len(states) == 2 * len(Phase)
    assert {labels for labels, value in states.items() if value} == {("busy", "0"), ("absent", "1")}
    observer.ended("failed", "the loss is nan")
    assert samples(registry, "pscluster_job_stage")["coordinator", "ended", "0"] == 1
    assert samples(registry, "pscluster_job_remaining_seconds") == {}
    observer.stage("words for a person")
    assert samples(registry, "pscluster_job_stage")["coordinator", "preparing", "0"] == 1


def test_the_time_left_is_that_of_the_speed_seen() -> None:
    resumed = Stage("train", total=100).advanced(60, now=10.0)
    assert resumed.remaining_seconds(now=11.0) is None
    later = resumed.advanced(70, now=15.0)
    assert later.remaining_seconds(now=15.0) == pytest.approx(15.0)
    assert later.ratio == 0.7
    assert Stage("test").advanced(1, 0.0).ratio == 0.0


def test_the_catalogue_s_fixed_values_are_those_of_the_code() -> None:
    assert tuple(phase.value for phase in Phase) == catalogue.STATES
    named: list[Codec] = [codec for config in (Fp32Codec(), Fp16Codec(), TopKCodec()) for codec in wire_codecs(config)]
    assert {codec.name for codec in named} == set(catalogue.CODECS)


class Watched:
    """A job that serves metrics on a free port and fails or not."""

    name = "train"

    def __init__(self, problem: ClusterError | None, during: Callable[[str], None]) -> None:
        self.metrics = CoordinatorMetrics()
        self.training = TrainingMetrics(self.metrics.registry, "fp32", "fp32", 60.0)
        self.observers = Observers(self.metrics.told(JobMetrics(self.metrics.registry), self.training))
        self.port, self._problem, self._during = free_port(), problem, during

    def prepare(self) -> None:
        pass

    def run(self, folder: RunFolder) -> None:
        self.metrics.serve(Task("coordinator", 0, "here", "127.0.0.1", free_port(), self.port))
        self._during(f"http://127.0.0.1:{self.port}/metrics")
        if self._problem is not None:
            self.observers.diverged(str(self._problem))
            raise self._problem

    def complete(self) -> bool:
        return True

    def result(self) -> dict[str, object]:
        return {}


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=HANG_SECONDS) as answer:
        return str(answer.read().decode())


def test_a_divergence_reaches_whoever_reads_the_metrics(tmp_path: Path) -> None:
    told: list[str] = []
    read_once = threading.Event()

    def scrape(url: str) -> None:
        told.append(read(url))
        read_once.set()
        while 'job_stage{role="coordinator",stage="ended",task="0"} 1.0' not in told[-1]:
            told.append(read(url))

    scraper: list[threading.Thread] = []

    def during(url: str) -> None:
        scraper.append(threading.Thread(target=scrape, args=(url,)))
        scraper[0].start()
        assert read_once.wait(HANG_SECONDS)

    with pytest.raises(ClusterError, match="the loss is nan"):
        conduct(Watched(ClusterError("the loss is nan"), during), tmp_path, Cancel())
    scraper[0].join(HANG_SECONDS)
    assert 'pscluster_train_loss_finite{role="coordinator",task="0"} 0.0' in told[-1]
    (folder,) = tmp_path.iterdir()
    assert "the last metrics were read" in (folder / "coordinator.log").read_text()


def test_nobody_is_waited_for_who_never_read(tmp_path: Path) -> None:
    path, _ = conduct(Watched(None, lambda _: None), tmp_path, Cancel())
    assert "last metrics" not in (path.parent / "coordinator.log").read_text()


def test_nobody_is_waited_for_after_ctrl_c(tmp_path: Path) -> None:
    cancel = Cancel()

    def during(url: str) -> None:
        read(url)
        cancel._asked.set()

    path, _ = conduct(Watched(None, during), tmp_path, cancel)
    assert "the last metrics were not read" in (path.parent / "coordinator.log").read_text()


def test_what_observers_compute_is_counted() -> None:
    metrics = CoordinatorMetrics()
    before = metrics.cost.seconds()
    observer = metrics.told(TrainingMetrics(metrics.registry, "fp32", "fp32", 60.0))
    for _ in range(100):
        observer.step(WorkedStep(1, 100, 1.0, 0.3, {"pull": 0.1}))
    assert metrics.cost.seconds() > before
