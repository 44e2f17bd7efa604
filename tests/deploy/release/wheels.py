"""A tiny wheelhouse, otherwise real: pip fetches it, and the real uv installs from it."""

import os
import platform
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from deploy.release.code_wheel import uv_executable
from deploy.release.extras import Lock
from deploy.release.requirements import file_sha256
from deploy.release.scripts import Done, Refusal, RefusedError, install_environment, outcome
from deploy.release.wheelhouse import Wheelhouse

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
MACHINE = platform.machine()
EXECUTABLE = str(Path(sys.executable).resolve())
DEADLINE_SECONDS = 100.0


def pure_wheel(
    folder: Path,
    name: str,
    version: str = "1.0",
    text: str = "",
    needs: Sequence[str] = (),
    python: str = ">=3",
) -> Path:
    """A wheel with one module of this name, whose `TEXT` is `text`, and with these needs."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    about = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": f"TEXT = {text!r}\n",
        f"{about}/METADATA": (
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nRequires-Python: {python}\n"
            + "".join(f"Requires-Dist: {one}\n" for one in needs)
        ),
        f"{about}/WHEEL": (
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        ),
        f"{about}/RECORD": "",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for file, content in files.items():
            archive.writestr(zipfile.ZipInfo(file), content)
    return path


def uv_wheel(folder: Path) -> Path:
    """The uv that made .venv, in a wheel laid out as uv's own."""
    folder.mkdir(parents=True, exist_ok=True)
    tag = f"py3-none-manylinux_2_17_{MACHINE}"
    path = folder / f"uv-0.13.8-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(uv_executable(), "uv-0.13.8.data/scripts/uv")
        for file, content in {
            "METADATA": "Metadata-Version: 2.1\nName: uv\nVersion: 0.13.8\n",
            "WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\nTag: {tag}\n",
            "RECORD": "",
        }.items():
            archive.writestr(f"uv-0.13.8.dist-info/{file}", content)
    return path


def only_from(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Have uv and pip take wheels from this folder, and from no index."""
    empty = folder.with_name("simple")
    empty.mkdir(exist_ok=True)
    patch.setenv("UV_DEFAULT_INDEX", empty.as_uri())
    patch.setenv("PIP_NO_INDEX", "1")
    for tool in ("UV", "PIP"):
        patch.setenv(f"{tool}_FIND_LINKS", str(folder))


def requirements(*wheels: Path) -> str:
    """The list that asks for these wheels."""
    text = "# a list\n"
    for wheel in wheels:
        name, version, *_ = wheel.name.split("-")
        text += f"{name}=={version} ; sys_platform == 'linux' \\\n"
        text += f"    --hash=sha256:{file_sha256(wheel)}\n"
    return text


def installing(
    wheelhouse: Wheelhouse,
    wheels: Path,
    root: Path,
    python: str = EXECUTABLE,
    lock: Lock | None = None,
    imports: str = "",
) -> str:
    """Return the script that installs an environment with this machine's Python."""
    return install_environment(
        wheelhouse, str(wheels), root=str(root), python=python, lock=lock, imports=imports
    )


def run(script: str, stdin: bytes = b"") -> Done:
    """What the script did. Raises RefusedError."""
    done = subprocess.run(
        ["sh", "-c", script], input=stdin, capture_output=True, timeout=DEADLINE_SECONDS
    )
    return outcome(done.returncode, done.stdout.decode(), done.stderr.decode())


def refusal(script: str, stdin: bytes = b"") -> tuple[Refusal | None, str]:
    """Why a script did nothing: the kind, and one line."""
    with pytest.raises(RefusedError, match=r"^[^\n]*$") as caught:
        run(script, stdin)
    return caught.value.refusal, str(caught.value)


def printed(script: str) -> str:
    """What the script printed."""
    return subprocess.check_output(["sh", "-c", script], text=True)


def names(folder: Path) -> list[str]:
    """What lies in a folder."""
    return sorted(path.name for path in folder.iterdir())


def times(folder: Path) -> dict[str, int]:
    """When each file below `folder` was written, in nanoseconds."""
    return {str(path.relative_to(folder)): os.lstat(path).st_mtime_ns for path in folder.rglob("*")}
