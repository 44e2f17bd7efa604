"""The environments of a requirements file come to nodes, which are this machine."""

import json
import sysconfig
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import ClusterError, UsageError
from cluster.inventory import Inventory, load
from deploy.cluster.fleet import Fleet
from deploy.cluster.local import Local
from deploy.converge import extras as of_nodes
from deploy.converge.extras import NodeExtras
from deploy.release import extras
from deploy.release.requirements import Target, environment_key
from deploy.release.scripts import install_environment, prune_extras
from deploy.release.wheelhouse import make_wheelhouse
from tests.deploy.release.wheels import EXECUTABLE, MACHINE, PYTHON, pure_wheel, requirements, uv_wheel

INVENTORY = """schema: 1
cluster: pi
connection: ssh
nodes: [{{name: rpi11, address: 127.0.0.1, roles: [storage, ps, worker, coordinator]}}]
storage: {{server: rpi11, mount: {folder}/share, export: {folder}/share}}
"""


@pytest.fixture
def opt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a node has its environments; the common one is there."""
    index = tmp_path / "index"
    pure_wheel(index, "beta", "2.0")
    committed = requirements(uv_wheel(index))
    monkeypatch.setenv("UV_FIND_LINKS", str(index))
    (tmp_path / "simple").mkdir()
    monkeypatch.setenv("UV_DEFAULT_INDEX", (tmp_path / "simple").as_uri())
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    folder = tmp_path / "opt"
    key = environment_key(committed, PYTHON, MACHINE)
    home = folder / "environments" / key
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "python").symlink_to(EXECUTABLE)
    (home / "pyvenv.cfg").write_text(f"home = {Path(EXECUTABLE).parent}\n")
    site = home / "lib" / f"python{PYTHON}"
    site.mkdir(parents=True)
    (site / "site-packages").symlink_to(sysconfig.get_path("purelib"))
    (folder / "current").mkdir()
    (folder / "current" / "environment").symlink_to(f"../environments/{key}")
    (tmp_path / "share" / "shared" / "wheels").mkdir(parents=True)
    for module, name, value in (
        (extras, "committed", lambda **_: committed),
        (extras, "ENVIRONMENTS", str(folder / "environments")),
        (of_nodes, "CURRENT", str(folder / "current")),
        (of_nodes, "EXTRAS", str(folder / "extras")),
        (of_nodes, "make_wheelhouse", partial(make_wheelhouse, cache=tmp_path / "wheels")),
        (of_nodes, "install_environment", partial(install_environment, python=EXECUTABLE)),
        (of_nodes, "prune_extras", partial(prune_extras, root=str(folder / "extras"))),
        (of_nodes, "locked", partial(extras.locked, cache=tmp_path / "locks")),
    ):
        monkeypatch.setattr(module, name, value)
    return folder


@pytest.fixture
def inventory(tmp_path: Path) -> Inventory:
    (tmp_path / "inventory.yaml").write_text(INVENTORY.format(folder=tmp_path))
    return load(tmp_path / "inventory.yaml")


@pytest.fixture
def wanted(tmp_path: Path) -> Path:
    (tmp_path / "requirements.txt").write_text("beta\n")
    return tmp_path / "requirements.txt"


class Heard(Local):
    """This machine, and the commands that came."""

    def __init__(self, answers: dict[str, str] | None = None, name: str = "rpi11") -> None:
        super().__init__(name)
        self.commands: list[str] = []
        self._answers = {"list-units": "", **(answers or {})}  # a bare machine has no systemctl

    def run(self, words: Any, **how: Any) -> Any:
        self.commands.append(" ".join(map(str, words)))
        for part, answer in self._answers.items():
            if part in self.commands[-1]:
                words = ["echo", answer]
        return super().run(words, **how)


def bring(inventory: Inventory, wanted: Path, node: Heard) -> str:
    return bring_to_all(inventory, wanted, node)[node.name]


def bring_to_all(inventory: Inventory, wanted: Path, *nodes: Heard) -> Mapping[str, str]:
    with Fleet([Heard(), *nodes], parallel=1) as fleet:
        return NodeExtras(inventory).bring(fleet, wanted, [node.name for node in nodes])


def test_it_is_installed_once_and_the_second_job_finds_it(
    inventory: Inventory, wanted: Path, opt: Path, tmp_path: Path
) -> None:
    first, second = Heard(), Heard()
    key = bring(inventory, wanted, first)
    home = opt / "extras" / "environments" / key
    asked = "import beta, packaging, json; print(json.dumps([beta.__file__, packaging.__file__]))"
    beta, packaging = json.loads(Local("here").run([str(home / "bin" / "python"), "-c", asked]).text)
    assert beta.startswith(str(home))
    assert not packaging.startswith(str(home))
    assert list((tmp_path / "share" / "shared" / "wheels").glob("*/beta-2.0-py3-none-any.whl"))
    assert bring(inventory, wanted, second) == key
    assert len(second.commands) < len(first.commands)
    assert not any("wheels" in command for command in second.commands)


def test_nothing_is_removed_while_a_job_runs_or_waits(inventory: Inventory, wanted: Path, opt: Path) -> None:
    node = Heard({"list-units": "pscluster-job@20261123T0500-train.service loaded active running a job"})
    bring(inventory, wanted, node)
    assert not any("most=" in command for command in node.commands)
    idle = Heard()
    bring(inventory, wanted, idle)
    assert any("most=" in command for command in idle.commands)


def test_what_the_common_environment_has_needs_no_other(
    inventory: Inventory, wanted: Path, opt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extras, "INSTALLER", "none of them")  # so that the list's uv counts as a package of ours
    wanted.write_text("uv\n")
    assert bring(inventory, wanted, Heard()) == ""
    assert not (opt / "extras").exists()


def test_a_node_with_another_release_is_put_right_first(
    inventory: Inventory, wanted: Path, opt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (opt / "current" / "environment").unlink()
    (opt / "environments" / ("0" * 16) / "bin").mkdir(parents=True)
    other = opt / "environments" / ("0" * 16)
    (other / "bin" / "python").symlink_to(EXECUTABLE)
    (other / "pyvenv.cfg").write_text(f"home = {Path(EXECUTABLE).parent}\n")
    (opt / "current" / "environment").symlink_to(other)
    with pytest.raises(
        ClusterError, match=rf"rpi11: runs the environment {'0' * 16}, not .*`fab deploy start --no-jobs"
    ):
        bring(inventory, wanted, Heard())
    (other / "bin" / "python").unlink()
    (other / "bin" / "python").symlink_to("/bin/false")
    with pytest.raises(ClusterError, match=r"rpi11: expected the environment of its release, got .*deploy start"):
        bring(inventory, wanted, Heard())


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (f"3.99.1 {MACHINE} {'0' * 16}", "there are no wheels for Python 3.99.1"),
        (f"3.11.2 riscv {'0' * 16}", "on 'riscv'"),
        ("3.11.2 aarch64 ../../../etc", "expected the environment of its release"),
        ("hello", "expected the environment of its release"),
    ],
)
def test_a_foreign_answer_is_one_line(inventory: Inventory, wanted: Path, opt: Path, answer: str, words: str) -> None:
    with pytest.raises(ClusterError, match=words) as refused:
        bring(inventory, wanted, Heard({"platform": answer}))
    assert "\n" not in str(refused.value)


def test_a_refusal_of_the_node_is_said(
    inventory: Inventory, wanted: Path, opt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install = partial(install_environment, python="/bin/false")
    monkeypatch.setattr(of_nodes, "install_environment", install)
    with pytest.raises(ClusterError, match=r"rpi11: the packages cannot be installed: .*does not start"):
        bring(inventory, wanted, Heard())


def test_nodes_of_one_kind_share_a_lock_and_each_that_lacks_it_installs_it(
    inventory: Inventory, wanted: Path, opt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks: list[str] = []

    def counted(requirements: Path, base: extras.Base) -> extras.Lock:
        locks.append(base.target.machine)
        return extras.locked(requirements, base, requirements.parent / "locks")

    monkeypatch.setattr(of_nodes, "locked", counted)
    monkeypatch.setattr(of_nodes, "install_environment", lambda *_, **__: "echo changed: wheels")
    has_it = Heard({"test -e": "there"}, "rpi01")
    lacking = [Heard(name="rpi02"), Heard(name="rpi03")]
    keys = bring_to_all(inventory, wanted, has_it, *lacking)
    assert locks == [MACHINE]
    assert keys.keys() == {"rpi01", "rpi02", "rpi03"}
    assert len({*keys.values()}) == 1
    installed = [any("changed: wheels" in command for command in node.commands) for node in (has_it, *lacking)]
    assert installed == [False, True, True]


def test_the_error_names_the_nodes_whose_lock_cannot_be_had(
    inventory: Inventory, wanted: Path, opt: Path, tmp_path: Path
) -> None:
    """The package is a wheel for this machine's kind alone."""
    other = "aarch64" if MACHINE == "x86_64" else "x86_64"
    pure_wheel(tmp_path / "index", "gamma").rename(
        tmp_path / "index" / f"gamma-1.0-py3-none-manylinux_2_17_{MACHINE}.whl"
    )
    wanted.write_text("gamma\n")
    foreign = {"platform": f"{PYTHON}.2 {other} {extras.Base.of_nodes(Target(f'{PYTHON}.2', other)).key}"}
    nodes = [Heard(foreign, "rpi01"), Heard(name="rpi02"), Heard(foreign, "rpi03")]
    with pytest.raises(UsageError) as refused:
        bring_to_all(inventory, wanted, *nodes)
    line = str(refused.value)
    assert line.startswith(f"rpi01, rpi03: {wanted}: no versions fit CPython {PYTHON} on {other}")
    assert "\n" not in line
    assert "rpi02" not in line
    assert not (opt / "extras").exists()


def test_each_node_that_cannot_be_asked_is_a_line_and_a_bad_file_asks_none(
    inventory: Inventory, wanted: Path, opt: Path
) -> None:
    nodes = [Heard({"platform": "hello"}, "rpi01"), Heard(name="rpi02"), Heard({"platform": "hello"}, "rpi03")]
    with pytest.raises(ClusterError) as refused:
        bring_to_all(inventory, wanted, *nodes)
    assert [line.partition(":")[0] for line in str(refused.value).splitlines()] == ["rpi01", "rpi03"]
    wanted.write_text("-e .\n")
    unasked = Heard()
    with pytest.raises(UsageError, match="line 1: expected a package"):
        bring_to_all(inventory, wanted, unasked)
    assert unasked.commands == []
