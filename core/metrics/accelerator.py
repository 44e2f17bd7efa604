"""How busy the GPU of this process is.

NVIDIA's own library (NVML) says it, which comes with the driver.

NVML answers with the share of the past instant in which a kernel ran
(`nvmlDeviceGetUtilizationRates`). A thread asks once a second and adds up, so that the share over
any time is a difference of two readings. Only a process that takes a GPU has the thread; without
the library, or with another kind of device, there are no figures.
"""

import ctypes
import threading
import time
from collections.abc import Iterator
from typing import Any

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from core.metrics.instruments import Identity
from core.metrics.process import Cost

LIBRARY = "libnvidia-ml.so.1"
LOOK_SECONDS = 1.0
LONGEST_LOOK_SECONDS = 5.0
"""A look that comes later than this says nothing about the time since the one before."""


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


class Gpu:
    """One GPU, as `nvidia-smi` numbers it.

    Raises OSError without NVIDIA's library or without this GPU.
    """

    def __init__(self, number: int, library: Any = None) -> None:
        if library is None:
            self._library = ctypes.CDLL(LIBRARY)
        else:
            self._library = library
        self._handle = ctypes.c_void_p()
        self._ask("nvmlInit_v2")
        self._ask(
            "nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(number), ctypes.byref(self._handle)
        )

    def _ask(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            raise OSError(f"{name} answers with error {code}")

    def busy_share(self) -> float:
        """Return the share of the past instant, 0 to 1. Raises OSError."""
        utilization = _Utilization()
        self._ask("nvmlDeviceGetUtilizationRates", self._handle, ctypes.byref(utilization))
        return float(min(100, utilization.gpu)) / 100.0

    def used_bytes(self) -> int:
        """Return the bytes of its memory that all processes use. Raises OSError."""
        memory = _Memory()
        self._ask("nvmlDeviceGetMemoryInfo", self._handle, ctypes.byref(memory))
        return int(memory.used)


class GpuCollector(Collector):
    """Seconds in which the GPU was busy, and its memory.

    A thread adds them up until it is closed.
    """

    def __init__(self, identity: Identity, gpu: Gpu, name: str, cost: Cost | None = None) -> None:
        """`name`: of the label, e.g. `gpu:1`."""
        self._identity = identity
        self._gpu = gpu
        self._name = name
        self._cost = cost
        self.busy_seconds = 0.0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._keep_looking, name="gpu", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop looking."""
        self._end.set()
        self._thread.join()

    def look(self, since_seconds: float) -> None:
        """Add what the GPU did in the time since the look before."""
        if since_seconds <= LONGEST_LOOK_SECONDS:
            self.busy_seconds += self._gpu.busy_share() * since_seconds

    def _keep_looking(self) -> None:
        before = time.monotonic()
        while not self._end.wait(LOOK_SECONDS):
            now = time.monotonic()
            try:
                self.look(now - before)
            except OSError:  # the driver was unloaded, or the GPU fell off the bus
                return
            before = now
            if self._cost is not None:
                self._cost.so_far("gpu")

    def collect(self) -> Iterator[Metric]:
        """Yield one sample of each figure."""
        yield self._identity.sample("device_busy_seconds_total", self.busy_seconds, self._name)
        try:
            yield self._identity.sample(
                "device_memory_used_bytes", self._gpu.used_bytes(), self._name
            )
        except OSError:
            return
