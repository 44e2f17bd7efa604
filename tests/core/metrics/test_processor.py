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
    (tmp_path / "self").mkdir()
    (tmp_path / "self/cgroup").write_text("0::/a/b\n")
    for group, content in quotas.items():
        (tmp_path / group).mkdir(parents=True, exist_ok=True)
        (tmp_path / group / "cpu.max").write_text(content + "\n")
    monkeypatch.setattr(process, "PROC", tmp_path)
    monkeypatch.setattr(process, "GROUPS", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert process.usable_cores() == cores


def test_here_there_is_at_least_one_core() -> None:
    assert 1 <= process.usable_cores() <= (os.cpu_count() or 1)


TASKS_LEFT = table("core/metrics/tables", "tasks left")


@pytest.mark.parametrize("case", TASKS_LEFT)
def test_the_narrowest_limit_says_how_many_threads_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    own_groups, groups, limit, account, remaining = TASKS_LEFT[case]
    files = {"self/cgroup": own_groups, "sys/kernel/pid_max": "1000\n", **groups}
    for pid, (owner, threads) in enumerate([(64219, 100), (64219, 50), (1000, 20)], 1):
        files[f"{pid}/status"] = f"\nUid:\t{owner}\t{owner}\nThreads:\t{threads}\n"
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}")
    monkeypatch.setattr(process, "GROUPS", tmp_path)
    monkeypatch.setattr(process, "PROC", tmp_path)
    monkeypatch.setattr(os, "getuid", lambda: account)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    assert process.tasks_left() == remaining
