"""The environments of a requirements file come to nodes, which are this machine."""

import json
import sysconfig
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest

from core.ground.errors import ClusterError, UsageError
from core.inventory import load
from deploy.cluster.fleet import Fleet, Local
from deploy.converge import code as of_nodes
from deploy.converge.code import NodeExtras
from deploy.release import extras
from deploy.release.requirements import Target, environment_key
from deploy.release.scripts import install_environment, prune_extras
from deploy.release.wheelhouse import make_wheelhouse
from tests.deploy.local_shell import Heard
from tests.deploy.release.wheels import (
    EXECUTABLE,
    MACHINE,
    PYTHON,
    only_from,
    pure_wheel,
    requirements,
    uv_wheel,
)

INVENTORY = """schema: 1
cluster: pi
connection: ssh
nodes: [{{name: rpi11, address: 127.0.0.1, roles: [storage, ps, worker, coordinator]}}]
storage: {{server: rpi11, mount: {folder}/share, export: {folder}/share}}
"""
OTHER_MACHINE = "aarch64" if MACHINE == "x86_64" else "x86_64"
HELLO = {"platform": "hello"}


def node(name: str = "rpi11", **answers: str) -> Heard:
    """A node on which no job runs: a bare machine has no systemctl."""
    return Heard(name, {"list-units": "", **answers})


class Nodes:
    """A requirements file, and where a node has its environments; the common one is there."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.patch = patch
        self.index = folder / "index"
        self.share = folder / "share" / "shared" / "wheels"
        self.opt = folder / "opt"
        self.wanted = folder / "requirements.txt"
        self.wanted.write_text("beta\n")
        pure_wheel(self.index, "beta", "2.0")
        committed = requirements(uv_wheel(self.index))
        only_from(self.index, patch)
        self.share.mkdir(parents=True)
        (folder / "inventory.yaml").write_text(INVENTORY.format(folder=folder))
        self.inventory = load(folder / "inventory.yaml")
        key = environment_key(committed, PYTHON, MACHINE)
        home = self.environment(key, EXECUTABLE)
        site = home / "lib" / f"python{PYTHON}"
        site.mkdir(parents=True)
        (site / "site-packages").symlink_to(sysconfig.get_path("purelib"))
        self.current = self.opt / "current" / "environment"
        self.current.parent.mkdir()
        self.current.symlink_to(f"../environments/{key}")
        extras_root = str(self.opt / "extras")
        for module, name, value in (
            (extras, "committed", lambda **_: committed),
            (extras, "ENVIRONMENTS", str(self.opt / "environments")),
            (of_nodes, "CURRENT", str(self.opt / "current")),
            (of_nodes, "EXTRAS", extras_root),
            (of_nodes, "make_wheelhouse", partial(make_wheelhouse, cache=folder / "wheels")),
            (of_nodes, "install_environment", partial(install_environment, python=EXECUTABLE)),
            (of_nodes, "prune_extras", partial(prune_extras, root=extras_root)),
            (of_nodes, "lock_packages", partial(extras.lock_packages, cache=folder / "locks")),
        ):
            patch.setattr(module, name, value)

    def environment(self, key: str, python: str) -> Path:
        """One with this program as its Python."""
        home = self.opt / "environments" / key
        (home / "bin").mkdir(parents=True, exist_ok=True)
        (home / "bin" / "python").unlink(missing_ok=True)
        (home / "bin" / "python").symlink_to(python)
        (home / "pyvenv.cfg").write_text(f"home = {Path(EXECUTABLE).parent}\n")
        return home

    def bring(self, *nodes: Heard) -> Mapping[str, str]:
        """The key on each."""
        with Fleet([node(), *nodes], parallel=1) as fleet:
            names = [each.name for each in nodes]
            return NodeExtras(self.inventory).bring(fleet, self.wanted, names)


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nodes:
    return Nodes(tmp_path, monkeypatch)


def test_it_is_installed_once_and_the_second_job_finds_it(nodes: Nodes) -> None:
    first = node()
    second = node()
    keys = nodes.bring(first)
    home = nodes.opt / "extras" / "environments" / keys["rpi11"]
    asked = "import beta, packaging, json; print(json.dumps([beta.__file__, packaging.__file__]))"
    said = Local("here").run([str(home / "bin" / "python"), "-c", asked]).text
    beta, packaging = json.loads(said)
    assert beta.startswith(str(home))
    assert not packaging.startswith(str(home))
    assert list(nodes.share.glob("*/beta-2.0-py3-none-any.whl"))
    assert nodes.bring(second) == keys
    assert len(second.commands) < len(first.commands)
    assert not second.heard("wheels")


@pytest.mark.parametrize(
    ("units", "removes"),
    [("pscluster-job@20261123T0500-train.service loaded active running a job", False), ("", True)],
)
def test_nothing_is_removed_while_a_job_runs_or_waits(
    nodes: Nodes, units: str, removes: bool
) -> None:
    asked = node(**{"list-units": units})
    nodes.bring(asked)
    assert asked.heard("most=") == removes


def test_what_the_common_environment_has_needs_no_other(nodes: Nodes) -> None:
    nodes.patch.setattr(extras, "INSTALLER", "none")  # so that the list's uv counts as a package
    nodes.wanted.write_text("uv\n")
    assert nodes.bring(node()) == {"rpi11": ""}
    assert not (nodes.opt / "extras").exists()


@pytest.mark.parametrize(
    ("python", "words"),
    [
        (EXECUTABLE, f"runs the environment {'0' * 16}, not .*`fab deploy start --no-jobs"),
        ("/bin/false", "expected the environment of its release, got .*deploy start"),
    ],
)
def test_a_node_with_another_release_is_put_right_first(
    nodes: Nodes, python: str, words: str
) -> None:
    nodes.current.unlink()
    nodes.current.symlink_to(nodes.environment("0" * 16, python))
    with pytest.raises(ClusterError, match=f"rpi11: {words}"):
        nodes.bring(node())


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (f"3.99.1 {MACHINE} {'0' * 16}", "there are no wheels for Python 3.99.1"),
        (f"3.11.2 riscv {'0' * 16}", "on 'riscv'"),
        ("3.11.2 aarch64 ../../../etc", "expected the environment of its release"),
        ("hello", "expected the environment of its release"),
    ],
)
def test_a_foreign_answer_is_one_line(nodes: Nodes, answer: str, words: str) -> None:
    with pytest.raises(ClusterError, match=rf"^[^\n]*{words}[^\n]*$"):
        nodes.bring(node(platform=answer))


def test_a_refusal_of_the_node_is_said(nodes: Nodes) -> None:
    failing = partial(install_environment, python="/bin/false")
    nodes.patch.setattr(of_nodes, "install_environment", failing)
    said = r"rpi11: the packages cannot be installed: .*does not start"
    with pytest.raises(ClusterError, match=said):
        nodes.bring(node())


def foreign(python: str) -> str:
    """The answer of a node of another machine's kind."""
    key = extras.Base.of_nodes(Target(python, OTHER_MACHINE)).key
    return f"{python} {OTHER_MACHINE} {key}"


