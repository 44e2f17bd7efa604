"""A coordinator exports what the catalogue says, and so does a role; the last figures are read."""

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric as Family

from cluster.jobs import job_metrics
from cluster.jobs.job_metrics import CoordinatorMetrics, JobMetrics, TrainingMetrics
from cluster.jobs.modes import wire_codecs
from core.engine.codecs.fp16 import Fp16Codec
from core.engine.codecs.fp32 import Fp32Codec
from core.engine.codecs.topk import TopKCodec
from core.engine.membership import Membership, Phase
from core.engine.workers import Answered, Item, Joined
from core.ground.errors import ClusterError
from core.inventory import Task
from core.inventory.extensions import CODECS
from core.metrics import standard
from core.metrics.catalogue import Exporter, Identity, Readings, exported_by, metric
from core.metrics.node import Filesystems, Node, Throttling
from core.metrics.process import Cost, Gpu, GpuMeter
from core.status.events import (
    Advanced,
    Diverged,
    Ended,
    EpochEnded,
    Event,
    FiguresComputed,
    StageBegan,
    Stepped,
    TrafficCounted,
    UpdatesCounted,
    Validating,
)
from core.status.parts import MOST_OTHERS, Figures
from core.status.state import RunState
from tests.cluster.jobs.kit import events_of
from tests.core.metrics.test_accelerator import Nvml
from tests.core.status.played_run import fresh
from tests.tables import table

NFS = "22 1 179:2 / / rw - ext4 /dev/sda1 rw\n61 22 0:51 / /mnt rw - nfs4 192.168.1.26:/srv rw\n"


OURS = ("coordinator", "0")
IDENTITY = Identity("worker", 3)
Samples = dict[tuple[str, ...], float]


def samples(registry: CollectorRegistry, name: str) -> Samples:
    """Values of one series, by the values of its labels in the order of their names."""
    return {
        tuple(sample.labels[label] for label in sorted(sample.labels)): sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == name
    }


def test_the_port_opens_once_every_figure_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    exported = ""

    def serve(registry: CollectorRegistry, *_: object, **__: object) -> None:
        nonlocal exported
        exported = generate_latest(registry).decode()
        raise OSError(98, "Address already in use")

    monkeypatch.setattr(job_metrics, "serve", serve)
    coordinator = SimpleNamespace(host="127.0.0.1", metrics_port=9)
    with CoordinatorMetrics() as metrics, pytest.raises(ClusterError):
        metrics.serve(cast(Task, coordinator))
    assert "pscluster_process_cpu_seconds_total{" in exported
    assert "pscluster_ready{" in exported


def agree(families: dict[str, Family], *exporters: Exporter) -> None:
    """What is exported is what the catalogue says."""
    entries = {entry.name.removesuffix("_total"): entry for entry in exported_by(*exporters)}
    for name, family in families.items():
        entry = entries[name]
        assert (family.type, family.documentation) == (entry.kind, entry.help), name
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(entry.label_names), sample
            assert sample.name.startswith(entry.name), sample
            for label, values in entry.labels.items():
                assert not values or sample.labels[label] in values, sample
            assert entry.subject == "itself" or sample.labels["role"] == "worker", sample
        if entry.buckets:
            bounds = (sample.labels.get("le") for sample in family.samples)
            found = [float(bound) for bound in dict.fromkeys(bounds) if bound]
            assert found == [*entry.buckets, float("inf")]


def exported(registry: CollectorRegistry) -> dict[str, Family]:
    families = [family for family in registry.collect() if family.samples]
    assert len({family.name for family in families}) == len(families)
    return {family.name: family for family in families}


@pytest.fixture
def everywhere() -> Iterator[dict[str, Family]]:
    """What this machine's process exports."""
    registry = CollectorRegistry()
    meter = standard.register(
        registry,
        IDENTITY,
        metrics_port=9201,
        server="lean",
        ready=lambda: True,
        cost=Cost(),
    )
    yield exported(registry)
    meter.close()


