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
from concurrent.futures import Future
from contextlib import suppress
from ctypes import c_int, c_long
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Protocol

import psutil

from core.ground.children import finished
from core.metrics.catalogue import Reading, metric

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


class NodeMeter:
    """Memory, load and clock of the node; temperature and throttling where it reports them."""

    def __init__(
        self,
        throttling: Throttling | None,
        sensors: Callable[[], Mapping[str, Sequence[Temperature]]] = psutil.sensors_temperatures,
    ) -> None:
        self._throttling = throttling
        # The search for sensors is the most expensive part: without a sensor it is not repeated.
        self._sensors = sensors if processor_celsius(sensors()) is not None else None

    def read(self) -> Iterator[Reading]:
        """Yield one reading of each figure."""
        memory = psutil.virtual_memory()
        yield Reading("node_memory_total_bytes", memory.total)
        yield Reading("node_memory_available_bytes", memory.available)
        yield Reading("node_load1", psutil.getloadavg()[0])
        yield Reading("node_cpus", psutil.cpu_count() or 1)
        celsius = processor_celsius(self._sensors()) if self._sensors else None
        if celsius is not None:
            yield Reading("node_temperature_celsius", celsius)
        if self._throttling is not None:
            for labels, holds in self._throttling().items():
                yield Reading("node_throttled", holds, labels)
        synchronized = clock_synchronized()
        if synchronized is not None:
            yield Reading("node_clock_synchronized", synchronized)
        yield Reading("node_time_seconds", time.time())


@dataclass(frozen=True)
class QueryResult:
    """An answer; `value` is None after a timeout or an error.

    `seconds` is the time the query took, or has taken so far.

    `waiting`: no answer yet, and too early to call the server down.
    """

    value: os.statvfs_result | None
    seconds: float
    waiting: bool = False


class Probe:
    """Runs one query at a time, in a daemon thread: a hung one does not keep the process alive.

    While one hangs, further calls return at once with the latest answer.
    """

    def __init__(
        self,
        ask: Callable[[], os.statvfs_result],
        deadline_seconds: float,
        patience_seconds: float,
    ) -> None:
        """Let a call take `deadline_seconds` at most.

        A query open for `patience_seconds` counts as unanswered.
        """
        self._ask = ask
        self._deadline_seconds = deadline_seconds
        self._patience_seconds = patience_seconds
        self._lock = threading.Lock()
        self._begun = 0.0
        self._open: Future[QueryResult] | None = None
        self._latest: QueryResult | None = None

    def __call__(self) -> QueryResult:
        """Return the answer; the previous one while this query is open.

        It has no value after the patience or an OSError.
        """
        with self._lock:
            if self._open is not None and self._open.done():
                self._latest = self._open.result()
                self._open = None
            if self._open is None:
                self._begun = time.monotonic()
                self._open = Future()
                arguments = (self._open, self._begun)
                threading.Thread(
                    target=self._run, args=arguments, name="probe", daemon=True
                ).start()
            question = self._open
            begun = self._begun
            latest = self._latest
        with suppress(TimeoutError):
            return question.result(max(0.0, begun + self._deadline_seconds - time.monotonic()))
        so_far = time.monotonic() - begun
        if so_far >= self._patience_seconds:
            return QueryResult(None, so_far)
        if latest is None:
            return QueryResult(None, so_far, waiting=True)
        return replace(latest, seconds=max(latest.seconds, so_far))

    def _run(self, question: "Future[QueryResult]", begun: float) -> None:
        try:
            value = self._ask()
        except OSError:
            value = None
        question.set_result(QueryResult(value, time.monotonic() - begun))


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


class Filesystems:
    """`shared` is the folder that all nodes share, or None.

    A hung server costs a scrape one second.
    """

    def __init__(
        self,
        shared: str | None,
        mounts: Path = MOUNTS,
        ask: Callable[[str], os.statvfs_result] = os.statvfs,
        deadline_seconds: float = DEADLINE_SECONDS,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._shared = shared
        self._mounts = mounts
        self._ask = ask
        self._probe = Probe(lambda: ask(shared or "/"), deadline_seconds, patience_seconds)

    def read(self) -> Iterator[Reading]:
        """Yield size and free space of each file system.

        Of a remote one also whether and how fast it answers.
        """
        filesystems = {"root": self._ask("/")}
        if self._shared is not None:
            remote = is_remote(type_of(self._shared, self._mounts.read_text()))
            answer = self._probe()
            if answer.value is not None:
                filesystems["shared"] = answer.value
            if remote and not answer.waiting:
                yield Reading("node_nfs_up", answer.value is not None, ("shared",))
                yield Reading("node_nfs_probe_seconds", answer.seconds, ("shared",))
        for mount, room in filesystems.items():
            size = room.f_blocks * room.f_frsize
            available = room.f_bavail * room.f_frsize
            yield Reading("node_filesystem_size_bytes", size, (mount,))
            yield Reading("node_filesystem_available_bytes", available, (mount,))
