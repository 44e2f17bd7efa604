"""The environment of a program that needs further packages: made once for each lock, beside the project's own.

The project's packages, TensorFlow among them, are visible in it, and pin what they have: a requirement that contradicts
one is refused. The operator's uv makes it.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import distributions
from pathlib import Path

from cluster.atomic_write import atomic_write
from cluster.errors import ClusterError, UsageError
from deploy.common.project import ROOT

CACHE_VARIABLE = "XDG_CACHE_HOME"
MOST_REQUIREMENTS_BYTES = 1 << 20
LOCK_SECONDS, INSTALL_SECONDS = 300.0, 1800.0
_KEPT_LINES = 6
_TENSORFLOW = ("tensorflow", "tensorflow-cpu")


def environment_for(requirements: Path) -> Path:
    """The Python that has the packages of `requirements` beside the project's own; made where it is missing.

    Raises UsageError for a file that cannot be read or has no solution, ClusterError where the packages do not come.
    """
    text = _read(requirements)
    folder = _cache()
    lock = _kept_lock(folder, requirements, text)
    if not lock:
        return Path(sys.executable)
    target = folder / _key(lock, sys.version, sys.executable)
    if not target.exists():
        _make(target, lock, requirements)
    return target / "bin" / "python"


def _kept_lock(folder: Path, requirements: Path, text: str) -> str:
    """The lock of these requirements, the same at every call until a person removes it."""
    kept = folder / f"{_key(text, sys.version, json.dumps(sorted(project_packages().items())))}.lock.txt"
    try:
        return kept.read_text()
    except FileNotFoundError:
        pass
    with tempfile.TemporaryDirectory(prefix="pscluster-lock-") as scratch:
        lock = locked(requirements, text, Path(scratch))
    atomic_write(kept, lock.encode())
    return lock


def _key(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def locked(requirements: Path, text: str, scratch: Path) -> str:
    """The packages to add, each with its version and hashes, as `uv pip compile` writes them; empty for none.

    Those of the project stay as they are.
    """
    constraints, given, out = scratch / "project.txt", scratch / "requirements.txt", scratch / "lock.txt"
    ours = project_packages()
    constraints.write_text("".join(f"{name}=={version}\n" for name, version in sorted(ours.items())))
    given.write_text(text)
    overrides = scratch / "overrides.txt"
    # Packages such as tf_keras require `tensorflow`; on x86-64 ours has another name and the same modules.
    overrides.write_text("".join(f"{name} ; sys_platform == 'never'\n" for name in _TENSORFLOW if name not in ours))
    words = [
        "pip",
        "compile",
        "--quiet",
        "--no-header",
        "--no-annotate",
        "--generate-hashes",
        "--python",
        sys.executable,
    ]
    _uv(
        [*words, "--constraint", str(constraints), "--override", str(overrides), "--output-file", str(out), str(given)],
        LOCK_SECONDS, f"{requirements}: expected packages that go with the project's own", UsageError,
        requirements.absolute().parent,
    )  # fmt: skip
    return without(out.read_text(), ours)


def without(lock: str, ours: Mapping[str, str]) -> str:
    """A lock without the packages that the project has. Pure."""
    kept: list[str] = []
    keeps = True
    for line in lock.splitlines():
        if line and not line[0].isspace() and not line.startswith("#"):
            keeps = line.partition("==")[0].partition("[")[0].strip().lower().replace("_", "-") not in ours
        if keeps and line.strip():
            kept.append(line)
    return "\n".join(kept) + "\n" if kept else ""


def project_packages() -> dict[str, str]:
    """Version by name of what this environment has."""
    found = {}
    for one in distributions():
        name = one.metadata["Name"]
        if name:
            found[name.lower().replace("_", "-").replace(".", "-")] = one.version
    return found


def _make(target: Path, lock: str, requirements: Path) -> None:
    """Make the environment elsewhere and give it its name once it is whole."""
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        words = ["venv", "--quiet", "--relocatable", "--python", sys.executable]
        _uv([*words, str(partial)], LOCK_SECONDS, str(target), ClusterError, target.parent)
        written = partial / "lock.txt"
        written.write_text(lock)
        inside = next((partial / "lib").glob("python*/site-packages"))
        (inside / "pscluster-project.pth").write_text(sysconfig.get_path("purelib") + "\n")
        words = ["pip", "install", "--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
        _uv(
            [*words, "--python", str(partial / "bin" / "python"), "--requirement", str(written)], INSTALL_SECONDS,
            f"{requirements}: its packages cannot be installed", ClusterError, target.parent,
        )  # fmt: skip
        with suppress(FileExistsError, NotADirectoryError):  # another command made it meanwhile
            partial.rename(target)
    except OSError as problem:
        if not target.exists():
            raise ClusterError(
                f"{target}: the program's environment cannot be made ({problem.strerror}): is there room? "
                f"${CACHE_VARIABLE} names another cache"
            ) from problem
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _uv(words: Sequence[str], seconds: float, what: str, kind: type[ClusterError], folder: Path) -> None:
    found = subprocess.run(["sh", str(ROOT / "tools" / "make_venv.sh"), "--uv"], capture_output=True, text=True)
    uv = ROOT / found.stdout.strip()  # it is said from there
    if found.returncode or not found.stdout.strip():
        raise ClusterError(
            f"uv, which makes a program's environment, is not here: {found.stderr.strip()}; `make .venv`"
        )
    try:
        made = subprocess.run([str(uv), *words], cwd=folder, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise ClusterError(f"{what}: not done within {seconds:.0f} s; is the package index reachable?") from None
    if made.returncode:
        said = " ".join(made.stderr.split("\n")[-_KEPT_LINES - 1 :]).split()
        raise kind(f"{what}: {' '.join(said)}")


def _read(requirements: Path) -> str:
    try:
        with requirements.open("rb") as file:
            content = file.read(MOST_REQUIREMENTS_BYTES + 1)
        if len(content) > MOST_REQUIREMENTS_BYTES:
            raise UsageError(f"{requirements}: expected at most {MOST_REQUIREMENTS_BYTES} bytes of requirements")
        return content.decode()
    except OSError as problem:
        raise UsageError(f"--requirements {requirements}: cannot be read: {problem.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{requirements}: expected requirements as text in UTF-8") from None


def _cache() -> Path:
    base = Path(os.environ.get(CACHE_VARIABLE) or Path.home() / ".cache")
    folder = base / "pscluster" / "programs"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as problem:
        raise ClusterError(f"{folder}: cannot be made ({problem.strerror}); ${CACHE_VARIABLE} names another") from None
    return folder