def test_a_process_exports_what_the_catalogue_says(everywhere: dict[str, Family]) -> None:
    always = {
        entry.name.removesuffix("_total")
        for entry in exported_by("every process")
        if not entry.where
    }
    assert always <= everywhere.keys()
    agree(everywhere, "every process")


def test_a_pi_with_storage_and_a_server_with_a_gpu_export_the_rest(
    tmp_path: Path, everywhere: dict[str, Family]
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(NFS)
    sensors = {"cpu_thermal": [SimpleNamespace(current=48.3)]}
    gpu = GpuMeter(Gpu(0, Nvml()), "gpu:0")
    node = Node(Throttling(lambda: "50005"), lambda: sensors)
    filesystems = Filesystems("/mnt", mounts, ask=lambda _: os.statvfs("/"))
    registry = CollectorRegistry()
    registry.register(Readings(IDENTITY, node.read, filesystems.read, gpu.read))
    found = exported(registry)
    gpu.close()
    everything = {entry.name.removesuffix("_total") for entry in exported_by("every process")}
    assert found.keys() | everywhere.keys() == everything
    agree(found, "every process")
    assert len(found["pscluster_node_throttled"].samples) == 8


TABLE = table("cluster/jobs/events")
EVERYTHING = events_of(TABLE["everything"])


class Exported:
    """What a coordinator exports after events, one a second."""

    def __init__(self, *events: Event, job: str = "train") -> None:
        self.registry = CollectorRegistry()
        self.membership = Membership(range(2))
        self._played = fresh(job)
        self._second = 0.0
        JobMetrics(self.registry, self.now, lambda: self.membership)
        codecs = {"pull": "fp32", "push": "topk"}
        self._training = TrainingMetrics(self.registry, codecs, 30.0, lambda: 1.8e9)
        self.consume(*events)

    def now(self) -> tuple[RunState, float]:
        return self._played.state, self._second

    def consume(self, *events: Event) -> None:
        for event in events:
            self._second += 1.0
            self._played.emit(event, self._second)
            self._training.consume(event)

    def __getitem__(self, name: str) -> Samples:
        """The samples of a series, which is named without `pscluster_`."""
        return samples(self.registry, f"pscluster_{name}")

    @property
    def stages(self) -> list[str]:
        """Those that it is in."""
        return [labels[1] for labels, value in self["job_stage"].items() if value]


def test_a_coordinator_exports_what_the_catalogue_says() -> None:
    found = exported(Exported(*EVERYTHING).registry)
    found |= exported(Exported(*EVERYTHING, job="pi").registry)
    whole: tuple[Exporter, ...] = ("every job", "training", "pi")
    assert found.keys() == {entry.name.removesuffix("_total") for entry in exported_by(*whole)}
    agree(found, *whole)


def test_what_a_training_tells_arrives() -> None:
    told = Exported(*EVERYTHING)
    expected = TABLE["told"]
    assert {short: told[metric(short).name.removeprefix("pscluster_")] for short in expected} == {
        short: {OURS: value} for short, value in expected.items()
    }
    assert told["train_round_trip_seconds_sum"] == {("worker", "1"): 0.3}
    wire = "train_wire_bytes_total"
    assert told[wire] == {("fp32", "pull", *OURS): 1000, ("topk", "push", *OURS): 2000}
    told.consume(TrafficCounted(10, 20, 5))
    assert told[wire]["fp32", "pull", *OURS] == 1010
    told.consume(Diverged("the loss is nan"))
    assert told["train_loss_finite"] == {OURS: 0}


def test_a_regression_has_no_accuracy_and_its_figures_have_names() -> None:
    told = Exported()
    hostile = 'r"2\\'
    for others in ({"mae": 1.5, "r2": 0.5}, {"mae": 1.25, hostile: 0.5}):
        found = Figures(loss=2.0, others=others)
        ended = EpochEnded("train", 1, 2.5, None, 0.002, 300.0, 12.0, found)
        told.consume(FiguresComputed("validation", found, epoch=1), ended)
    of_validation = ("coordinator", "validation", "0")
    assert told["train_metric"] == {
        ("mae", *of_validation): 1.25,
        (hostile, *of_validation): 0.5,
    }
    assert told["train_loss"][of_validation] == 2.0
    assert told["train_accuracy_ratio"] == told["train_f1_macro_ratio"] == {}
    assert rb'metric="r\"2\\"' in generate_latest(told.registry)
    for at in range(3):
        many = {f"{at}/{number}": 1.0 for number in range(MOST_OTHERS)}
        told.consume(FiguresComputed("test", Figures(loss=1.0, others=many)))
    assert len({labels[0] for labels in told["train_metric"]}) <= MOST_OTHERS


def test_a_coordinator_that_goes_on_sets_no_counter_back() -> None:
    found: list[tuple[float, float]] = []
    for lost, counts in ((0, ((0, 0), (140, 3))), (10, ((130, 2), (150, 4)))):
        told = Exported()
        for totals in counts:
            told.consume(UpdatesCounted(*totals, lost, 0))
            names = ("train_updates_applied_total", "train_duplicates_dropped_total")
            (applied, dropped) = (told[name][OURS] for name in names)
            found.append((applied, dropped))
    assert found == [(0, 0), (140, 3), (140, 0), (160, 2)]


def test_held_out_people_are_looked_at_within_a_stage() -> None:
    told = Exported(StageBegan("train", 10, "updates"), Advanced(4))
    for begins, stage in ((True, "validation"), (False, "train")):
        told.consume(Validating(begins))
        assert told.stages == [stage]
        assert told["job_progress_ratio"] == {OURS: 0.4}
    told.consume(Validating(True), Ended("failed", "a parameter server is lost"))
    assert told.stages == ["ended"]


def test_what_any_job_tells_arrives() -> None:
    told = Exported()
    assert told.stages == ["preparing"]
    told.consume(*EVERYTHING)
    assert [*told["job_info"]] == [
        ("train", "async", "thesis", "coordinator", "20260101T000000Z-train", "0")
    ]
    assert len(told["job_stage"]) == len(metric("job_stage").labels["stage"])
    assert told.stages == ["train"]
    assert told["job_progress_ratio"] == {OURS: 0.4}
    speeds = {("worker", "0"): 2e6, ("worker", "1"): 1e6}
    assert told["calibration_samples_per_second"] == speeds
    membership = told.membership
    membership.handle(Answered(0), 0.0)
    membership.handle(Joined(0), 0.0)
    membership.schedule([Item(7, "step"), Item(8, "step")], 0.0)
    assert told["queue_items"] == {OURS: 2}
    states = told["worker_state"]
    assert len(states) == 2 * len(Phase)
    present = {labels[1:] for labels, value in states.items() if value}
    assert present == {("busy", "0"), ("absent", "1")}
    told.consume(Ended("failed", "the loss is nan"))
    assert told.stages == ["ended"]
    assert told["job_remaining_seconds"] == {}


def test_words_for_a_person_are_a_preparation() -> None:
    assert Exported(StageBegan("words for a person")).stages == ["preparing"]


def test_the_catalogue_s_fixed_values_are_those_of_the_code() -> None:
    assert tuple(phase.value for phase in Phase) == metric("worker_state").labels["state"]
    configs = (Fp32Codec(), Fp16Codec(), TopKCodec())
    assert {codec.name for config in configs for codec in wire_codecs(config)} == set(CODECS)


def test_what_consumers_compute_is_counted() -> None:
    metrics = CoordinatorMetrics()
    before = metrics.cost.seconds()
    training = TrainingMetrics(metrics.registry, {"pull": "fp32", "push": "topk"}, 60.0)
    consume = metrics.metered(training.consume)
    for _ in range(100):
        consume(Stepped(1, 100, 1.0, 0.3, {"pull": 0.1}))
    assert metrics.cost.seconds() > before
