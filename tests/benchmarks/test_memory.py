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


def test_a_process_that_has_ended_and_is_not_yet_reaped_is_an_error() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(ProcessLookupError, match="has ended"):
        anonymous_bytes(ended.pid)
    ended.wait()


def test_the_summary_is_the_largest_of_each_role() -> None:
    figures = {
        ("lean", "pscluster", 32, None): {"ps:0": (80, 90), "worker:0": (81, 170), "worker:1": (82, 165)},
        ("stock", "pscluster", 32, None): {"ps:0": (250, 260), "worker:0": (251, 340)},
        ("stock", "keras", 32, None): {"ps:0": (252, 300), "worker:0": (253, 560)},
        ("lean", "pscluster", 128, None): {"ps:0": (83, 120), "worker:0": (84, 430)},
        ("lean", "pscluster", 32, 16): {"ps:0": (84, 110), "worker:0": (85, 270)},
        ("lean", "pscluster", 128, 16): {"ps:0": (86, 170), "worker:0": (87, 640)},
    }
    rows = [
        {
            **dict(zip(("server", "trainer", "units", "sync_micro_batches"), case, strict=True)),
            "task": task,
            "idle_anonymous_mb": idle,
            "training_anonymous_mb": training,
        }
        for case, tasks in figures.items()
        for task, (idle, training) in {**tasks, "coordinator:0": (None, 300 + case[2])}.items()
    ]
    assert summarize(rows) == {
        "ps_idle_anonymous_mb": 80,
        "ps_training_anonymous_mb": 90,
        "worker_training_anonymous_mb": 170,
        "coordinator_training_anonymous_mb": 332,
        "ps_training_h128_anonymous_mb": 120,
        "worker_training_h128_anonymous_mb": 430,
        "coordinator_training_h128_anonymous_mb": 428,
        "sixteen": {
            "ps_idle_anonymous_mb": 84,
            "ps_training_anonymous_mb": 110,
            "worker_training_anonymous_mb": 270,
            "coordinator_training_anonymous_mb": 332,
            "ps_training_h128_anonymous_mb": 170,
            "worker_training_h128_anonymous_mb": 640,
            "coordinator_training_h128_anonymous_mb": 428,
        },
        "stock": {
            "ps_idle_anonymous_mb": 250,
            "ps_training_anonymous_mb": 260,
            "worker_training_anonymous_mb": 340,
            "coordinator_training_anonymous_mb": 332,
        },
        "stock_keras": {
            "ps_idle_anonymous_mb": 252,
            "ps_training_anonymous_mb": 300,
            "worker_training_anonymous_mb": 560,
            "coordinator_training_anonymous_mb": 332,
        },
    }
