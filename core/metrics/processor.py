"""The kind of processor.

Nodes of one kind compute the same bits, nodes of different kinds may not.
"""

import contextlib
import math
import os
import platform
import re
from functools import cache
from pathlib import Path

CPU_INFO = Path("/proc/cpuinfo")
OWN_GROUP = Path("/proc/self/cgroup")
GROUPS = Path("/sys/fs/cgroup")
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
    quotas = _quotas(OWN_GROUP, GROUPS)
    return max(1, min([len(os.sched_getaffinity(0)), *(math.ceil(quota) for quota in quotas)]))


def _quotas(own_group: Path, groups: Path) -> list[float]:
    """Return the cores that `cpu.max` allows to the process's control group (version 2).

    Each group above it may set a limit too; the list is empty without any.
    """
    try:
        lines = own_group.read_text().splitlines()
    except OSError:
        return []
    name = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), "/")
    folder = groups / name.strip("/")
    quotas = []
    for group in (folder, *folder.parents):
        if not group.is_relative_to(groups):
            break
        with contextlib.suppress(
            OSError, ValueError
        ):  # no such file at the root, or another kernel's format
            most, period = (group / "cpu.max").read_text().split()
            if most != "max":
                quotas.append(int(most) / int(period))
    return quotas
