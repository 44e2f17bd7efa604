"""Where the library of this machine is: what a role reads without NumPy."""

import platform
from pathlib import Path

KIND = "PSCLUSTER_KERNELS"
"""The variable that names a kind of processor; without it, the fastest that this one has."""
THREADS = "PSCLUSTER_THREADS"
"""The variable that says how many threads a call takes; without it, one a core."""


def path() -> Path:
    """Return where the library of this machine is; it may not exist."""
    return Path(__file__).resolve().parent / "built" / platform.machine() / "_kernels.so"
