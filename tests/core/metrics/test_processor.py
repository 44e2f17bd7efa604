"""How many cores a process can compute on, and how many threads it can start."""

import os
import resource
from pathlib import Path

import pytest

from core.metrics import process
from tests.tables import table

QUOTAS = table("core/metrics/tables", "quotas")


@pytest.mark.parametrize("name", QUOTAS)
def test_a_quota_counts_like_the_affinity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    quotas, cores = QUOTAS[name]
    (tmp_path / "cgroup").write_text("0::/a/b\n")
    for group, content in quotas.items():
        (tmp_path / group).mkdir(parents=True, exist_ok=True)
        (tmp_path / group / "cpu.max").write_text(content + "\n")
    monkeypatch.setattr(process, "OWN_GROUP", tmp_path / "cgroup")
    monkeypatch.setattr(process, "GROUPS", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert process.usable_cores() == cores


def test_here_there_is_at_least_one_core() -> None:
    assert 1 <= process.usable_cores() <= (os.cpu_count() or 1)


TASKS_LEFT = table("core/metrics/tables", "tasks left")


@pytest.mark.parametrize("name", TASKS_LEFT)
def test_the_narrowest_limit_says_how_many_threads_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    own_groups, groups, limit, account, left = TASKS_LEFT[name]
    (tmp_path / "cgroup").write_text(own_groups)
    (tmp_path / "sys/kernel").mkdir(parents=True)
    (tmp_path / "sys/kernel/pid_max").write_text("1000\n")
    for pid, (owner, threads) in enumerate([(64219, 100), (64219, 50), (1000, 20)], 1):
        (tmp_path / f"{pid}").mkdir()
        (tmp_path / f"{pid}/status").write_text(
            f"Name:\tpython\nUid:\t{owner}\t{owner}\t{owner}\t{owner}\nThreads:\t{threads}\n"
        )
    for group, (most, now) in groups.items():
        (tmp_path / group).mkdir(parents=True, exist_ok=True)
        (tmp_path / group / "pids.max").write_text(f"{most}\n")
        (tmp_path / group / "pids.current").write_text(f"{now}\n")
    monkeypatch.setattr(process, "OWN_GROUP", tmp_path / "cgroup")
    monkeypatch.setattr(process, "GROUPS", tmp_path)
    monkeypatch.setattr(process, "PROC", tmp_path)
    monkeypatch.setattr(os, "getuid", lambda: account)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    assert process.tasks_left() == left
