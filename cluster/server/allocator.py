"""How many heaps the C library keeps for a process's threads."""

import ctypes

M_ARENA_MAX = -8
"""`man 3 mallopt`."""

PARAMETER_SERVER_ARENAS = 2
"""Where the C library would make eight for each core, and each keeps what its threads have freed."""


def limit_arenas(count: int) -> bool:
    """Keep at most `count` heaps; before the threads are there. False where the C library has no such limit (musl)."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(M_ARENA_MAX, count))
