import os
import subprocess
import sys
import threading

import pytest

from benchmarks.memory import Sampler
from benchmarks.report import memory_bytes

BLOCK_BYTES = 64 * 1024 * 1024


def test_memory_a_process_fills_is_anonymous() -> None:
    before = memory_bytes(os.getpid())
    block = bytearray(b"x") * BLOCK_BYTES
    assert memory_bytes(os.getpid()) - before >= 0.9 * len(block)


def test_a_process_that_is_gone_is_an_error() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    with pytest.raises(OSError, match="No such file"):
        memory_bytes(ended.pid)


def test_the_sampler_reads_until_it_is_left_and_ends_its_thread() -> None:
    before = threading.active_count()
    with Sampler({"worker:0": os.getpid()}, every_seconds=0.001) as sampler:
        block = bytearray(b"x") * BLOCK_BYTES
        grown = memory_bytes(os.getpid()) - len(block) // 2
        while not sampler.samples["worker:0"] or max(sampler.samples["worker:0"]) < grown:
            pass
    assert threading.active_count() == before
    assert max(sampler.samples["worker:0"]) >= grown


def test_a_process_that_has_ended_and_is_not_yet_reaped_is_an_error() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(ProcessLookupError, match="has ended"):
        memory_bytes(ended.pid)
    ended.wait()
