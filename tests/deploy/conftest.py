import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fabric.main import program

from deploy.common.project import ROOT
from deploy.converge import coordinator
from deploy.converge.code import ReleaseChoice
from tests.deploy.over_ssh.sshd import Sshd, needs_sudo, running_sshd
from tests.deploy.playing import PlayedCluster
from tests.deploy.three_nodes import HOSTS, THREE, write
from tests.deploy.typed import Fab, Outcome


@pytest.fixture
def fab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Fab:
    """Type `fab LINE` in the test's empty folder, in this process: Fabric takes long to import."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PSCLUSTER_INVENTORY", raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(coordinator, "OPERATOR_LOCK", str(tmp_path / "operator"))

    def typed(line: str) -> Outcome:
        code = 0
        try:
            program.run(["fab", "-r", str(ROOT), *shlex.split(line)])
        except SystemExit as ended:
            code = int(ended.code or 0)
        return Outcome(code, *capsys.readouterr())

    return typed


@pytest.fixture
def played(tmp_path: Path) -> Iterator[PlayedCluster]:
    cluster = PlayedCluster(tmp_path)
    yield cluster
    cluster.end()


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """The nodes of `three_nodes`; this machine's account becomes root there."""
    with running_sshd(tmp_path_factory.mktemp("sshd"), hosts=HOSTS) as server:
        yield server


@pytest.fixture(scope="module")
def one_release() -> Iterator[None]:
    """The code's wheel made once: each command makes its own, which takes a second."""
    made = ReleaseChoice.of_this_checkout()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ReleaseChoice, "of_this_checkout", lambda **_: made)
        yield


@pytest.fixture
def three(sshd: Sshd, tmp_path: Path) -> None:
    """An inventory of three nodes, in the folder where commands are typed."""
    write(tmp_path, THREE, sshd)


@pytest.fixture
def trusted(three: None, fab: Fab) -> None:
    """Their keys are pinned."""
    assert fab("deploy trust --yes").code == 0


@pytest.fixture
def asked(trusted: None) -> None:
    """The nodes can be asked, which takes root there."""
    needs_sudo()
