"""How many cores a process can compute on."""

import os
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
