import os
import subprocess
import sys
import threading

import pytest

from benchmarks.memory import Sampler, anonymous_bytes, summarize

BLOCK_BYTES = 64 * 1024 * 1024


def test_memory_a_process_fills_is_anonymous() -> None:
    before = anonymous_bytes(os.getpid())
    block = bytearray(b"x") * BLOCK_BYTES
    assert anonymous_bytes(os.getpid()) - before >= 0.9 * len(block)


def test_a_process_that_is_gone_is_an_error() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    with pytest.raises(OSError, match="No such file"):
        anonymous_bytes(ended.pid)


def test_the_sampler_reads_until_it_is_left_and_ends_its_thread() -> None:
    before = threading.active_count()
    with Sampler({"worker:0": os.getpid()}, every_seconds=0.001) as sampler:
        block = bytearray(b"x") * BLOCK_BYTES
        grown = anonymous_bytes(os.getpid()) - len(block) // 2
        while not sampler.samples["worker:0"] or max(sampler.samples["worker:0"]) < grown:
            pass
    assert threading.active_count() == before
    assert max(sampler.samples["worker:0"]) >= grown


def test_the_summary_is_the_largest_of_each_role() -> None:
    rows = [
        {"server": server, "task": task, "idle_anonymous_mb": idle, "training_anonymous_mb": training}
        for server, task, idle, training in (
            ("lean", "ps:0", 80.0, 90.0),
            ("lean", "worker:0", 81.0, 170.0),
            ("lean", "worker:1", 82.0, 165.0),
            ("stock", "ps:0", 250.0, 260.0),
            ("stock", "worker:0", 251.0, 340.0),
        )
    ]
    found = summarize(rows)
    assert found["ps_idle_anonymous_mb"] == 80.0
    assert found["worker_training_anonymous_mb"] == 170.0
    assert found["stock"]["ps_idle_anonymous_mb"] == 250.0
    assert found["stock"]["worker_training_anonymous_mb"] == 340.0
