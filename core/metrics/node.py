"""The state of the machine a process runs on.

Memory, load, clock, temperature, and a Raspberry Pi's throttling.

Throttling: https://www.raspberrypi.com/documentation/computers/os.html#get_throttled
"""

import ctypes
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from ctypes import c_int, c_long
from functools import partial
from pathlib import Path
from typing import Protocol

import psutil
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from core.metrics.catalogue import metric
from core.metrics.instruments import Identity, family

CONDITIONS, SINCE = metric("node_throttled").labels.values()
"""Conditions that a Raspberry Pi's firmware reports, from its lowest bit up, and since when."""

TIME_ERROR = 5
"""Answer of adjtimex for an unsynchronized clock, under STA_UNSYNC too (adjtimex(2))."""


class _Timex(ctypes.Structure):
    """The start of struct timex, and more space than the kernel fills."""

    _fields_ = (("modes", c_int), ("values", c_long * 64))


TIMESYNC = Path("/run/systemd/timesync")
"""Folder in which systemd's time service marks that the clock was set since the node's start."""


def clock_synchronized(timesync: Path = TIMESYNC) -> bool | None:
    """Return whether timesyncd, chrony or the like keeps the clock.

    None where neither reports it: the units of a node forbid the query of the kernel, because that
    call can also set the clock.
    """
    if timesync.is_dir():
        return (timesync / "synchronized").exists()
    buffer = _Timex()  # modes 0: a query that changes nothing
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(buffer))
    except AttributeError:
        return None
    if state < 0:
        return None
    return bool(state != TIME_ERROR)


SYSFS = Path("/sys/devices/platform")
PATTERN = "soc*/soc*:firmware/get_throttled"
"""`soc/soc:firmware` up to the Pi 4; the Pi 5 has its SoC's address in both."""

VCIO = Path("/dev/vcio")
ANSWER_SECONDS = 1.0
STICKY_SHIFT = 16
ANSWER = re.compile(r"^(?:throttled=)?(?:0x)?([0-9a-fA-F]{1,8})\s*$")


def conditions(bits: int) -> dict[tuple[str, str], bool]:
    """Return the firmware's word by condition and `since`.

    Bits 0 to 3 hold now, bits 16 to 19 held once since boot.
    """
    return {
        (condition, since): bool(bits >> (shift + place) & 1)
        for since, shift in zip(SINCE, (0, STICKY_SHIFT), strict=True)
        for place, condition in enumerate(CONDITIONS)
    }


def parse(answer: str) -> int | None:
    """The word in `throttled=0x50005` (vcgencmd) or `50005` (sysfs); None for any other text."""
    match = ANSWER.match(answer)
    if match:
        return int(match[1], 16)
    return None


class Throttling:
    """Queries the firmware, and keeps each condition that ever held while this process lives.

    The kernel's voltage monitor clears the firmware's own record every two seconds
    (drivers/hwmon/raspberrypi-hwmon.c).
    """

    def __init__(self, ask: Callable[[], str | None]) -> None:
        self._ask = ask
        self._reported_bits = 0

    def __call__(self) -> dict[tuple[str, str], bool]:
        """Ask the firmware, see `conditions`; empty if the firmware does not answer."""
        answer = self._ask()
        if answer is not None:
            bits = parse(answer)
        else:
            bits = None
        if bits is None:
            return {}
        self._reported_bits |= bits | (bits & ((1 << STICKY_SHIFT) - 1)) << STICKY_SHIFT
        return conditions(bits | self._reported_bits >> STICKY_SHIFT << STICKY_SHIFT)


def firmware(sysfs: Path = SYSFS, vcio: Path = VCIO) -> Throttling | None:
    """Return a query of this node's firmware, through the kernel or else `vcgencmd`.

    None without either.
    """
    path = next(sysfs.glob(PATTERN), None)
    if path is not None:
        return Throttling(partial(_read, path))
    program = shutil.which("vcgencmd")
    if program is None or not vcio.exists():
        return None
    return Throttling(partial(_run, program))


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None


def _run(program: str) -> str | None:
    try:
        return subprocess.run(
            [program, "get_throttled"],
            capture_output=True,
            text=True,
            timeout=ANSWER_SECONDS,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None


CPU_SENSORS = ("cpu_thermal", "coretemp", "k10temp", "zenpower", "soc_thermal", "cpu-thermal")
"""Names that drivers give to the processor's sensors: Raspberry Pi first, then Intel, AMD and other
boards."""


class Temperature(Protocol):
    """A temperature sensor's reading in degrees Celsius, as psutil gives it."""

    @property
    def current(self) -> float:
        """Degrees Celsius."""


def processor_celsius(sensors: Mapping[str, Sequence[Temperature]]) -> float | None:
    """Return the hottest reading of the processor's sensor.

    None where no sensor is known to be the processor's.
    """
    for name in CPU_SENSORS:
        if sensors.get(name):
            return max(reading.current for reading in sensors[name])
    return None


class NodeCollector(Collector):
    """Memory, load and clock of the node.

    Temperature and throttling come where the node reports them.
    """

    def __init__(
        self,
        identity: Identity,
        throttling: Throttling | None,
        sensors: Callable[[], Mapping[str, Sequence[Temperature]]] = psutil.sensors_temperatures,
    ) -> None:
        self._identity = identity
        self._throttling = throttling
        # The search for sensors is the most expensive part: without a sensor it is not repeated.
        self._sensors = sensors if processor_celsius(sensors()) is not None else None

    def collect(self) -> Iterator[Metric]:
        """Yield one sample of each figure."""
        sample = self._identity.sample
        memory = psutil.virtual_memory()
        yield sample("node_memory_total_bytes", memory.total)
        yield sample("node_memory_available_bytes", memory.available)
        yield sample("node_load1", psutil.getloadavg()[0])
        yield sample("node_cpus", psutil.cpu_count() or 1)
        celsius = processor_celsius(self._sensors()) if self._sensors else None
        if celsius is not None:
            yield sample("node_temperature_celsius", celsius)
        if held_back := self._throttling() if self._throttling else {}:
            throttled = family("node_throttled")
            for (condition, since), holds in held_back.items():
                throttled.add_metric([*self._identity.values, condition, since], float(holds))
            yield throttled
        synchronized = clock_synchronized()
        if synchronized is not None:
            yield sample("node_clock_synchronized", float(synchronized))
        yield sample("node_time_seconds", time.time())
