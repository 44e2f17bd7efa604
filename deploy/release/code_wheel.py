"""The code as one wheel of the files that run here: the same tree gives the same key.

uv's build backend makes it: it is part of the installed binary, needs no network, sorts the files
and writes neither times nor modes of this machine. It needs a project of its own, so the packages
are copied beside a pyproject.toml that names them. Its version is that of the tree, not of git: a
checkout and the wheel installed from it give one key.
"""

import hashlib
import re
import shutil
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from core.ground.children import finished
from core.ground.errors import ClusterError
from core.ground.files import folder_beside, whole_file
from deploy.common.command_line import filled
from deploy.common.project import CHECKOUT, ROOT, project_cache
from deploy.release.requirements import key_of


def uv_executable() -> Path:
    """The path of the uv that made `.venv`, or that was installed with our wheel.

    Raises ClusterError.

    A checkout fetches it where it is missing.
    """
    if not CHECKOUT:
        installed = Path(sysconfig.get_path("scripts"), "uv")
        if not installed.is_file():
            raise ClusterError(f"{installed}: no such program: expected uv: pip install pscluster")
        return installed
    outcome = finished(["sh", "tools/make_venv.sh", "--uv"], folder=ROOT)
    if outcome.code:
        where = "" if outcome.errors.strip() else "tools/make_venv.sh --uv: "
        raise ClusterError(f"{where}{outcome.last_error}")
    return ROOT / outcome.output.strip()


NAME = "pscluster"
REQUIRES_PYTHON = ">=3.11,<3.14"
PACKAGES = (
    *("cluster", "core", "deploy", "kernels"),
    *("ps_node", "pscluster", "recognise", "worker_node"),
)
_VERSION = re.compile(r'^__version__ = "([0-9.]+)"$', re.MULTILINE)
_LEFT_OUT = shutil.ignore_patterns("__pycache__", ".*", "*.pyc", "*~", "*.orig", "*.rej", "#*#")


@dataclass(frozen=True)
class CodeWheel:
    """A wheel of the code on the operator's machine."""

    path: Path
    key: str
    sha256: str
    version: str


def code_key(wheel: bytes) -> str:
    """Key of the code wheel with these bytes."""
    return key_of(wheel)


def build_code_wheel(root: Path = ROOT, cache: Path | None = None) -> CodeWheel:
    """Build the wheel of the packages below `root`, committed or not, in a folder of `cache`.

    `cache` is the project's by default. Raises ClusterError when uv fails, or when the tree has no
    version.
    """
    cache = cache or project_cache()
    project = {"name": NAME, "version": _version(root), "requires-python": REQUIRES_PYTHON}
    cache.mkdir(parents=True, exist_ok=True)
    with folder_beside(cache / "code") as workshop:
        source = workshop / "source"
        built = workshop / "built"
        for package in PACKAGES:
            _copy(root / package, source / package)
        described = filled("release/code_wheel.toml.j2", project=project, packages=PACKAGES)
        (source / "pyproject.toml").write_text(described, encoding="utf-8")
        options = ["--wheel", "--offline", "--no-config", "--quiet"]
        outcome = finished([uv_executable(), "build", *options, "--out-dir", built, source])
        if outcome.code:
            raise ClusterError(
                f"{root}: uv cannot make a wheel of the code:"
                f" {outcome.errors.strip() or outcome.code}"
            )
        (wheel,) = built.glob("*.whl")
        content = wheel.read_bytes()
        key = code_key(content)
        path = cache / "code" / key / wheel.name
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as stream:
            stream.write(content)
    return CodeWheel(path, key, hashlib.sha256(content).hexdigest(), project["version"])


def _version(root: Path) -> str:
    file = root / "core" / "__init__.py"
    match = _VERSION.search(file.read_text(encoding="utf-8"))
    if match is None:
        raise ClusterError(f'{file}: expected a line __version__ = "1.2.3"')
    return match[1]


def _copy(source: Path, copy: Path) -> None:
    shutil.copytree(source, copy, ignore=_LEFT_OUT)
    # A folder that another branch left, with a __pycache__ alone, is not part of the tree.
    for folder in sorted((path for path in copy.rglob("*") if path.is_dir()), reverse=True):
        if not any(folder.iterdir()):
            folder.rmdir()
