"""A role process and its machine: memory, devices, its last line in a crash, and systemd.

What it says to systemd and supervisors is readiness (sd_notify(3)) and heartbeats (WatchdogSec=).
"""

import contextlib
import ctypes
import logging
import os
import platform
import re
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.ground.errors import ClusterError, ExitCode

MEBIBYTE = 2**20
NEEDED_BYTES = {"lean": 128 * MEBIBYTE, "stock": 320 * MEBIBYTE}
"""Memory that a server needs to start: 59 MB (lean) and 256 MB (stock) of anonymous memory when
idle, measured on x86-64 with TF 2.21, and enough pages of the libraries that it does not read them
again and again."""

ADDRESS_SPACE_BYTES = 2560 * MEBIBYTE
"""Address space of a server with the stacks of its hundred threads, mostly untouched: 2,400 MiB
measured."""

AVAILABLE = re.compile(r"^MemAvailable:\s+(\d+) kB$", re.MULTILINE)
UNLIMITED_BYTES = 2**62
"""Without a limit, cgroup v1 writes the largest multiple of a page that fits."""
MEMORY_FILES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
"""Names of a control group's limit and use, and of what can be evicted: versions 2 and 1."""
M_ARENA_MAX = -8
"""`man 3 mallopt`."""

PARAMETER_SERVER_ARENAS = 2
"""The C library would make eight heaps a core, and each keeps what its threads have freed."""


class TooLittleMemoryError(ClusterError):
    """The machine, its cgroup or a process limit leaves too little memory for the role."""

    exit_code = ExitCode.TOO_LITTLE_MEMORY


@dataclass(frozen=True)
class Headroom:
    """Available bytes, and what bounds them."""

    available_bytes: int
    bound: str


def headroom(proc: Path = Path("/proc"), control_groups: Path = Path("/sys/fs/cgroup")) -> Headroom:
    """Return the tightest of MemAvailable and the limits of our control groups (v1 and v2)."""
    bounds = _control_group_bounds(proc, control_groups)
    match = AVAILABLE.search((proc / "meminfo").read_text())
    if match:
        bounds.append(Headroom(int(match[1]) * 1024, "the machine's available memory"))
    return min(
        bounds,
        key=lambda bound: bound.available_bytes,
        default=Headroom(UNLIMITED_BYTES, "nothing"),
    )


def address_space() -> Headroom:
    """Return what RLIMIT_AS (`ulimit -v`) leaves this process."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return Headroom(UNLIMITED_BYTES, "nothing")
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return Headroom(
        max(0, limit - pages * resource.getpagesize()), "the address space limit (ulimit -v)"
    )


def check_memory(server: str) -> None:
    """Raises TooLittleMemoryError when a server of this kind would not fit."""
    require(
        server,
        NEEDED_BYTES[server],
        headroom(),
        "stop something, or move this role to another node",
    )
    require(server, ADDRESS_SPACE_BYTES, address_space(), "raise or lift it")


def require(server: str, needed: int, room: Headroom, remedy: str) -> None:
    """Raises TooLittleMemoryError when the room is less than the bytes needed."""
    if room.available_bytes < needed:
        raise TooLittleMemoryError(
            f"a {server} server needs {needed // MEBIBYTE} MiB and {room.bound} leaves "
            f"{room.available_bytes // MEBIBYTE} MiB: {remedy}"
        )


def _control_group_bounds(proc: Path, groups: Path) -> list[Headroom]:
    from core.metrics.process import control_groups  # a job on a node sends heartbeats without it

    return [
        bound
        for folder in control_groups("memory", proc, groups)
        for names in MEMORY_FILES
        if (bound := _bound(folder, *names))
    ]


def _bound(folder: Path, limit_name: str, usage_name: str, evictable_name: str) -> Headroom | None:
    try:
        limit = (folder / limit_name).read_text().strip()
        usage = int((folder / usage_name).read_text())
        statistics = (folder / "memory.stat").read_text()
    except OSError:
        return None
    if limit == "max" or int(limit) >= UNLIMITED_BYTES:
        return None
    evictable = re.search(rf"^{evictable_name} (\d+)$", statistics, re.MULTILINE)
    used = usage - (int(evictable[1]) if evictable else 0)
    return Headroom(max(0, int(limit) - used), f"the limit of control group {folder}")


def limit_arenas(count: int) -> bool:
    """Keep at most `count` heaps; call it before there are threads.

    False where the C library cannot (musl).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(M_ARENA_MAX, count))


