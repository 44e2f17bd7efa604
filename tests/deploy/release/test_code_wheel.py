"""The same tree gives the same wheel, and nothing but the tree counts."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from core.ground.errors import ClusterError
from deploy.common.project import project_cache
from deploy.release.code_wheel import PACKAGES, build_code_wheel, code_key, uv_executable
from tests.deploy.release.wheels import names
from tests.habits.leaks import PROJECT


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small checkout."""
    root = tmp_path / "checkout"
    for package in PACKAGES:
        (root / package / "room").mkdir(parents=True)
        (root / package / "__init__.py").write_text("")
        (root / package / "room" / "table.py").write_text(f"NAME = {package!r}\n")
        (root / package / "room" / "list.txt").write_text("data\n")
    (root / "core" / "__init__.py").write_text('__version__ = "1.2.3"\n')
    return root


def test_what_counts_and_what_does_not(tree: Path, tmp_path: Path) -> None:
    first = build_code_wheel(tree, tmp_path / "cache")
    moved = Path(shutil.copytree(tree, tmp_path / "elsewhere"))
    for path in (
        "cluster/room/__pycache__/table.cpython-311.pyc",
        "cluster/gone/__pycache__/x.pyc",
        "cluster/.table.py.swp",
        "tests/test_x.py",
        "README.md",
    ):
        (moved / path).parent.mkdir(parents=True, exist_ok=True)
        (moved / path).write_text("x")
    (moved / "core" / "__init__.py").chmod(0o600)
    os.utime(moved / "core" / "__init__.py", (0, 0))
    second = build_code_wheel(moved, tmp_path / "other")
    assert second.path.read_bytes() == first.path.read_bytes()
    assert (second.key, second.sha256, second.version) == (first.key, first.sha256, "1.2.3")
    assert first.key == code_key(first.path.read_bytes())
    assert first.sha256.startswith(first.key)
    (moved / "ps_node" / "room" / "list.txt").write_text("other data\n")
    assert build_code_wheel(moved, tmp_path / "other").key != first.key
    assert names(tmp_path / "cache") == ["code"]


def test_a_tree_without_a_version_is_one_line(tree: Path, tmp_path: Path) -> None:
    (tree / "core" / "__init__.py").write_text("")
    with pytest.raises(ClusterError, match="expected a line __version__"):
        build_code_wheel(tree, tmp_path / "cache")


def test_an_installed_wheel_has_its_own_uv_and_the_users_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("deploy.release.code_wheel.CHECKOUT", False)
    monkeypatch.setattr("deploy.common.project.CHECKOUT", False)
    monkeypatch.setattr("deploy.release.code_wheel.sysconfig.get_path", lambda name: str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(ClusterError, match=r"uv: no such program: .* uv: pip install pscluster"):
        uv_executable()
    (tmp_path / "uv").write_bytes(b"")
    assert uv_executable() == tmp_path / "uv"
    assert project_cache() == tmp_path / "cache" / "pscluster"


def test_the_projects_own_code_runs_from_its_wheel(tmp_path: Path) -> None:
    """Templates, scripts and styles travel with it."""
    release = tmp_path / "release"
    with zipfile.ZipFile(build_code_wheel(PROJECT, tmp_path / "cache").path) as archive:
        archive.extractall(release)
    asked = "import core.inventory, deploy, ps_node, worker_node; print(deploy.__file__)"
    words = [sys.executable, "-B", "-c", asked]
    said = subprocess.check_output(words, cwd=release, text=True)
    assert said.strip() == str(release / "deploy" / "__init__.py")
    pages = [*(PROJECT / "cluster/pages/static").rglob("*.*")]
    pages += (PROJECT / "cluster/pages/templates").rglob("*.*")
    texts = [*(PROJECT / "deploy").rglob("*.sh"), *(PROJECT / "deploy").rglob("*.j2")]
    texts += (PROJECT / "deploy").rglob("*.txt")
    assert min(len(pages), len(texts)) > 10
    for path in pages + texts:
        assert (release / path.relative_to(PROJECT)).exists(), path


def test_an_image_takes_the_packages_of_a_release_and_nothing_else() -> None:
    lines = (PROJECT / ".containerignore").read_text().split()
    assert lines[0] == "*"
    assert {line[1:] for line in lines if line.startswith("!")} == {*PACKAGES}
    steps = (PROJECT / "Containerfile").read_text()
    assert {*re.findall(r"(?m)^COPY (\w+) /opt/pscluster/code/\1$", steps)} == {*PACKAGES}
