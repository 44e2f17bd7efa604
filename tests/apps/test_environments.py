"""A coordinator continues in the environment of its app, as the same process, and holds it."""

import fcntl
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from cluster.apps.environments import environments, is_there
from cluster.inventory import load
from deploy.common.project import ROOT, environment_for_any_folder

KEY = "0123456789abcdef"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With an environment of that key, over ours."""
    home = tmp_path / "extras" / KEY
    site = home / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    site.mkdir(parents=True)
    (site / "ours.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    (home / "bin").mkdir()
    (home / "bin" / "python").symlink_to(Path(sys.executable).resolve())
    (home / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).resolve().parent}\n")
    (home / ".complete").touch()
    return home.parent


def test_it_is_the_same_process_in_the_other_environment_and_holds_it(folder: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.apps.show_environment", folder, KEY],
        cwd=ROOT,
        env=environment_for_any_folder(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().split() == [str(process.pid), str(folder / KEY)]
        with (folder / KEY / ".complete").open("rb") as mark:
            with pytest.raises(BlockingIOError):
                fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
            process.communicate("\n")
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert process.returncode == 0


def test_half_an_environment_does_not_count(folder: Path) -> None:
    assert is_there(folder, KEY)
    (folder / KEY / ".complete").unlink()
    assert not is_there(folder, KEY)


def test_where_environments_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    here = tmp_path / "inventory.yaml"
    here.write_text("schema: 1\ncluster: c\nnodes: [{name: a, address: 127.0.0.1, roles: [ps, worker, coordinator]}]\n")
    assert environments(load(here)) == tmp_path / "pscluster" / "extras"
    nodes = load(ROOT / "inventory.yaml", check_interfaces=False)
    assert environments(nodes) == Path("/opt/pscluster/extras/environments")
