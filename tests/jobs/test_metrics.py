"""A coordinator exports what the catalogue says, and so does a role; the last figures are read."""

import os
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric as Family

from cluster.engine.codecs.codec import Codec
from cluster.engine.codecs.fp16 import Fp16Codec
from cluster.engine.codecs.fp32 import Fp32Codec
from cluster.engine.codecs.topk import TopKCodec
from cluster.engine.membership import Membership, Phase
from cluster.engine.messages import Answered, Item, Joined
from cluster.errors import ClusterError
from cluster.inventory.extensions import CODECS
from cluster.inventory.task import Task
from cluster.jobs.cancel import Cancel
from cluster.jobs.job_metrics import CoordinatorMetrics, JobMetrics, PiMetrics, TrainingMetrics
from cluster.jobs.lifecycle import Job, conduct
from cluster.jobs.modes.mode import wire_codecs
from cluster.jobs.run_folder import RunFolder
from cluster.metrics import catalogue, standard
from cluster.metrics.accelerator import Gpu, GpuCollector
from cluster.metrics.catalogue import Metric, exported_by, metric
from cluster.metrics.filesystems import FilesystemCollector
from cluster.metrics.instruments import Identity
from cluster.metrics.node import NodeCollector, Throttling
from cluster.metrics.process import Cost
from cluster.status.events import (
    Advanced,
    Calibrated,
    CheckpointWritten,
    Consumer,
    Diverged,
    Ended,
    EpochEnded,
    FiguresComputed,
    Opened,
    Planned,
    PointsDrawn,
    StageBegan,
    Stepped,
    TrafficCounted,
    Updated,
    UpdatesCounted,
    Validating,
)
from cluster.status.parts import MOST_OTHERS, Figures
from cluster.status.stream import Stream
from tests.jobs.cluster import free_port
from tests.metrics.test_accelerator import Nvml

NFS = "22 1 179:2 / / rw - ext4 /dev/sda1 rw\n61 22 0:51 / /mnt rw - nfs4 192.168.1.26:/srv rw\n"
FIGURES = Figures(loss=0.5, accuracy=0.9, f1_macro=0.8, precision_macro=0.7, others={"top 5": 0.95})
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


def test_a_pi_with_storage_and_a_server_with_a_gpu_export_the_rest(
    tmp_path: Path, everywhere: CollectorRegistry
) -> None:
    (tmp_path / "mountinfo").write_text(NFS)
    registry, identity = CollectorRegistry(), Identity("worker", 3)
    sensors = {"cpu_thermal": [SimpleNamespace(current=48.3)]}
    registry.register(NodeCollector(identity, Throttling(lambda: "50005"), lambda: sensors))
    registry.register(FilesystemCollector(identity, "/mnt", tmp_path / "mountinfo", ask=lambda _: os.statvfs("/")))
    gpu = GpuCollector(identity, Gpu(0, Nvml()), "gpu:0")
    registry.register(gpu)
    entries = {entry.family: entry for entry in exported_by("every process")}
    found = exported(registry)
    gpu.close()
    assert found.keys() | exported(everywhere).keys() == entries.keys()
    for name, family in found.items():
        agrees(family, entries[name])
    assert len(found["pscluster_node_throttled"].samples) == 8


def play(emit: Consumer) -> None:
    """Everything that a job can emit, once."""
    emit(Opened("20260101T000000Z-train", "train"))
    emit(StageBegan("train", 10, "updates"))
    emit(UpdatesCounted(0, 0, 0, 1))
    emit(Planned(2, 0, 0.001))
    emit(Stepped(1, 100, 1.0, 0.3, {"pull": 0.1, "compute": 0.1, "push": 0.05, "wait": 0.05}))
    emit(Updated(0, 1, 10, 1.7, 0.002, 330.0))
    emit(Advanced(4))
    emit(FiguresComputed("validation", FIGURES, ("a", "b"), ((0, 0), (0, 0)), 1))
    emit(EpochEnded("train", 1, 1.5, 0.6, 0.002, 300.0, 12.0, FIGURES))
    emit(UpdatesCounted(5, 1, 2, 1))
    emit(TrafficCounted(1000, 2000, 5))
    emit(CheckpointWritten(0.2, 4096, 5))
    emit(Calibrated({"worker:0": 2e6, "worker:1": 1e6}))
    emit(PointsDrawn(1, 1000, 0.1, 1000, 3.14, 0.05))


@pytest.fixture
def clock() -> Callable[[], float]:
    times = iter(range(1000))
    return lambda: float(next(times))


def test_a_coordinator_exports_what_the_catalogue_says(clock: Callable[[], float]) -> None:
    registry = CollectorRegistry()
    membership = Membership(range(2))
    consumers = (
        JobMetrics(registry, "async", "thesis", lambda: membership, clock),
        TrainingMetrics(registry, "fp32", "topk", 30.0, lambda: 1.8e9),
        PiMetrics(registry, 10**6),
    )
    play(Stream(*(each.consume for each in consumers)).emit)
    found, entries = exported(registry), {e.family: e for e in exported_by("every job", "training", "pi")}
    assert found.keys() == entries.keys()
    for name, family in found.items():
        agrees(family, entries[name])


def test_what_a_training_tells_arrives() -> None:
    registry = CollectorRegistry()
    observer = TrainingMetrics(registry, "fp32", "topk", 30.0, lambda: 1.8e9)
    play(observer.consume)
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
    observer.consume(TrafficCounted(10, 20, 5))
    assert samples(registry, "pscluster_train_wire_bytes_total")["fp32", "pull", *ours] == 1010
    observer.consume(Diverged("the loss is nan"))
    assert samples(registry, "pscluster_train_loss_finite") == {ours: 0}


