"""Promtool and prometheus are found, fetched once, or the reason is said."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cluster.errors import UsageError
from tools.prometheus_tools import NoPrometheus, tool

APT = """#!/bin/sh
echo once >> {folder}/downloads
touch prometheus_2_amd64.deb
"""
DPKG = """#!/bin/sh
mkdir -p unpacked/usr/bin && touch unpacked/usr/bin/promtool
"""


def program(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(script.format(folder=folder))
    (folder / name).chmod(0o755)


def test_what_is_on_the_path_goes_first(tmp_path: Path) -> None:
    program(tmp_path / "bin", "promtool", "#!/bin/sh\n")
    assert tool("promtool", tmp_path / "cache", str(tmp_path / "bin")) == tmp_path / "bin/promtool"
    assert not (tmp_path / "cache").exists()


def test_several_at_once_fetch_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "bin", "apt-get", APT)
    program(tmp_path / "bin", "dpkg", DPKG)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    cache = tmp_path / "cache"
    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(lambda _: tool("promtool", cache, "/nowhere"), range(4)))
    assert found == {cache / "prometheus/usr/bin/promtool"}
    assert (tmp_path / "bin/downloads").read_text() == "once\n"
    assert sorted(path.name for path in cache.iterdir()) == ["prometheus", "prometheus.lock"]
    with pytest.raises(NoPrometheus, match=r"has no prometheus, expected it at .*usr/bin/prometheus: remove"):
        tool("prometheus", cache, "/nowhere")


def test_says_why_it_cannot_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "bin", "apt-get", "#!/bin/sh\necho 'E: Unable to locate package prometheus' >&2; exit 100\n")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(
        NoPrometheus, match=r"failed \(E: Unable to locate package prometheus\): install .*apt-get update"
    ):
        tool("promtool", tmp_path / "cache")
    (tmp_path / "bin/apt-get").unlink()
    with pytest.raises(NoPrometheus, match="apt-get is not on PATH"):
        tool("promtool", tmp_path / "cache")
    with pytest.raises(UsageError, match="expected one of prometheus, promtool"):
        tool("grafana", tmp_path / "cache")
