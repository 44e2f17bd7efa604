"""The tests' tools: the machine's own first, else Debian's, unpacked with the libraries that are
missing."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.habits.played_apt import PlayedApt
from tests.tables import table
from tools import debian_tools, prometheus_tools
from tools.debian_tools import Tool

PACKAGES = table("habits/tables", "packages_of_debian")


TOOLS = (
    Tool(
        "honk",
        "geese",
        "usr/bin/honk",
        environment={"CALL": "{root}/etc"},
        with_packages=("feathers",),
    ),
    Tool("moo", "cows", "usr/sbin/moo", also=("cat",)),
    Tool("sudo", "sudo", "usr/bin/sudo"),
)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlayedApt:
    """A world of three tools, of which the machine has none, and no Prometheus to look for."""
    apt = PlayedApt(tmp_path / "apt")
    monkeypatch.setattr(debian_tools, "TOOLS", {tool.name: tool for tool in TOOLS})
    monkeypatch.setattr(debian_tools, "NAMES", tuple(tool.name for tool in TOOLS))
    monkeypatch.setattr(prometheus_tools, "TOOLS", ())
    monkeypatch.setattr(debian_tools, "ELSEWHERE", ())
    for name in ("tar", "dpkg-deb", "sh", "cp", "rm"):
        command(tmp_path, name)
    monkeypatch.setenv("PATH", f"{apt.folder}:{tmp_path / 'commands'}")
    return apt


def command(tmp_path: Path, name: str) -> Path:
    """A command that the machine has."""
    place = tmp_path / "commands" / name
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(Path("/usr/bin", name))
    return place


@pytest.fixture
def full(apt: PlayedApt) -> PlayedApt:
    """All packages can be had."""
    for name, files in PACKAGES.items():
        apt.package(name, files, "libgeese" if name == "geese" else "")
    return apt


def unpacked(cache: Path) -> list[str]:
    assert debian_tools.fetch(cache) == {}
    return sorted(os.listdir(cache / "test-tools/bin"))


def test_a_tool_is_unpacked_with_what_it_needs_and_runs(cache: Path, full: PlayedApt) -> None:
    assert debian_tools.missing(cache) == ["honk", "moo", "sudo"]
    unpacked(cache)
    assert debian_tools.missing(cache) == []
    honk = debian_tools.find("honk", cache)
    assert honk == cache / "test-tools/bin/honk"
    root = cache / "test-tools/root"
    said = subprocess.check_output([honk, "loud"], text=True)
    assert said.split() == ["honk", f"{root}/etc", f"{root}/usr/lib/here", "loud"]
    assert (root / "usr/share/feathers").exists()
    assert (root / "bin").readlink() == Path("usr/bin")
    assert sorted(os.listdir(cache)) == ["test-tools", "test-tools.lock"]
    asked = full.asked
    unpacked(cache)
    assert full.asked == asked, "nothing is missing, so nothing is asked for"


@pytest.mark.usefixtures("full")
def test_no_program_gets_the_rights_of_root(cache: Path) -> None:
    unpacked(cache)
    files = [path for path in (cache / "test-tools").rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o7000 for path in files} == {0}
    assert debian_tools.find("sudo", cache) is None, "without them sudo is no command"
    assert debian_tools.is_unpacked("sudo", cache)


@pytest.mark.usefixtures("full")
def test_the_machine_s_own_goes_first_and_by_another_name_too_and_what_was_unpacked_stays(
    tmp_path: Path, cache: Path
) -> None:
    cat = command(tmp_path, "cat")
    assert debian_tools.missing(cache) == ["honk", "sudo"]
    assert unpacked(cache) == ["honk"]
    assert debian_tools.find("moo", cache) == cat
    assert debian_tools.installed("moo", cache)
    assert not debian_tools.installed("honk", cache)
    cat.unlink()
    assert debian_tools.missing(cache) == ["moo"]
    assert unpacked(cache) == ["honk", "moo"]


def test_a_package_that_debian_has_not_costs_its_tool_alone(
    cache: Path, apt: PlayedApt, capsys: pytest.CaptureFixture[str]
) -> None:
    apt.package("geese", {"usr/bin/honk": PACKAGES["geese"]["bin/honk"]})
    apt.package("feathers", PACKAGES["feathers"])
    apt.package("cows", {"usr/share/cows": ""})
    assert debian_tools.main([], cache) == 1
    assert capsys.readouterr().err.splitlines()[-2:] == [
        "make test-tools: no moo: its package has no such program",
        "make test-tools: no sudo: `apt-get --print-uris --no-install-recommends ...` failed "
        "(E: Unable to locate package sudo)",
    ]
    asked = len(apt.asked)
    assert debian_tools.main(["--on-the-way"], cache) == 0
    assert len(apt.asked) == asked, "what was refused is asked for again by `make test-tools` alone"
    assert capsys.readouterr() == ("", "")
    apt.package("sudo", PACKAGES["sudo"])
    assert debian_tools.main([], cache) == 1
    assert debian_tools.missing(cache) == ["moo"]


def test_without_a_mirror_the_tests_run_all_the_same(
    cache: Path, apt: PlayedApt, capsys: pytest.CaptureFixture[str]
) -> None:
    apt.offline()
    assert debian_tools.main(["--on-the-way"], cache) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "make test-tools: no honk, moo, sudo: `apt-get update` failed (E: no network)"
    assert debian_tools.main([], cache) == 1
