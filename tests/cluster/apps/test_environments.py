"""A coordinator continues in the environment of its app, as the same process, and holds it."""

import fcntl
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from cluster.apps.environments import environments, is_there
from core.inventory import load
from deploy.common.project import ROOT, environment_for_any_folder
from tests.cluster.apps.trees import one_node, write_tree

KEY = "0123456789abcdef"
PYTHON = Path(sys.executable).resolve()
SITE = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """An environment of that key, over ours."""
    files = {
        f"{SITE}/ours.pth": f"{sysconfig.get_path('purelib')}\n",
        "pyvenv.cfg": f"home = {PYTHON.parent}\n",
        ".complete": "",
    }
    home = write_tree(tmp_path / "extras" / KEY, files)
    (home / "bin").mkdir()
    (home / "bin/python").symlink_to(PYTHON)
    return home


def test_it_is_the_same_process_in_the_other_environment_and_holds_it(made: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.cluster.apps.show_environment", made.parent, KEY],
        cwd=ROOT,
        env=environment_for_any_folder(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().split() == [str(process.pid), str(made)]
        with (made / ".complete").open("rb") as mark:
            with pytest.raises(BlockingIOError):
                fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
            process.communicate("\n")
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert process.returncode == 0


def test_half_an_environment_does_not_count(made: Path) -> None:
    assert is_there(made.parent, KEY)
    (made / ".complete").unlink()
    assert not is_there(made.parent, KEY)


def test_where_environments_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert environments(one_node(tmp_path)) == tmp_path / "pscluster/extras"
    nodes = load(ROOT / "inventory.yaml", check_interfaces=False)
    assert environments(nodes) == Path("/opt/pscluster/extras/environments")
