"""A GPU's figures, from a library that answers as NVIDIA's does."""

import time
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from core.metrics import process
from core.metrics.catalogue import Identity, Reading
from core.metrics.process import LONGEST_LOOK_SECONDS, Gpu, GpuMeter
from tests.core.server.test_exporter import registered


class Nvml:
    """Two GPUs; `codes` are errors by function."""

    def __init__(self, busy_percent: int = 50, **codes: int) -> None:
        self.busy_percent = busy_percent
        self.codes = codes

    def nvmlInit_v2(self) -> int:  # noqa: N802  NVIDIA's names
        return self.codes.get("init", 0)

    def nvmlDeviceGetHandleByIndex_v2(self, number: Any, handle: Any) -> int:  # noqa: N802
        handle._obj.value = number.value + 1
        if number.value < 2:
            return 0
        return 2

    def nvmlDeviceGetUtilizationRates(self, handle: Any, found: Any) -> int:  # noqa: N802
        assert handle.value
        found._obj.gpu = self.busy_percent
        return self.codes.get("busy", 0)

    def nvmlDeviceGetMemoryInfo(self, handle: Any, found: Any) -> int:  # noqa: N802
        found._obj.used = 7 << 30
        return self.codes.get("memory", 0)


def test_busy_seconds_add_up_and_a_late_look_counts_nothing() -> None:
    library = Nvml()
    collector = GpuMeter(Gpu(1, library), "gpu:1")
    collector.close()
    collector.busy_seconds = 0.0
    collector.add_busy(2.0)
    library.busy_percent = 100
    collector.add_busy(1.0)
    collector.add_busy(LONGEST_LOOK_SECONDS + 1.0)
    assert collector.busy_seconds == pytest.approx(2.0)
    assert [*collector.read()] == [
        Reading("device_busy_seconds_total", 2.0, ("gpu:1",)),
        Reading("device_memory_used_bytes", 7 << 30, ("gpu:1",)),
    ]


def test_its_thread_looks_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.metrics.process.LOOK_SECONDS", 0.01)
    collector = GpuMeter(Gpu(0, Nvml(100)), "gpu:0")
    end = time.monotonic() + 60
    while not collector.busy_seconds:
        assert time.monotonic() < end
        time.sleep(0.01)
    collector.close()


def test_a_gpu_that_falls_off_the_bus_ends_the_looks_and_no_scrape() -> None:
    library = Nvml()
    collector = GpuMeter(Gpu(0, library), "gpu:0")
    library.codes = {"busy": 15, "memory": 15}
    with pytest.raises(OSError, match="nvmlDeviceGetUtilizationRates answers with error 15"):
        collector.add_busy(1.0)
    assert [reading.short for reading in collector.read()] == ["device_busy_seconds_total"]
    collector.close()


@pytest.mark.parametrize("number", [0, 9])
def test_without_the_driver_or_the_gpu_there_are_no_figures(number: int) -> None:
    if number == 0:
        library = Nvml(init=9)
    else:
        library = Nvml()
    with pytest.raises(OSError, match="answers with error"):
        Gpu(number, library)


def test_a_machine_without_the_library_has_every_other_figure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "LIBRARY", "libnvidia-ml.of-no-machine.so")
    with pytest.raises(OSError, match="libnvidia-ml"):
        Gpu(0)
    registry = CollectorRegistry()
    identity = Identity("worker", 0)
    meter = registered(registry, identity, gpu=0)
    names = {family.name for family in registry.collect()}
    meter.close()
    assert "pscluster_ready" in names
    assert "pscluster_device_busy_seconds" not in names
