"""What this process uses of its node: processor and GPU, and what measuring them costs.

Nodes of one kind of processor compute the same bits, nodes of different kinds may not.

NVIDIA's own library (NVML), which comes with the driver, answers with the share of the past instant
in which a kernel ran (`nvmlDeviceGetUtilizationRates`). A thread asks once a second and adds up, so
that the share over any time is a difference of two readings. Only a process that takes a GPU has
the thread; without the library, or with another kind of device, there are no figures.
"""

import contextlib
import ctypes
import math
import os
import platform
import re
import resource
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import psutil

from core.metrics.catalogue import Reading

CPU_INFO = Path("/proc/cpuinfo")
GROUPS = Path("/sys/fs/cgroup")
PROC = Path("/proc")
UNKNOWN_LIMIT = 2**22
"""The most that a kernel's pid_max can be (`man 5 proc`)."""
X86 = re.compile(r"^model name\s*:\s*(.+)$", re.MULTILINE)
ARM = tuple(
    re.compile(rf"^CPU {part}\s*:\s*(\S+)$", re.MULTILINE)
    for part in ("implementer", "part", "variant")
)


@cache
def processor() -> str:
    """Return the architecture and, where the kernel reports it, the model.

    `x86_64 AMD EPYC ...`, `aarch64 0x41 0xd03 0x0`.
    """
    try:
        return describe(platform.machine(), CPU_INFO.read_text(errors="replace"))
    except OSError:
        return platform.machine()


def describe(machine: str, cpu_info: str) -> str:
    """Return `processor` from the content of /proc/cpuinfo.

    A chip with different cores lists all their kinds.
    """
    if models := sorted(set(X86.findall(cpu_info))):
        return " ".join([machine, *models])
    kinds = zip(*(pattern.findall(cpu_info) for pattern in ARM), strict=False)
    return " ".join([machine, *sorted({" ".join(kind) for kind in kinds})])


def usable_cores() -> int:
    """Return the cores that this process can use at once.

    Its affinity, limited by the quotas of its control groups.
    """
    quotas = []
    for group in control_groups("cpu", PROC, GROUPS):
        with contextlib.suppress(OSError, ValueError):  # no such file at the root, or no limit
            most, period = map(int, (group / "cpu.max").read_text().split())
            quotas.append(most / period)
    return max(1, min([len(os.sched_getaffinity(0)), *map(math.ceil, quotas)]))


def tasks_left() -> int:
    """Return how many threads this process can start.

    The kernel's pid_max, RLIMIT_NPROC of an account and `pids.max` of the control groups limit
    them. RLIMIT_NPROC does not hold for root.
    """
    threads = {True: 0, False: 0}
    for status in PROC.glob("[0-9]*/status"):
        with contextlib.suppress(OSError):  # the process has ended
            text = status.read_text(errors="replace")  # a process names itself
            threads[f"\nUid:\t{os.getuid()}\t" in text] += thread_count(text)
    limits = [UNKNOWN_LIMIT]
    with contextlib.suppress(OSError, ValueError):  # a sandbox may hide it
        limits.append(int((PROC / "sys/kernel/pid_max").read_text()) - sum(threads.values()))
    most = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if most != resource.RLIM_INFINITY and os.getuid() != 0:
        limits.append(most - threads[True])
    for group in control_groups("pids", PROC, GROUPS):
        with contextlib.suppress(OSError, ValueError):  # no such file at the root, or no limit
            current = int((group / "pids.current").read_text())
            limits.append(int((group / "pids.max").read_text()) - current)
    return min(limits)


def control_groups(controller: str, proc: Path, groups: Path) -> Iterator[Path]:
    """Yield the folders of the process's control group and of those above it (versions 1 and 2).

    Each may set a limit. A folder may be missing: a container mounts the root of the groups, not
    the group's own path.
    """
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, name = line.split(":", 2)
        mounts = []
        if controllers == "":
            mounts = [groups, groups / "unified"]
        elif controller in controllers.split(","):
            mounts = [groups / controller]
        for mount in mounts:
            folder = mount / name.strip("/")
            yield from (group for group in (folder, *folder.parents) if group.is_relative_to(mount))


