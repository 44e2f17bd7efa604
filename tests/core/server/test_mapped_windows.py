"""What a function costs the process that computes it: few threads, and no copy of the windows."""

import os
from pathlib import Path

import pytest

from tests.core.server.processes import python, running
from tests.ports import free_ports

GATHER = """
import os, sys
import core.engine.environment
from core.engine.runtime import Peers, Runtime, device, here, one_thread_an_operation
from core.ground.lazy import tf
from tests.core.server.test_mapped_windows import ROWS, anonymous_bytes

file, addresses = sys.argv[1], sys.argv[2:]
one_thread_an_operation()
place, pid = here(), os.getpid()
if addresses:
    runtime = Runtime(Peers(addresses[0], (), (addresses[1],)))
    runtime.update(frozenset([0]))
    place, pid = device("worker", 0), int(addresses[2])

@tf.function(autograph=False)
def row(index):
    shape = [ROWS, 1024]
    windows = tf.raw_ops.ImmutableConst(dtype=tf.float32, shape=shape, memory_region_name=file)
    return tf.gather(windows, index)

with tf.device(place):
    index = tf.constant(3)
    before = anonymous_bytes(pid)
    row(index).numpy()
    print(anonymous_bytes(pid) - before)
"""
ROWS = 16384
COPY_BYTES = ROWS * 4096
MOST_THREADS = 100
"""It has 50 on two cores and some more on many; 63 more with TensorFlow's queues, and 128 more
with a thread a worker."""


@pytest.fixture
def windows(tmp_path: Path) -> Path:
    """A file of zeros."""
    file = tmp_path / "windows"
    with file.open("wb") as stream:
        stream.truncate(COPY_BYTES)
    return file


def grown_bytes(*words: str) -> int:
    """Anonymous memory more in the process that computes a row of the windows."""
    done = python("-c", GATHER, *words)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def anonymous_bytes(pid: int) -> int:
    (line,) = [
        line
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("RssAnon:")
    ]
    return int(line.split()[1]) * 1024


def test_a_process_of_its_own_copies_no_windows(windows: Path) -> None:
    assert grown_bytes(str(windows)) < COPY_BYTES / 2


def test_a_worker_of_a_large_cluster_has_few_threads_and_copies_no_windows(windows: Path) -> None:
    (chief,) = free_ports(1)
    flags = ("--peers", "128", "--workers-here", "128", "--reads", str(windows.parent))
    with running("worker_node", *flags) as role:
        pid = role.process.pid
        addresses = (f"127.0.0.1:{chief}", f"127.0.0.1:{role.port}")
        assert grown_bytes(str(windows), *addresses, str(pid)) < COPY_BYTES / 2
        assert len(os.listdir(f"/proc/{pid}/task")) < MOST_THREADS
