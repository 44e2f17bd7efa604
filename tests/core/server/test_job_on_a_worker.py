"""What a job leaves in a worker that it reaches: few threads, and no copy of the windows."""

import os
from pathlib import Path

from core.server.process import MEBIBYTE
from tests.core.server.processes import python, running
from tests.ports import free_ports

GATHER = """
import sys
import core.engine.environment
from core.engine.runtime import Peers, Runtime, device
from core.ground.lazy import tf

chief, worker, file, rows = sys.argv[1:]
runtime = Runtime(Peers(chief, (), (worker,)))
runtime.update(frozenset([0]))

@tf.function(autograph=False)
def row(index):
    shape = [int(rows), 1024]
    windows = tf.raw_ops.ImmutableConst(dtype=tf.float32, shape=shape, memory_region_name=file)
    return tf.gather(windows, index)

with tf.device(device("worker", 0)):
    print(row(tf.constant(3)).shape[0])
"""
ROWS = 16384
COPY_BYTES = ROWS * 4096
MOST_THREADS = 60
"""It has 42 here; 63 more with TensorFlow's queues, and 128 more with a thread a worker."""


def anonymous_bytes(pid: int) -> int:
    (line,) = [
        line
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("RssAnon:")
    ]
    return int(line.split()[1]) * 1024


def test_a_worker_of_a_large_cluster_has_few_threads_and_copies_no_windows(tmp_path: Path) -> None:
    windows = tmp_path / "windows"
    with windows.open("wb") as file:
        file.truncate(COPY_BYTES)
    (chief,) = free_ports(1)
    with running("worker_node", "--peers", "128", "--reads", str(tmp_path)) as role:
        before = anonymous_bytes(role.process.pid)
        words = (f"127.0.0.1:{chief}", f"127.0.0.1:{role.port}", str(windows), str(ROWS))
        done = python("-c", GATHER, *words)
        assert done.stdout.splitlines()[0] == "1024", done.stderr
        grown = anonymous_bytes(role.process.pid) - before
        threads = len(os.listdir(f"/proc/{role.process.pid}/task"))
    assert grown < COPY_BYTES / 2, f"{grown / MEBIBYTE:.0f} MiB more"
    assert threads < MOST_THREADS
