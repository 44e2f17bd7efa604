"""What kind of processor this is: nodes of one kind compute the same bits, nodes of different kinds need not."""

import platform
import re
from functools import cache
from pathlib import Path

CPU_INFO = Path("/proc/cpuinfo")
X86 = re.compile(r"^model name\s*:\s*(.+)$", re.MULTILINE)
ARM = tuple(re.compile(rf"^CPU {part}\s*:\s*(\S+)$", re.MULTILINE) for part in ("implementer", "part", "variant"))


@cache
def processor() -> str:
    """The architecture and, where the kernel tells, the model: `x86_64 AMD EPYC ...`, `aarch64 0x41 0xd03 0x0`."""
    try:
        return describe(platform.machine(), CPU_INFO.read_text(errors="replace"))
    except OSError:
        return platform.machine()


def describe(machine: str, cpu_info: str) -> str:
    """The same from the content of /proc/cpuinfo; a chip with different cores gives all their kinds."""
    if models := sorted(set(X86.findall(cpu_info))):
        return " ".join([machine, *models])
    kinds = zip(*(pattern.findall(cpu_info) for pattern in ARM), strict=False)
    return " ".join([machine, *sorted({" ".join(kind) for kind in kinds})])
