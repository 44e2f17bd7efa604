"""What an installation adds is known to `reset`, however the installation ends; with a real dpkg in a folder."""

from dataclasses import replace
from pathlib import Path

import pytest

from deploy.converge.change import Shell
from deploy.converge.machine_facts import FileFact
from deploy.converge.packages import PLANNED, Packages
from deploy.converge.reset import Traces, reset_script
from tests.deploy.converge.pi import thesis, untouched
from tests.deploy.converge.played_node import PlayedNode, about_package

ADDED = "/var/lib/pscluster-deploy/packages"
WANTED = Packages(("nftables",))


@pytest.fixture
def node(tmp_path: Path) -> PlayedNode:
    return PlayedNode(tmp_path / "node")


def script(wanted: Packages = WANTED, *present: str, cut_off: bool = False) -> str:
    facts = untouched(packages=dict.fromkeys(present, "1"))
    if cut_off:
        facts = replace(facts, files={PLANNED: FileFact("file", 0o644, "root", "root", b"nftables\n")})
    (change,) = wanted.changes(facts)
    (step,) = change.steps
    assert isinstance(step, Shell)
    return step.script


def installing(node: PlayedNode, *states: str, then: str = "exit 0") -> None:
    """`apt-get install` brings libnft and nftables, in these states, and goes on with `then`."""
    node.write("/brought", "".join(map(about_package, ("libnft", "nftables"), ("", "libnft"), states)))
    brought = f"cat {node.root}/brought >>{node.root}/var/lib/dpkg/status"
    planned = (
        "echo 'Inst libnft (1 Debian)'; echo 'Inst base-files [1] (2 Debian)'; echo 'Inst nftables:all (1 Debian)'"
    )
    node.packages(
        {"base-files": ""},
        before_apt=f'case "$*" in *" -s "*install*) {planned}; exit ;; *install*) {brought}; {then} ;; esac',
    )
    for name in ("libnft", "nftables"):
        node.write(f"/var/lib/dpkg/info/{name}.list", "")


def remembered(node: PlayedNode) -> set[str]:
    return set((node.root / ADDED.lstrip("/")).read_text().split())


def test_what_an_installation_adds_is_remembered(node: PlayedNode) -> None:
    installing(node, "installed", "installed")
    done = node.run(script())
    assert (done.returncode, done.stderr) == (0, "")
    assert remembered(node) == {"libnft", "nftables"}
    assert not (node.root / PLANNED.lstrip("/")).exists()


@pytest.mark.parametrize("signal", ["TERM", "KILL"])
def test_an_installation_that_was_killed_is_gone_on_with_and_remembered(node: PlayedNode, signal: str) -> None:
    installing(node, "installed", "unpacked", then=f"kill -{signal} $PPID; exit 1")
    assert node.run(script()).returncode != 0
    assert (node.root / PLANNED.lstrip("/")).exists() == (signal == "KILL")
    assert node.installed() == {"base-files", "libnft"}

    node.apt("exit 0")
    done = node.run(script())
    assert (done.returncode, done.stderr) == (0, "")
    assert node.installed() == {"base-files", "libnft", "nftables"}  # dpkg went on with it
    assert remembered(node) == {"libnft", "nftables"}


def test_what_a_person_installs_after_one_that_was_killed_is_theirs(node: PlayedNode) -> None:
    installing(node, "installed", "unpacked", then="kill -KILL $PPID; exit 1")
    node.run(script())
    with (node.root / "var/lib/dpkg/status").open("a") as status:
        status.write(about_package("postgresql"))
    node.write("/var/lib/dpkg/info/postgresql.list", "")
    node.apt("")
    done = node.run(reset_script(Traces.of(thesis(), data=False), "rpi01"))
    assert (done.returncode, done.stderr) == (0, "")
    assert node.installed() == {"base-files", "postgresql"}


def test_what_was_installed_before_somebody_could_note_it_is_noted_alone(node: PlayedNode) -> None:
    installing(node, "installed", "installed", then="kill -KILL $PPID; exit 1")
    node.run(script())
    done = node.run(script(WANTED, "nftables", cut_off=True))
    assert (done.returncode, done.stderr) == (0, "")
    assert remembered(node) == {"libnft", "nftables"}
    assert not (node.root / PLANNED.lstrip("/")).exists()


def test_a_reset_after_an_installation_that_was_killed_removes_what_it_added(node: PlayedNode) -> None:
    installing(node, "installed", "unpacked", then="kill -KILL $PPID; exit 1")
    node.run(script())
    node.apt("")
    done = node.run(reset_script(Traces.of(thesis(), data=False), "rpi01"))
    assert (done.returncode, done.stderr) == (0, "")
    assert node.installed() == {"base-files"}
    assert not (node.root / "var/lib/pscluster-deploy").exists()


def test_nothing_is_noted_twice() -> None:
    assert WANTED.changes(untouched(packages={"nftables": "1"})) == ()
