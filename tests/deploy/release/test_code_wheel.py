"""The same tree gives the same wheel, and nothing but the tree counts."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from cluster.errors import ClusterError
from deploy.common.project import project_cache
from deploy.release.code_wheel import PACKAGES, build_code_wheel, code_key, uv_executable
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
    (root / "cluster" / "__init__.py").write_text('__version__ = "1.2.3"\n')
    return root


def test_what_counts_and_what_does_not(tree: Path, tmp_path: Path) -> None:
    first = build_code_wheel(tree, tmp_path / "cache")
    moved = Path(shutil.copytree(tree, tmp_path / "elsewhere"))
    (moved / "cluster" / "room" / "__pycache__").mkdir()
    (moved / "cluster" / "room" / "__pycache__" / "table.cpython-311.pyc").write_bytes(b"x")
    (moved / "cluster" / "gone" / "__pycache__").mkdir(parents=True)
    (moved / "cluster" / ".table.py.swp").write_bytes(b"x")
    (moved / "tests").mkdir()
    (moved / "tests" / "test_x.py").write_text("")
    (moved / "README.md").write_text("new")
    (moved / "cluster" / "__init__.py").chmod(0o600)
    os.utime(moved / "cluster" / "__init__.py", (0, 0))
    second = build_code_wheel(moved, tmp_path / "other")
    assert second.path.read_bytes() == first.path.read_bytes()
    assert (second.key, second.sha256, second.version) == (first.key, first.sha256, "1.2.3")
    assert first.key == code_key(first.path.read_bytes())
    assert first.sha256.startswith(first.key)
    (moved / "ps_node" / "room" / "list.txt").write_text("other data\n")
    assert build_code_wheel(moved, tmp_path / "other").key != first.key
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == ["code"]


def test_a_tree_without_a_version_is_one_line(tree: Path, tmp_path: Path) -> None:
    (tree / "cluster" / "__init__.py").write_text("")
    with pytest.raises(ClusterError, match="expected a line __version__"):
        build_code_wheel(tree, tmp_path / "cache")


def test_an_installed_wheel_has_its_own_uv_and_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("deploy.release.code_wheel.CHECKOUT", False)
    monkeypatch.setattr("deploy.common.project.CHECKOUT", False)
    monkeypatch.setattr("deploy.release.code_wheel.sysconfig.get_path", lambda name: str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(ClusterError, match=r"uv: no such program: expected uv: pip install 'pscluster\[operator\]'"):
        uv_executable()
    (tmp_path / "uv").write_bytes(b"")
    assert uv_executable() == tmp_path / "uv"
    assert project_cache() == tmp_path / "cache" / "pscluster"


def test_the_projects_own_code_runs_from_its_wheel(tmp_path: Path) -> None:
    wheel = build_code_wheel(PROJECT, tmp_path / "cache")
    with zipfile.ZipFile(wheel.path) as archive:
        archive.extractall(tmp_path / "release")
    asked = "import cluster.inventory, deploy, ps_node, worker_node; print(deploy.__file__)"
    said = subprocess.run(
        [sys.executable, "-B", "-c", asked], cwd=tmp_path / "release", check=True, capture_output=True, text=True
    )
    assert said.stdout.strip() == str(tmp_path / "release" / "deploy" / "__init__.py")
    assert (tmp_path / "release" / "deploy" / "release" / "requirements.txt").exists()


def test_templates_scripts_and_styles_travel_with_the_code(tmp_path: Path) -> None:
    wheel = build_code_wheel(PROJECT, tmp_path / "cache")
    with zipfile.ZipFile(wheel.path) as archive:
        packed = set(archive.namelist())
    folder = PROJECT / "cluster" / "pages"
    needed = {path for kind in ("static", "templates") for path in (folder / kind).rglob("*") if path.is_file()}
    assert len(needed) > 10
    texts = {path for kind in ("sh", "j2", "txt") for path in (PROJECT / "deploy").rglob(f"*.{kind}")}
    assert len(texts) > 10
    assert {path.relative_to(PROJECT).as_posix() for path in needed | texts} <= packed
