"""How many heaps the C library keeps, counted by its own `malloc_info`."""

import pytest

from core.server.process import PARAMETER_SERVER_ARENAS
from tests.core.server.processes import python

COUNT_HEAPS = """
import ctypes, sys, threading
from core.server.process import limit_arenas

limit = int(sys.argv[1])
assert not limit or limit_arenas(limit)
library = ctypes.CDLL(None)
library.malloc.restype, library.fopen.restype = ctypes.c_void_p, ctypes.c_void_p
all_have_allocated = threading.Barrier(7)

def allocate():
    library.malloc(ctypes.c_size_t(5000))
    all_have_allocated.wait()

threads = [threading.Thread(target=allocate) for _ in range(6)]
for thread in threads:
    thread.start()
all_have_allocated.wait()
for thread in threads:
    thread.join()
stream = ctypes.c_void_p(library.fopen(sys.argv[2].encode(), b"w"))
library.malloc_info(0, stream)
library.fclose(stream)
print(open(sys.argv[2]).read().count("<heap nr="))
"""


@pytest.mark.parametrize(
    ("limit", "expected"), [(0, range(3, 8)), (PARAMETER_SERVER_ARENAS, range(1, 3))]
)
def test_threads_share_as_many_heaps_as_are_asked_for(
    limit: int, expected: range, tmp_path: object
) -> None:
    done = python("-c", COUNT_HEAPS, str(limit), f"{tmp_path}/malloc_info.xml")
    assert int(done.stdout) in expected


FREED_AND_KEPT = """
import ctypes
from pathlib import Path
from core.metrics.process import memory_bytes
from core.server.process import return_memory

def held():
    return memory_bytes(Path("/proc/self/status").read_text())["RssAnon"]

library = ctypes.CDLL(None)
library.malloc.restype, library.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
blocks = []
for _ in range(2000):
    blocks.append(library.malloc(ctypes.c_size_t(50_000)))
    ctypes.memset(blocks[-1], 1, 50_000)
library.malloc(ctypes.c_size_t(50_000))  # it lives on, and what is below it in the heap stays there
for block in blocks:
    library.free(block)
print(held())
print(return_memory())
print(held())
"""


def test_what_was_freed_goes_back_to_the_system() -> None:
    done = python("-c", FREED_AND_KEPT)
    before, whether, after = done.stdout.split()
    assert whether == "True"
    assert int(before) - int(after) > 90_000_000
