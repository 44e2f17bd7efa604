"""Promtool and prometheus are found, fetched once, or the reason is said."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from core.ground.errors import UsageError
from tests.habits.played_apt import PlayedApt
from tools.prometheus_tools import NoPrometheus, tool


@pytest.fixture
def apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlayedApt:
    apt = PlayedApt(tmp_path / "apt")
    monkeypatch.setenv("PATH", f"{apt.folder}:{os.environ['PATH']}")
    return apt


def test_what_is_on_the_path_goes_first(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "promtool").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "promtool").chmod(0o755)
    assert tool("promtool", tmp_path / "cache", str(tmp_path / "bin")) == tmp_path / "bin/promtool"
    assert not (tmp_path / "cache").exists()


def test_several_at_once_fetch_it_once(tmp_path: Path, apt: PlayedApt) -> None:
    apt.package("prometheus", {"usr/bin/promtool": "#!/bin/sh\n"})
    cache = tmp_path / "cache"
    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(lambda _: tool("promtool", cache, "/nowhere"), range(4)))
    assert found == {cache / "prometheus/usr/bin/promtool"}
    assert apt.asked == ["update", "download"]
    assert sorted(path.name for path in cache.iterdir()) == ["prometheus", "prometheus.lock"]
    with pytest.raises(
        NoPrometheus, match=r"has no prometheus, expected it at .*usr/bin/prometheus: remove"
    ):
        tool("prometheus", cache, "/nowhere")


def test_says_why_it_cannot_be_had(
    tmp_path: Path, apt: PlayedApt, monkeypatch: pytest.MonkeyPatch
) -> None:
    apt.offline()
    with pytest.raises(
        NoPrometheus,
        match=r"`apt-get update` failed \(E: no network\): install Debian's `prometheus`",
    ):
        tool("promtool", tmp_path / "cache", "/nowhere")
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["prometheus.lock"]
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoPrometheus, match="apt-get is not on PATH"):
        tool("promtool", tmp_path / "cache")
    with pytest.raises(UsageError, match="expected one of prometheus, promtool"):
        tool("grafana", tmp_path / "cache")
