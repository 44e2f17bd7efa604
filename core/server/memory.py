"""How much memory a role process may still take, and handing freed memory back."""

import contextlib
import ctypes
import os
import re
import resource
from dataclasses import dataclass
from pathlib import Path

from core.ground.errors import ClusterError, ExitCode
from kernels.place import path

MEBIBYTE = 2**20
NEEDED_BYTES = {"lean": 128 * MEBIBYTE, "stock": 320 * MEBIBYTE}
"""Memory that a server needs to start: 84 MB (lean) and 225 MB (stock) of anonymous memory when
idle, measured on x86-64 with TF 2.21, and enough pages of the libraries that it does not read them
again and again."""

ADDRESS_SPACE_BYTES = 2560 * MEBIBYTE
"""Address space of a server with the stacks of its hundred threads, mostly untouched: 2,400 MiB
measured."""

AVAILABLE = re.compile(r"^MemAvailable:\s+(\d+) kB$", re.MULTILINE)
UNLIMITED_BYTES = (
    2**62
)  # cgroup v1 writes the largest multiple of a page that fits where there is no limit
M_ARENA_MAX = -8
"""`man 3 mallopt`."""

PARAMETER_SERVER_ARENAS = 2
"""The C library would make eight heaps for each core, and each keeps what its threads have freed.
"""


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


def _control_group_bounds(proc: Path, control_groups: Path) -> list[Headroom]:
    membership = proc / "self" / "cgroup"
    bounds: list[Headroom] = []
    for line in membership.read_text().splitlines() if membership.exists() else ():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            mounts = [control_groups, control_groups / "unified"]
            names = ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            mounts = [control_groups / "memory"]
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        for mount in mounts:
            group = mount / path.lstrip("/")
            # Every enclosing group's limit holds. A container mounts the root of the groups, not
            # the group's own path.
            enclosing = (
                folder for folder in (group, *group.parents) if folder.is_relative_to(mount)
            )
            bounds += filter(None, (_bound(folder, *names) for folder in enclosing))
    return bounds


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


def give_back() -> bool:
    """Hand freed pages to the system. False where there are none, or the C library cannot (musl).

    The library of kernels, where this process has it, first frees what it keeps for later calls.

    Its heaps keep freed memory between blocks that live on. Measured: after four runs of two layers
    of 32 units a worker held 226 MB, and 124 to 139 MB after this. Takes tens of milliseconds for
    hundreds of megabytes.
    """
    with contextlib.suppress(OSError):
        ctypes.CDLL(str(path()), mode=os.RTLD_NOLOAD).pscluster_give_back()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim is not None and bool(trim(0))