def return_memory() -> bool:
    """Hand freed pages to the system. False where there are none, or the C library cannot (musl).

    The library of kernels, where this process has it, first frees what it keeps for later calls.
    Its heaps keep freed memory between blocks that live on. Measured: after four runs of two layers
    of 32 units a worker held 226 MB, and 124 to 139 MB after this. Takes tens of milliseconds for
    hundreds of megabytes.
    """
    from kernels.place import path  # a job on a node sends heartbeats without the kernels

    with contextlib.suppress(OSError):
        ctypes.CDLL(str(path()), mode=os.RTLD_NOLOAD).pscluster_give_back()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim is not None and bool(trim(0))


LAST_SECONDS = 2
ALMOST_NONE_BYTES = 32 * MEBIBYTE
"""Memory below which an abort counts as want of memory: std::bad_alloc and a failed thread
end in abort()."""

_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int)
_LIBC = ctypes.PyDLL(None)
"""Its calls keep Python's lock: another thread may wait with it for the loader, in which this one
has just crashed."""
_installed: list[object] = []  # C points to these, so they must live as long as the process


def report_crashes(line_of: Callable[[str], str]) -> None:
    """Report crashes of TensorFlow's machine code from now on.

    Each ends the process with exit code ILLEGAL_INSTRUCTION or TOO_LITTLE_MEMORY. Before that
    comes one line on stderr, which `line_of` makes of its words. Other aborts stay as they are.

    Python cannot foresee SIGILL: a wheel built for newer processors dies inside the loader, or at
    the first kernel that uses the instruction. Loading the library in a child first would show it,
    at twice the loading time and memory on every start of every Pi, and only for the loader. A
    handler in this process shows both and costs nothing.
    """
    illegal = (
        f"illegal instruction: this processor ({processor()}) lacks one that TensorFlow was built"
        " for; use a machine with a newer processor, or a TensorFlow wheel built for this one"
    )

    def on_illegal_instruction(number: int) -> None:
        _die(line_of(illegal), ExitCode.ILLEGAL_INSTRUCTION)

    def on_abort(number: int) -> None:
        # An abort inside malloc holds its lock. If this handler waits for it, SIGALRM ends the
        # process.
        signal.alarm(LAST_SECONDS)
        room = min(headroom(), address_space(), key=lambda bound: bound.available_bytes)
        if room.available_bytes < ALMOST_NONE_BYTES:
            reason = f"out of memory: {room.bound} leaves {room.available_bytes // MEBIBYTE} MiB"
            _die(line_of(reason), ExitCode.TOO_LITTLE_MEMORY)

    _install(signal.SIGILL, on_illegal_instruction)
    _install(signal.SIGABRT, on_abort)


def processor() -> str:
    """The processor's model according to Linux, else the machine's architecture."""
    with contextlib.suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(errors="replace")
        match = re.search(r"^(?:model name|Model)\s*:(.*)$", text, re.M)
        if match:
            return match[1].strip()
    return platform.machine()


def _install(number: signal.Signals, handle: Callable[[int], None]) -> None:
    # signal.signal would only set a flag and return to the illegal instruction.
    libc = ctypes.CDLL(None, use_errno=True)
    libc.signal.restype = ctypes.c_void_p
    libc.signal.argtypes = [ctypes.c_int, _HANDLER]
    handler = _HANDLER(handle)
    _installed.append(handler)
    libc.signal(number, handler)


def _die(line: str, code: ExitCode) -> None:
    text = f"{line}\n".encode()
    _LIBC.write(sys.stderr.fileno() if sys.stderr else 2, text, ctypes.c_size_t(len(text)))
    _LIBC._exit(int(code))


_connected: dict[str, socket.socket] = {}

logger = logging.getLogger("pscluster.role")


def keep_channel(environ: Mapping[str, str] = os.environ) -> None:
    """Connect to $NOTIFY_SOCKET before this process becomes an account that cannot.

    Never raises OSError.
    """
    address = _address(environ)
    with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
        channel = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        if address:
            channel.connect(address)
            _connected[address] = channel
            stack.pop_all()