def test_a_regression_has_no_accuracy_and_its_figures_have_names() -> None:
    registry = CollectorRegistry()
    observer = TrainingMetrics(registry, "fp32", "fp32", 30.0)
    hostile = 'r"2\\'
    for others in ({"mae": 1.5, "r2": 0.5}, {"mae": 1.25, hostile: 0.5}):
        found = Figures(loss=2.0, others=others)
        observer.consume(FiguresComputed("validation", found, epoch=1))
        observer.consume(EpochEnded("train", 1, 2.5, None, 0.002, 300.0, 12.0, found))
    ours = ("coordinator", "validation", "0")
    assert samples(registry, "pscluster_train_metric") == {("mae", *ours): 1.25, (hostile, *ours): 0.5}
    assert samples(registry, "pscluster_train_loss")[ours] == 2.0
    for short in ("train_accuracy_ratio", "train_f1_macro_ratio"):
        assert samples(registry, metric(short).name) == {}
    assert rb'metric="r\"2\\"' in generate_latest(registry)
    for at in range(3):
        many = {f"{at}/{number}": 1.0 for number in range(MOST_OTHERS)}
        observer.consume(FiguresComputed("test", Figures(loss=1.0, others=many)))
    named = {labels[0] for labels in samples(registry, "pscluster_train_metric")}
    assert len(named) <= MOST_OTHERS


def test_a_coordinator_that_goes_on_sets_no_counter_back() -> None:
    applied: list[float] = []
    dropped: list[float] = []
    for begun, done, lost in (((0, 0), (140, 3), 0), ((130, 2), (150, 4), 10)):
        registry = CollectorRegistry()
        observer = TrainingMetrics(registry, "fp32", "fp32", 60.0)
        for totals in (begun, done):
            observer.consume(UpdatesCounted(*totals, lost, 0))
            applied += samples(registry, "pscluster_train_updates_applied_total").values()
            dropped += samples(registry, "pscluster_train_duplicates_dropped_total").values()
    assert applied == [0, 140, 140, 160]
    assert dropped == [0, 3, 0, 2]


def test_held_out_people_are_looked_at_within_a_stage(clock: Callable[[], float]) -> None:
    registry = CollectorRegistry()
    observer = JobMetrics(registry, "async", "thesis", clock=clock)
    observer.consume(StageBegan("train", 10, "updates"))
    observer.consume(Advanced(4))
    for begins, stage in ((True, "validation"), (False, "train")):
        observer.consume(Validating(begins))
        stages = samples(registry, "pscluster_job_stage")
        assert [labels[1] for labels, value in stages.items() if value] == [stage]
        assert samples(registry, "pscluster_job_progress_ratio") == {("coordinator", "0"): 0.4}
    observer.consume(Validating(True))
    observer.consume(Ended("failed", "a parameter server is lost"))
    assert samples(registry, "pscluster_job_stage")["coordinator", "ended", "0"] == 1


def test_what_any_job_tells_arrives(clock: Callable[[], float]) -> None:
    registry = CollectorRegistry()
    membership = Membership(range(2))
    observer = JobMetrics(registry, "async", "thesis", lambda: membership, clock)
    assert samples(registry, "pscluster_job_stage")["coordinator", "preparing", "0"] == 1
    play(observer.consume)
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
    observer.consume(Ended("failed", "the loss is nan"))
    assert samples(registry, "pscluster_job_stage")["coordinator", "ended", "0"] == 1
    assert samples(registry, "pscluster_job_remaining_seconds") == {}
    observer.consume(StageBegan("words for a person"))
    assert samples(registry, "pscluster_job_stage")["coordinator", "preparing", "0"] == 1


def test_the_catalogue_s_fixed_values_are_those_of_the_code() -> None:
    assert tuple(phase.value for phase in Phase) == catalogue.STATES
    named: list[Codec] = [codec for config in (Fp32Codec(), Fp16Codec(), TopKCodec()) for codec in wire_codecs(config)]
    assert {codec.name for codec in named} == set(CODECS)


class Watched(Job):
    """A job that serves metrics on a free port and fails or not."""

    name = "train"

    def __init__(self, problem: ClusterError | None, during: Callable[[str], None]) -> None:
        self.metrics = CoordinatorMetrics()
        self.training = TrainingMetrics(self.metrics.registry, "fp32", "fp32", 60.0)
        consumers = JobMetrics(self.metrics.registry).consume, self.training.consume
        self.stream = Stream(self.metrics.metered(*consumers))
        self.port, self._problem, self._during = free_port(), problem, during

    def prepare(self) -> None:
        pass

    def run(self, folder: RunFolder) -> None:
        self.metrics.serve(Task("coordinator", 0, "here", "127.0.0.1", free_port(), self.port))
        self._during(f"http://127.0.0.1:{self.port}/metrics")
        if self._problem is not None:
            self.stream.emit(Diverged(str(self._problem)))
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


def test_what_consumers_compute_is_counted() -> None:
    metrics = CoordinatorMetrics()
    before = metrics.cost.seconds()
    consume = metrics.metered(TrainingMetrics(metrics.registry, "fp32", "fp32", 60.0).consume)
    for _ in range(100):
        consume(Stepped(1, 100, 1.0, 0.3, {"pull": 0.1}))
    assert metrics.cost.seconds() > before
