"""Memory that goes back to the system: of large requests at once, of connections soon after."""

import ctypes
import gc
from contextlib import suppress

_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
"""Parameters of mallopt(3)."""
LARGE_BYTES = 1 << 18
ARENAS = 2


def keep_what_there_is() -> None:
    """Exempt every present object from garbage collection.

    Python collects everything only once the new objects are a quarter of the old ones, and modules
    alone are so many that the remains of tens of thousands of connections would wait for it.
    """
    gc.collect()
    gc.freeze()


def give_back_large_blocks() -> None:
    """Have glibc map each block of 256 KiB and more by itself, and keep two arenas.

    By default it raises that threshold to the largest block it has seen, 32 MiB at most, and each
    thread then keeps such blocks in an arena of its own. Another C library has no mallopt, and
    needs none.
    """
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
        mallopt(_M_ARENA_MAX, ARENAS)
