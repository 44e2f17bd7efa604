"""The state of the machine a process runs on: memory, load, clock, temperature, throttling, space.

Throttling: https://www.raspberrypi.com/documentation/computers/os.html#get_throttled. Whether the
server of the shared folder answers is asked within a deadline.
"""

import ctypes
import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from ctypes import c_int, c_long
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Generic, Protocol, TypeVar

import psutil
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from core.ground.children import finished
from core.metrics.catalogue import Identity, family, metric

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
        return Throttling(partial(_read_text, path))
    program = shutil.which("vcgencmd")
    if program is None or not vcio.exists():
        return None
    return Throttling(partial(_run, program))


def _read_text(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None


def _run(program: str) -> str | None:
    try:
        process = finished([program, "get_throttled"], seconds=ANSWER_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if process.code else process.output


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


T = TypeVar("T")


@dataclass(frozen=True)
class QueryResult(Generic[T]):
    """An answer; `value` is None after a timeout or an error.

    `seconds` is the time the query took, or has taken so far.

    `waiting`: no answer yet, and too early to call the server down.
    """

    value: T | None
    seconds: float
    waiting: bool = False


class _Question(Generic[T]):
    """One query in a daemon thread, so that a hung query does not keep the process alive."""

    def __init__(self, ask: Callable[[], T]) -> None:
        self._ask = ask
        self._begin = time.monotonic()
        self._answer: QueryResult[T] | None = None
        self._answered = threading.Event()
        threading.Thread(target=self._run, name="probe", daemon=True).start()

    def _run(self) -> None:
        try:
            value: T | None = self._ask()
        except OSError:
            value = None
        self._answer = QueryResult(value, time.monotonic() - self._begin)
        self._answered.set()

    def within(self, seconds: float) -> QueryResult[T] | None:
        """The answer, if it comes within this time of the query's start."""
        self._answered.wait(max(0.0, seconds - self.open_seconds))
        return self._answer

    @property
    def open_seconds(self) -> float:
        """Time since the query's start."""
        return time.monotonic() - self._begin


class Probe(Generic[T]):
    """Runs one query at a time.

    While one hangs, further calls return at once with the latest answer.
    """

    def __init__(
        self, ask: Callable[[], T], deadline_seconds: float, patience_seconds: float
    ) -> None:
        """Let a call take `deadline_seconds` at most.

        A query open for `patience_seconds` counts as unanswered.
        """
        self._ask = ask
        self._deadline_seconds = deadline_seconds
        self._patience_seconds = patience_seconds
        self._lock = threading.Lock()
        self._question: _Question[T] | None = None
        self._latest: QueryResult[T] | None = None

    def __call__(self) -> QueryResult[T]:
        """Return the answer; the previous one while this query is open.

        It has no value after the patience or an OSError.
        """
        with self._lock:
            if self._question is not None and (answer := self._question.within(0.0)) is not None:
                self._question = None
                self._latest = answer
            if self._question is None:
                self._question = _Question(self._ask)
            question = self._question
            latest = self._latest
        answer = question.within(self._deadline_seconds)
        if answer is not None:
            return answer
        so_far = question.open_seconds
        if so_far >= self._patience_seconds:
            return QueryResult(None, so_far)
        if latest is None:
            return QueryResult(None, so_far, waiting=True)
        return QueryResult(latest.value, max(latest.seconds, so_far))


MOUNTS = Path("/proc/self/mountinfo")
DEADLINE_SECONDS = 1.0
"""Prometheus allows a scrape some seconds: for a slower server the scrape repeats the latest
answer."""
PATIENCE_SECONDS = 10.0
"""A server without an answer by then counts as down, not slow."""

_ESCAPE = re.compile(r"\\([0-7]{3})")


def type_of(folder: str, mounts: str) -> str | None:
    """Return the type of the file system that holds a folder, without touching it.

    The text of a mountinfo (proc(5)) says it.

    Of several mounts at one place the last is on top.
    """
    topmost: tuple[int, str] | None = None
    for line in mounts.splitlines():
        mount_fields, _, source = line.partition(" - ")
        point = PurePosixPath(
            _ESCAPE.sub(lambda escape: chr(int(escape[1], 8)), mount_fields.split()[4])
        )
        depth = len(point.parts)
        if PurePosixPath(folder).is_relative_to(point) and (topmost is None or depth >= topmost[0]):
            topmost = (depth, source.split()[0])
    if topmost:
        return topmost[1]
    return None


def is_remote(kind: str | None) -> bool:
    """Return whether access may wait for another machine.

    NFS may, and an automount that mounts NFS on access.
    """
    return kind is not None and (kind.startswith("nfs") or kind == "autofs")


class FilesystemCollector(Collector):
    """`shared` is the folder that all nodes share, or None.

    A hung server costs a scrape one second.
    """

    def __init__(
        self,
        identity: Identity,
        shared: str | None,
        mounts: Path = MOUNTS,
        ask: Callable[[str], os.statvfs_result] = os.statvfs,
        deadline_seconds: float = DEADLINE_SECONDS,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._identity = identity
        self._shared = shared
        self._mounts = mounts
        self._ask = ask
        self._probe = Probe(lambda: ask(shared or "/"), deadline_seconds, patience_seconds)

    def collect(self) -> Iterator[Metric]:
        """Yield size and free space of each file system.

        Of a remote one also whether and how fast it answers.
        """
        size = family("node_filesystem_size_bytes")
        available = family("node_filesystem_available_bytes")
        up = family("node_nfs_up")
        seconds = family("node_nfs_probe_seconds")
        filesystems = {"root": self._ask("/")}
        if self._shared is not None:
            remote = is_remote(type_of(self._shared, self._mounts.read_text()))
            answer = self._probe()
            if answer.value is not None:
                filesystems["shared"] = answer.value
            if remote and not answer.waiting:
                labels = [*self._identity.values, "shared"]
                up.add_metric(labels, float(answer.value is not None))
                seconds.add_metric(labels, answer.seconds)
        for mount, room in filesystems.items():
            size.add_metric([*self._identity.values, mount], room.f_blocks * room.f_frsize)
            available.add_metric([*self._identity.values, mount], room.f_bavail * room.f_frsize)
        yield from (metric for metric in (size, available, up, seconds) if metric.samples)
