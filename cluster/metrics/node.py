"""The state of the machine a process runs on."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import psutil
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from cluster.metrics.clock import clock_synchronized
from cluster.metrics.identity import Identity
from cluster.metrics.instruments import family
from cluster.metrics.throttling import Throttling

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
    """Memory, load and clock of the node and, where there are such things, its sensor and its firmware's complaints."""

    def __init__(
        self, identity: Identity, throttling: Throttling | None,
        sensors: Callable[[], Mapping[str, Sequence[Reading]]] = psutil.sensors_temperatures,
    ) -> None:  # fmt: skip
        self._identity, self._throttling = identity, throttling
        # Looking for sensors costs more than all else here: where there is none, nobody looks again.
        self._sensors = sensors if processor_celsius(sensors()) is not None else None

    def collect(self) -> Iterator[Metric]:
        """One sample of each figure."""
        gauge = self._identity.gauge
        memory = psutil.virtual_memory()
        yield gauge("node_memory_total_bytes", memory.total)
        yield gauge("node_memory_available_bytes", memory.available)
        yield gauge("node_load1", psutil.getloadavg()[0])
        yield gauge("node_cpus", psutil.cpu_count() or 1)
        celsius = processor_celsius(self._sensors()) if self._sensors else None
        if celsius is not None:
            yield gauge("node_temperature_celsius", celsius)
        held_back = self._throttling() if self._throttling else {}
        if held_back:
            throttled = family("node_throttled")
            for (condition, since), holds in held_back.items():
                throttled.add_metric([*self._identity.values, condition, since], float(holds))
            yield throttled
        synchronized = clock_synchronized()
        if synchronized is not None:
            yield gauge("node_clock_synchronized", float(synchronized))
        yield gauge("node_time_seconds", time.time())
