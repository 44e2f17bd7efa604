"""`make .venv`: what it says, when it works and when it does nothing.

uv itself is stood in for by a script that makes `.venv` and writes down its arguments: a real
installation takes minutes and the network, and CI does one before these tests run.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.tables import Tables
from tests.habits import needs
from tests.habits.leaks import PROJECT

rows = Tables(__file__)

UV = """#!/bin/sh
echo "$@" >>calls
mkdir -p .venv
[ ! -e uv-fails ] || exit 7
[ ! -e uv-hangs ] || { echo hanging; exec cat; }
"""


def executable(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    shutil.copytree(PROJECT / "tools", root / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(PROJECT / "uv.lock", root)
    version = re.search(r"(?m)^uv_version=(.*)$", (root / "tools" / "make_venv.sh").read_text())
    assert version is not None
    executable(root / ".cache" / f"uv-{version[1]}", UV)
    return root


def make_venv(project: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHON": sys.executable, **environ}
    command = ["/bin/sh", str(project / "tools" / "make_venv.sh"), *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def calls(project: Path) -> list[str]:
    return (project / "calls").read_text().splitlines()


SAME_PYTHON = """
real=$(sh tools/make_venv.sh --find)
ln -s "$real" alias
sed -i "s| $real in | $PWD/alias in |" .venv/made-from
"$real" -m venv --without-pip inside
echo inside/bin/python3 >chosen
"""
"""An activated shell finds the environment's own python3 first, which is an alias of the one that
made it."""
OTHER_PYTHON = """
printf '#!/bin/sh\\necho 3.12.99 %s/other\\n' "$PWD" >other
chmod +x other
echo other >chosen
"""


@pytest.mark.parametrize(
    ("change", "installed", "kept"),
    [
        ("true", 1, True),
        ("echo '# changed' >>uv.lock", 2, True),
        (SAME_PYTHON, 1, True),
        (OTHER_PYTHON, 2, False),
    ],
    ids=["nothing", "another lock", "another name of the same Python", "another Python"],
)
def test_installs_from_the_frozen_lock_once_for_each_lock_and_python(
    project: Path, change: str, installed: int, kept: bool
) -> None:
    assert make_venv(project).returncode == 0
    (project / ".venv" / "kept").touch()
    environment = {**os.environ, "PYTHON": sys.executable}
    subprocess.run(["sh", "-c", change], cwd=project, env=environment, check=True)
    chosen = {}
    if (project / "chosen").exists():
        chosen["PYTHON"] = str(project / (project / "chosen").read_text().strip())
    done = make_venv(project, **chosen)
    assert done.returncode == 0
    assert (done.stdout + done.stderr == "") is (installed == 1)
    assert len(calls(project)) == installed
    assert all(call.startswith("sync --frozen") for call in calls(project))
    assert calls(project)[-1].endswith("/other") is (change == OTHER_PYTHON)
    assert (project / ".venv" / "kept").exists() is kept


def test_a_moved_project_gets_a_new_environment(project: Path) -> None:
    make_venv(project)
    (project / ".venv" / "left over").touch()
    moved = project.rename(project.with_name("moved"))
    assert make_venv(moved).returncode == 0
    assert len(calls(moved)) == 2
    assert not (moved / ".venv" / "left over").exists()


def test_a_failed_installation_does_not_look_done(project: Path) -> None:
    (project / "uv-fails").touch()
    failed = make_venv(project)
    assert failed.returncode == 1
    assert "did not finish (uv ended with 7" in failed.stderr
    (project / "uv-fails").unlink()
    assert make_venv(project).returncode == 0
    assert len(calls(project)) == 2


@pytest.mark.parametrize("path", [".cache/venv.lock", ".venv"])
def test_what_cannot_be_written_has_a_remedy(project: Path, path: str) -> None:
    if path == ".venv":  # a file where folders have to be
        executable(project / path, "")
    else:
        (project / path).mkdir()
    done = make_venv(project)
    assert done.returncode != 0
    last = f"make .venv: stopped there: make {project} writable with 2 GB free"
    assert done.stderr.splitlines()[-1].startswith(last)


def test_an_interrupted_installation_does_not_look_done(project: Path) -> None:
    (project / "uv-hangs").touch()
    environment = {**os.environ, "PYTHON": sys.executable}
    with subprocess.Popen(
        ["/bin/sh", project / "tools" / "make_venv.sh"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as installing:
        assert installing.stdout is not None
        assert installing.stdout.readline() == b"hanging\n"
        os.killpg(installing.pid, signal.SIGINT)
        _, said = installing.communicate()
    assert installing.returncode == 130
    assert b"make .venv: interrupted" in said
    (project / "uv-hangs").unlink()
    assert make_venv(project).returncode == 0
    assert len(calls(project)) == 2


def fake_pythons(folder: Path, **says: tuple[int, str]) -> str:
    for name in ("dirname", "tail", "mkdir", "cat"):
        folder.mkdir(exist_ok=True)
        (folder / name).symlink_to(needs.tool(name))
    for name, (code, line) in says.items():
        executable(folder / name.replace("_", "."), f"#!/bin/sh\necho '{line}'\nexit {code}\n")
    return str(folder)


DOES_NOT_START = (127, "")


@rows("says", "expected")
def test_one_line_when_no_python_will_do(
    project: Path, tmp_path: Path, says: dict[str, Any], expected: str
) -> None:
    done = make_venv(project, PATH=fake_pythons(tmp_path / "bin", **says), PYTHON="")
    assert done.returncode == 1
    assert expected in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (project / ".venv").exists()


def test_a_later_python_serves_when_the_first_does_not(project: Path, tmp_path: Path) -> None:
    later = (0, "3.12.1 /usr/bin/python3.12")
    path = fake_pythons(tmp_path / "bin", python3=DOES_NOT_START, python3_12=later)
    done = make_venv(project, "--find", PATH=path, PYTHON="")
    assert (done.returncode, done.stdout) == (0, "/usr/bin/python3.12\n")


def test_a_named_python_that_is_not_there(project: Path) -> None:
    done = make_venv(project, PYTHON="python3.99")
    assert done.returncode == 1
    assert "PYTHON=python3.99 does not exist" in done.stderr
