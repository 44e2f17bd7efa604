"""A coordinator exports what the catalogue says, and so does a role; the last figures are read."""

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric as Family

from cluster.jobs import job_metrics
from cluster.jobs.job_metrics import (
    MOST_HISTOGRAMS,
    CoordinatorMetrics,
    JobMetrics,
    TrainingMetrics,
)
from cluster.jobs.modes import wire_codecs
from core.control.client import MOST_BODY_BYTES
from core.engine.codecs.fp16 import Fp16Codec
from core.engine.codecs.fp32 import Fp32Codec
from core.engine.codecs.int4 import Int4Codec
from core.engine.codecs.int8 import Int8Codec
from core.engine.codecs.onebit import OneBitCodec
from core.engine.codecs.topk import TopKCodec
from core.engine.membership import Membership, Phase
from core.engine.workers import Answered, Item, Joined
from core.ground.errors import ClusterError
from core.inventory import Task
from core.inventory.extensions import CODECS
from core.metrics import standard
from core.metrics.catalogue import Exporter, Identity, ReadingsCollector, exported_by, metric
from core.metrics.node import Filesystems, NodeMeter, Throttling
from core.metrics.process import Cost, Gpu, GpuMeter
from core.status.events import (
    Event,
    FiguresComputed,
    Stepped,
)
from core.status.parts import MOST_OTHERS, PARTS, Figures
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
    node = NodeMeter(Throttling(lambda: "50005"), lambda: sensors)
    filesystems = Filesystems("/mnt", mounts, ask=lambda _: os.statvfs("/"))
    registry = CollectorRegistry()
    registry.register(ReadingsCollector(IDENTITY, node.read, filesystems.read, gpu.read))
    found = exported(registry)
    gpu.close()
    everything = {entry.name.removesuffix("_total") for entry in exported_by("every process")}
    assert found.keys() | everywhere.keys() == everything
    agree(found, "every process")
    assert len(found["pscluster_node_throttled"].samples) == 8


EVERYTHING = events_of(table("cluster/jobs/events", "everything"))


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


CASES = table("cluster/jobs/exported")


@pytest.mark.parametrize("steps", CASES.values(), ids=CASES)
def test_a_coordinator_exports_what_its_events_say(steps: list[dict[str, Any]]) -> None:
    told = Exported()
    for step in steps:
        told.consume(*events_of(step["events"]))
        assert told.stages == [step["stage"]]
        for name, expected in step.get("shows", {}).items():
            assert {" ".join(labels): value for labels, value in told[name].items()} == expected


def test_an_app_s_figures_have_names_that_are_hostile_and_many() -> None:
    told = Exported()
    hostile = 'r"2\\'
    told.consume(FiguresComputed("test", Figures(loss=2.0, others={hostile: 0.5})))
    assert rb'metric="r\"2\\"' in generate_latest(told.registry)
    for at in range(3):
        many = {f"{at}/{number}": 1.0 for number in range(MOST_OTHERS)}
        told.consume(FiguresComputed("test", Figures(loss=1.0, others=many)))
    assert len({labels[0] for labels in told["train_metric"]}) <= MOST_OTHERS


def test_workers_and_their_items_are_those_of_the_membership() -> None:
    told = Exported()
    membership = told.membership
    membership.handle(Answered(0), 0.0)
    membership.handle(Joined(0), 0.0)
    membership.schedule([Item(7, "step"), Item(8, "step")], 0.0)
    assert told["queue_items"] == {OURS: 2}
    states = told["worker_state"]
    assert len(states) == 2 * len(Phase)
    present = {labels[1:] for labels, value in states.items() if value}
    assert present == {("busy", "0"), ("absent", "1")}


def test_a_crowd_s_figures_fit_what_a_reader_takes() -> None:
    told = Exported()
    told.membership = Membership(range(128))
    parts = dict.fromkeys(PARTS, 0.125)
    told.consume(*(Stepped(task, 100, 1.0, 0.25, parts) for task in range(128)))
    assert len(told["train_windows_total"]) == 128
    counts = told["train_staleness_updates_count"]
    assert counts["worker", "others"] == 128 - MOST_HISTOGRAMS
    assert len(counts) == MOST_HISTOGRAMS + 1
    assert len(told["train_busy_seconds_total"]) == 128, "any may straggle"
    buckets = told["train_round_trip_seconds_bucket"]
    assert buckets["+Inf", "worker", "others"] == 128 - MOST_HISTOGRAMS
    assert len(generate_latest(told.registry)) < MOST_BODY_BYTES / 2


def test_the_catalogue_s_fixed_values_are_those_of_the_code() -> None:
    assert tuple(phase.value for phase in Phase) == metric("worker_state").labels["state"]
    configs = (Fp32Codec(), Fp16Codec(), Int8Codec(), Int4Codec(), OneBitCodec(), TopKCodec())
    assert {codec.name for config in configs for codec in wire_codecs(config)} == set(CODECS)


def test_what_consumers_compute_is_counted() -> None:
    metrics = CoordinatorMetrics()
    before = metrics.cost.seconds()
    training = TrainingMetrics(metrics.registry, {"pull": "fp32", "push": "topk"}, 60.0)
    consume = metrics.metered(training.consume)
    for _ in range(100):
        consume(Stepped(1, 100, 1.0, 0.3, {"pull": 0.1}))
    assert metrics.cost.seconds() > before
