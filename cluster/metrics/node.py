"""The state of the machine a process runs on."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import psutil
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from cluster.metrics.identity import Identity

CPU_SENSORS = ("cpu_thermal", "coretemp", "k10temp", "zenpower", "soc_thermal", "cpu-thermal")
"""Names that drivers give to the processor's sensors: Raspberry Pi first, then Intel, AMD and other boards."""


class Reading(Protocol):
    """A temperature sensor's reading in degrees Celsius, as psutil gives it."""

    @property
    def current(self) -> float:
        """Degrees Celsius."""


def processor_celsius(sensors: Mapping[str, Sequence[Reading]]) -> float | None:
    """The hottest reading of the processor's sensor, or None where no sensor is known to be the processor's."""
    for name in CPU_SENSORS:
        if sensors.get(name):
            return max(reading.current for reading in sensors[name])
    return None


class NodeCollector(Collector):
    """Memory, load and, where there is a sensor, temperature of the node."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity

    def collect(self) -> Iterator[Metric]:
        """One sample of each figure."""
        gauge = self._identity.gauge
        memory = psutil.virtual_memory()
        yield gauge("node_memory_total_bytes", "Memory of the node", memory.total)
        yield gauge("node_memory_available_bytes", "Memory that can be had without swapping", memory.available)
        yield gauge("node_load1", "Runnable and waiting threads, average of one minute", psutil.getloadavg()[0])
        yield gauge("node_cpus", "Logical processors", psutil.cpu_count() or 1)
        celsius = processor_celsius(psutil.sensors_temperatures())
        if celsius is not None:
            yield gauge("node_temperature_celsius", "Hottest reading of the processor's sensor", celsius)