@pytest.mark.parametrize("python", [f"{PYTHON}.2", f"{PYTHON}.9"], ids=["one kind", "two kinds"])
def test_one_line_names_all_nodes_whose_lock_cannot_be_had(nodes: Nodes, python: str) -> None:
    """The package is a wheel for this machine's kind alone."""
    native = nodes.index / f"gamma-1.0-py3-none-manylinux_2_17_{MACHINE}.whl"
    pure_wheel(nodes.index, "gamma").rename(native)
    nodes.wanted.write_text("gamma\n")
    with pytest.raises(UsageError) as refused:
        nodes.bring(
            node("rpi01", platform=foreign(f"{PYTHON}.2")),
            node("rpi02"),
            node("rpi03", platform=foreign(python)),
        )
    line = str(refused.value)
    unfit = f"no versions fit CPython {PYTHON} on {OTHER_MACHINE}"
    assert line.startswith(f"rpi01, rpi03: {nodes.wanted}: {unfit}")
    assert "\n" not in line
    assert "rpi02" not in line
    assert not (nodes.opt / "extras").exists()


def test_each_node_that_cannot_be_asked_is_a_line_and_a_bad_file_asks_none(nodes: Nodes) -> None:
    with pytest.raises(ClusterError) as refused:
        nodes.bring(node("rpi01", **HELLO), node("rpi02"), node("rpi03", **HELLO))
    lines = str(refused.value).splitlines()
    assert [line.partition(":")[0] for line in lines] == ["rpi01", "rpi03"]
    nodes.wanted.write_text("-e .\n")
    unasked = node()
    with pytest.raises(UsageError, match="line 1: expected a package"):
        nodes.bring(unasked)
    assert unasked.commands == []
