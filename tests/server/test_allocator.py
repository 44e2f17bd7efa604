"""How many heaps the C library keeps, counted by its own `malloc_info`."""

import subprocess
import sys

import pytest

from cluster.server.allocator import PARAMETER_SERVER_ARENAS

COUNT_HEAPS = """
import ctypes, sys, threading
from cluster.server.allocator import limit_arenas

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


@pytest.mark.parametrize(("limit", "expected"), [(0, range(3, 8)), (PARAMETER_SERVER_ARENAS, range(1, 3))])
def test_threads_share_as_many_heaps_as_are_asked_for(limit: int, expected: range, tmp_path: object) -> None:
    command = [sys.executable, "-c", COUNT_HEAPS, str(limit), f"{tmp_path}/malloc_info.xml"]
    heaps = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert heaps in expected