PROCESS = psutil.Process()
STATUS = Path("/proc/self/status")
KIBIBYTE = 1024
FIELD = re.compile(r"^(RssAnon|RssFile|VmSwap):\s+(\d+) kB$", re.MULTILINE)
THREADS = re.compile(r"^Threads:\s+(\d+)$", re.MULTILINE)


def memory_bytes(status: str) -> dict[str, int]:
    """Return RssAnon, RssFile and VmSwap, in bytes.

    They are in the text of a /proc/PID/status (Linux 4.5 and newer).
    """
    return {name: int(kibibytes) * KIBIBYTE for name, kibibytes in FIELD.findall(status)}


def thread_count(status: str) -> int:
    """Return the number of threads in the text of a /proc/PID/status; 1 if it is not there."""
    threads = THREADS.search(status)
    return int(threads[1]) if threads else 1


def read_process() -> Iterator[Reading]:
    """Yield memory, CPU time, threads and start time of this process.

    Anonymous memory is what counts on a 1 GB Pi: file-backed pages are the wheel's libraries, which
    the kernel can drop and read again.
    """
    status = STATUS.read_text()
    memory = memory_bytes(status)
    yield Reading("process_anonymous_bytes", memory["RssAnon"])
    yield Reading("process_file_backed_bytes", memory["RssFile"])
    yield Reading("process_swap_bytes", memory["VmSwap"])
    yield Reading("process_cpu_seconds_total", time.process_time())
    yield Reading("process_cores", usable_cores())
    yield Reading("process_threads", thread_count(status))
    yield Reading("process_start_time_seconds", PROCESS.create_time())


class Cost:
    """CPU seconds of measuring and exporting.

    They are of pieces of code (`spent`) and of whole threads (`so_far`).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pieces = 0.0
        self._threads: dict[str, float] = {}

    @contextmanager
    def spent(self) -> Iterator[None]:
        """Count the CPU time of the calling thread inside the block."""
        begin = time.thread_time()
        try:
            yield
        finally:
            self.add(time.thread_time() - begin)

    def add(self, seconds: float) -> None:
        """Add CPU seconds."""
        with self._lock:
            self._pieces += seconds

    def so_far(self, thread: str) -> None:
        """Count the whole CPU time of the calling thread, under this name: it does nothing else."""
        self._threads[thread] = time.thread_time()

    def seconds(self) -> float:
        """The total until now."""
        with self._lock:
            return self._pieces + sum(self._threads.values())

    def read(self) -> Iterator[Reading]:
        """The one counter."""
        yield Reading("exporter_cpu_seconds_total", self.seconds())


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


class GpuMeter:
    """Seconds in which the GPU was busy, and its memory.

    A thread adds them up until it is closed.
    """

    def __init__(self, gpu: Gpu, name: str, cost: Cost | None = None) -> None:
        """`name`: of the label, e.g. `gpu:1`."""
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

    def add_busy(self, since_seconds: float) -> None:
        """Add what the GPU did in the time since the look before."""
        if since_seconds <= LONGEST_LOOK_SECONDS:
            self.busy_seconds += self._gpu.busy_share() * since_seconds

    def _keep_looking(self) -> None:
        before = time.monotonic()
        while not self._end.wait(LOOK_SECONDS):
            now = time.monotonic()
            try:
                self.add_busy(now - before)
            except OSError:  # the driver was unloaded, or the GPU fell off the bus
                return
            before = now
            if self._cost is not None:
                self._cost.so_far("gpu")

    def read(self) -> Iterator[Reading]:
        """Yield one reading of each figure."""
        yield Reading("device_busy_seconds_total", self.busy_seconds, (self._name,))
        with contextlib.suppress(OSError):
            used = self._gpu.used_bytes()
            yield Reading("device_memory_used_bytes", used, (self._name,))
