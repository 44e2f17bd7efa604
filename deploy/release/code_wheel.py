"""The code as one wheel, made from the files of the checkout: the same tree gives the same bytes and so the same key.

uv's own build backend makes it: it is in the binary that is there anyway, needs no network, sorts the files and writes
neither times nor modes of this machine. It wants a project of its own, so the packages are copied beside a
pyproject.toml that names them.
"""

import hashlib
import shutil
import subprocess
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

from cluster.errors import ClusterError
from deploy.common.project import ROOT
from deploy.release.keys import code_key
from deploy.release.uv import uv_executable

PACKAGES = ("cluster", "deploy", "ps_node", "worker_node")
_LEFT_OUT = shutil.ignore_patterns("__pycache__", ".*", "*.pyc", "*~", "*.orig", "*.rej", "#*#")
_PROJECT = """\
[project]
name = "pscluster"
version = "{version}"
requires-python = "{requires_python}"

[build-system]
requires = ["uv_build"]
build-backend = "uv_build"

[tool.uv.build-backend]
module-name = [{modules}]
module-root = ""
"""


@dataclass(frozen=True)
class CodeWheel:
    """A wheel of the code on the operator's machine."""

    path: Path
    key: str
    sha256: str
    version: str


def build_code_wheel(root: Path = ROOT, cache: Path = ROOT / ".cache") -> CodeWheel:
    """The wheel of the packages below `root` as they are now, committed or not, in a folder of `cache`.

    Raises ClusterError when uv cannot make it.
    """
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    version = str(project["version"])
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="code-", dir=cache) as workshop:
        source, built = Path(workshop, "source"), Path(workshop, "built")
        for package in PACKAGES:
            _copy(root / package, source / package)
        modules = ", ".join(f'"{package}"' for package in PACKAGES)
        requires_python = str(project["requires-python"])
        (source / "pyproject.toml").write_text(
            _PROJECT.format(version=version, requires_python=requires_python, modules=modules), encoding="utf-8"
        )
        made = subprocess.run(
            [uv_executable(), "build", "--wheel", "--offline", "--no-config", "--quiet", "--out-dir", built, source],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if made.returncode != 0:
            raise ClusterError(f"{root}: uv cannot make a wheel of the code: {made.stderr.strip() or made.returncode}")
        (wheel,) = built.glob("*.whl")
        content = wheel.read_bytes()
        key = code_key(content)
        path = cache / "code" / key / wheel.name
        path.parent.mkdir(parents=True, exist_ok=True)
        wheel.replace(path)
    return CodeWheel(path, key, hashlib.sha256(content).hexdigest(), version)


def _copy(source: Path, copy: Path) -> None:
    shutil.copytree(source, copy, ignore=_LEFT_OUT)
    # A folder of another branch, empty but for its __pycache__, is no part of the tree.
    for folder in sorted((path for path in copy.rglob("*") if path.is_dir()), reverse=True):
        if not any(folder.iterdir()):
            folder.rmdir()
