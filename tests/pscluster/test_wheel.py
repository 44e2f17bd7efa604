"""The wheel: its version, what it holds, and a training with nothing but it."""

import ast
import json
import os
import re
import shutil
import sys
import sysconfig
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

import core
import pscluster
from deploy.common.project import ROOT
from deploy.release.code_wheel import PACKAGES, REQUIRES_PYTHON, build_code_wheel, uv_executable
from tests.habits import needs
from tests.habits.sources import imports, modules
from tests.ran import python, ran

TRAINS = """
import sys
import pscluster

assert "site-packages" in pscluster.__file__, pscluster.__file__
settings = {"jobs.train.model.hidden": 8, "jobs.train.data.source": "synthetic"}
with pscluster.local(workers=1, settings=settings) as cluster:
    run = cluster.train("thesis", mode="async", epochs=1)
print(run.folder, run.result["status"], len(run.history))
"""


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_one_version_is_in_the_tree(project: dict[str, Any]) -> None:
    assert project["tool"]["hatch"]["version"]["fallback-version"] == core.__version__
    assert pscluster.__version__ == f"{core.__version__}+checkout"
    shown = python("-m", "pscluster", "--version")
    assert shown.strip() == f"pscluster {pscluster.__version__}"


def test_what_is_written_twice_is_the_same(project: dict[str, Any]) -> None:
    assert project["project"]["requires-python"] == REQUIRES_PYTHON
    assert sorted(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]) == sorted(
        PACKAGES
    )


def test_a_plain_install_has_the_packages_of_all_commands(project: dict[str, Any]) -> None:
    brought = {
        _normal(re.split(r"[^A-Za-z0-9_.-]", line)[0])
        for line in project["project"]["dependencies"]
    }
    brought |= {"invoke", "paramiko"}  # parts of fabric that it documents as such
    brought |= {"keras"}  # TensorFlow requires it
    ours = {*PACKAGES, *sys.stdlib_module_names}
    distributions = packages_distributions()
    missing = set()
    for path, tree in modules("deploy", "pscluster").items():
        tops = {name.partition(".")[0] for node in ast.walk(tree) for name in imports(node)}
        for top in tops - ours:
            given = {_normal(one) for one in distributions.get(top, ())}
            if not given & brought and "/templates/" not in path:
                missing.add(f"{path}: {top}")
    assert missing == set(), "a plain `pip install` cannot run this"


def _normal(name: str) -> str:
    return name.lower().replace("_", "-")


def copied(folder: Path) -> Path:
    """What the wheel is built from, without git."""
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, folder / name)
    return folder


def tagged(folder: Path, tag: str) -> None:
    git = needs.tool("git")
    person = ["-c", "user.name=a", "-c", "user.email=a@localhost", "-c", "init.defaultBranch=main"]
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": ""}
    for words in ("init -q", "add .", "commit -q -m all", f"tag {tag}"):
        ran(git, *person, *words.split(), folder=folder, environment=environment)


def built(folder: Path) -> Path:
    python("-m", "hatchling", "build", "-t", "wheel", "-d", folder / "made", folder=folder)
    (wheel,) = (folder / "made").glob("*.whl")
    return wheel


def installed(wheel: Path, venv: Path) -> tuple[Path, dict[str, str]]:
    """The scripts of an environment with it.

    The packages are those of the environment that runs the tests, except that it has no pscluster.
    """
    python("-m", "venv", "--without-pip", venv)
    (packages,) = venv.glob("lib/python3*/site-packages")
    (packages / "common.pth").write_text(f"{sysconfig.get_path('purelib')}\n", encoding="utf-8")
    words = ["pip", "install", "--quiet", "--offline", "--no-deps", "--no-config", "--python"]
    ran(uv_executable(), *words, venv / "bin" / "python", wheel)
    (venv / "bin" / "uv").symlink_to(uv_executable())
    unset = ("PYTHONPATH", "VIRTUAL_ENV")
    environment = {key: value for key, value in os.environ.items() if key not in unset}
    return venv / "bin", environment | {"XDG_CACHE_HOME": str(venv / "cache")}


@pytest.mark.long
def test_trains_and_prepares_nodes_with_nothing_but_the_wheel(tmp_path: Path) -> None:
    source = copied(tmp_path / "source")
    version = python("-m", "hatchling", "version", folder=source)
    assert version.strip() == core.__version__
    tagged(source, "v12.3.4")
    wheel = built(source)
    assert wheel.name == "pscluster-12.3.4-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert packed == {
        file.relative_to(source).as_posix()
        for name in PACKAGES
        for file in (source / name).rglob("*")
        if file.is_file()
    }

    scripts, environment = installed(wheel, tmp_path / "venv")
    empty = tmp_path / "empty"
    empty.mkdir()

    def said(*words: str | Path) -> str:
        return ran(*words, folder=empty, environment=environment).stdout

    assert said(scripts / "pscluster", "--version").strip() == "pscluster 12.3.4"
    assert "  job train" in said(scripts / "pscluster", "--list")
    said(scripts / "pscluster", "app", "new", "mine", "--template", "tabular")
    assert (empty / "mine" / "app.py").is_file()
    folder, status, epochs = said(scripts / "python", "-c", TRAINS).splitlines()[-1].split()
    assert (status, epochs) == ("done", "1")
    assert (empty / folder / "report.html").is_file()
    assert (
        json.loads((empty / folder / "environment.json").read_text())["pscluster"]
        == core.__version__
    )

    shows_key = (
        "from deploy.release.code_wheel import build_code_wheel; print(build_code_wheel().key)"
    )
    assert (
        said(scripts / "python", "-c", shows_key).strip()
        == build_code_wheel(source, tmp_path / "cache").key
    )