def notify(state: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Send a state such as `READY=1` to $NOTIFY_SOCKET; False where no process listens.

    Never raises OSError.
    """
    address = _address(environ)
    if not address:
        return False
    with contextlib.suppress(OSError):
        if address in _connected:
            _connected[address].send(state.encode())
            return True
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.sendto(state.encode(), address)
            return True
    return False


def _address(environ: Mapping[str, str]) -> str:
    address = environ.get("NOTIFY_SOCKET", "")
    # Linux's abstract namespace
    if address.startswith("@"):
        return "\0" + address[1:]
    return address


def heartbeat_seconds(
    environ: Mapping[str, str] = os.environ, pid: int | None = None
) -> float | None:
    """The time between heartbeats: a third of $WATCHDOG_USEC.

    None where systemd expects none of this process; `pid` stands for another one.
    """
    within = environ.get("WATCHDOG_USEC", "")
    meant = environ.get("WATCHDOG_PID", "")
    if (
        not within.isdecimal()
        or int(within) == 0
        or meant not in ("", str(os.getpid() if pid is None else pid))
    ):
        return None
    return int(within) / 1e6 / 3


def send_heartbeats(
    every_seconds: float,
    answers: Callable[[float], bool],
    notify: Callable[[str], object],
    stop: threading.Event,
) -> threading.Thread:
    """Send `WATCHDOG=1` at this interval from a thread, while the server answers, until `stop`.

    `answers` gets the time it may take. A server that fails once has two more chances before it is
    overdue.
    """

    def beat() -> None:
        well = True
        rest = 0.0
        while not stop.wait(rest):
            begun = time.monotonic()
            # a Pi whose cores are all busy takes a second or two
            before = well
            well = answers(every_seconds)
            if well:
                notify("WATCHDOG=1")
            if well != before:
                if well:
                    state = "serving"
                else:
                    state = "the server does not answer on its own port"
                logger.log(logging.INFO if well else logging.ERROR, "%s", state)
                notify(f"STATUS={state}")
            rest = max(0.0, every_seconds - (time.monotonic() - begun))

    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    return thread


HIDDEN = "-1"
"""CUDA's number of no device."""
VISIBLE = "CUDA_VISIBLE_DEVICES"
TPU_VISIBLE = "TPU_VISIBLE_DEVICES"
EVERY = ",".join(map(str, range(64)))
"""Numbers of all GPUs: CUDA shows those before the first number that a machine has not (CUDA C
Programming Guide, environment variables). The variable cannot be left out: what loads TensorFlow
hides all GPUs where it is missing."""
GROWTH = "TF_FORCE_GPU_ALLOW_GROWTH"
ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
"""CUDA's own order is by speed; this is that of nvidia-smi and of NVML."""
_WRITTEN = re.compile(r"(gpu|tpu):([0-9]{1,2})(:whole)?")


@dataclass(frozen=True)
class ClaimedDevice:
    """One device of a node: `kind` is `gpu` or `tpu`, `whole` takes all of its memory at once."""

    kind: str
    number: int
    whole: bool = False

    @classmethod
    def parse(cls, text: str) -> "ClaimedDevice":
        """Read a flag such as `gpu:1`, or `gpu:1:whole`. Raises ValueError."""
        match = _WRITTEN.fullmatch(text)
        if match is None:
            raise ValueError(f"expected gpu:NUMBER or tpu:NUMBER, got {text!r}")
        return cls(match[1], int(match[2]), bool(match[3]))

    def __str__(self) -> str:
        return f"{self.kind}:{self.number}" + (":whole" if self.whole else "")


def role_environment(device: ClaimedDevice | None) -> Mapping[str, str]:
    """Return what a role sets before it loads TensorFlow: no device, or this one alone."""
    if device is None:
        return device_environment("cpu", ())
    return device_environment(device.kind, (device.number,), whole=device.whole)


def device_environment(
    kind: str, numbers: Sequence[int], *, whole: bool = False
) -> Mapping[str, str]:
    """Return the environment in which TensorFlow sees these devices alone.

    Without `numbers` it sees all of a kind but `cpu`; all GPUs are those that the environment of
    this process leaves it.
    """
    device_list = ",".join(map(str, numbers))
    if kind != "gpu":
        tpus = {TPU_VISIBLE: device_list} if kind == "tpu" and numbers else {}
        return {**tpus, VISIBLE: HIDDEN}
    return {
        VISIBLE: device_list or os.environ.get(VISIBLE, EVERY),
        **ORDER,
        GROWTH: "false" if whole else "true",
    }


def visible_gpus() -> tuple[int, ...]:
    """Return the GPUs' numbers in `nvidia-smi`; none where the environment says no numbers."""
    device_list = os.environ.get(VISIBLE, "").split(",")
    if all(word.strip().isdecimal() for word in device_list):
        return tuple(map(int, device_list))
    return ()
