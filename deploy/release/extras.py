"""Packages of a person's own `requirements.txt`, in an environment over the common one.

`locked` resolves them for one kind of machine, with every package of the common environment at its
version there. What the common environment lacks goes into an environment of its own. Its path of
imports begins with the common packages, so that TensorFlow and all that it needs are the same files
in both. A key of the content names it.
"""

import contextlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from cluster.apps.environments import COMPLETE, local_environments
from core.ground.children import FinishedProcess, finished
from core.ground.errors import ClusterError, UsageError
from core.ground.files import atomic_write, folder_beside, take_name
from core.ground.locks import take
from deploy.cluster.places import ENVIRONMENTS
from deploy.common.project import project_cache
from deploy.release.code_wheel import uv_executable
from deploy.release.requirements import (
    INSTALLER,
    NEWEST_GLIBC_MINOR,
    Pin,
    Target,
    committed,
    environment_key,
    key_of,
    pins,
)
from deploy.release.wheelhouse import Say, one_at_a_time

TENSORFLOW = frozenset({"tensorflow", "tensorflow-cpu"})
"""Two names of the same modules: the common environment has one, packages such as tf_keras require
the other."""
KEPT = 2
"""Other environments that stay beside the one in use, the latest."""
LOCKS = project_cache() / "locks"
MOST_LINES = 200
MOST_BYTES = 64 << 10
_LOCK_SECONDS = 300.0
_INSTALL_SECONDS = 1800.0
_UNSATISFIABLE = re.compile(r",? we can conclude that your requirements are unsatisfiable\.")
_MOST_REASON_CHARACTERS = 600


@dataclass(frozen=True)
class Base:
    """The common environment on one kind of machine: its key, place, and versions by name."""

    key: str
    versions: Mapping[str, str]
    site_packages: str
    target: Target
    is_running: bool = False
    """Whether it is the one that runs now."""

    @classmethod
    def of_nodes(cls, target: Target, *, cuda: bool = False, service: bool = False) -> "Base":
        """Return the environment of this checkout's release on one kind of node (`committed`)."""
        packages = committed(cuda=cuda, service=service)
        key = environment_key(packages, target.python, target.machine)
        versions = {
            pin.name: pin.version for pin in pins(packages, target) if pin.name != INSTALLER
        }
        return cls(
            key,
            versions,
            f"{ENVIRONMENTS}/{key}/lib/python{target.short_python}/site-packages",
            target,
        )

    @classmethod
    def of_this_process(cls) -> "Base":
        """Return what the Python that runs now imports."""
        versions = {
            str(canonicalize_name(distribution.metadata["Name"])): distribution.version
            for distribution in distributions()
        }
        folder = sysconfig.get_path("purelib")
        key = key_of([folder, sys.version, sorted(versions.items())])
        return cls(
            key,
            versions,
            folder,
            Target(platform.python_version(), platform.machine()),
            is_running=True,
        )

    def constraints(self) -> str:
        """Return every package at its version there, as constraints of an installer."""
        return "".join(f"{name}=={version}\n" for name, version in sorted(self.versions.items()))


@dataclass(frozen=True)
class Lock:
    """What has to be installed over `base`: exact versions with hashes, or nothing."""

    base: Base
    pins: tuple[Pin, ...]

    @property
    def key(self) -> str:
        """The key of its environment; empty where there is nothing to install."""
        if self.pins:
            return key_of([self.base.key, self.text])
        return ""

    @property
    def text(self) -> str:
        """The pins as a requirements file."""
        return "".join(f"{pin.line()}\n" for pin in self.pins)

    def wheelhouse_list(self) -> str:
        """The list for `make_wheelhouse`: these packages, and the installer that a node needs."""
        installer = [pin for pin in pins(committed(), self.base.target) if pin.name == INSTALLER]
        return "".join(f"{pin.line()}\n" for pin in (*installer, *self.pins))


def package_lines(requirements: Path) -> str:
    """The lines of a requirements file that name packages, sorted.

    Raises UsageError with the line of any other.
    """
    try:
        with requirements.open("rb") as stream:
            content = stream.read(MOST_BYTES + 1)
        lines = content.decode("utf-8-sig").splitlines()
    except OSError as problem:
        raise UsageError(
            f"{requirements}: cannot be read ({problem.strerror}): check the path and its rights"
        ) from None
    except UnicodeDecodeError:
        raise UsageError(f"{requirements}: expected text in UTF-8: save it as UTF-8") from None
    if len(content) > MOST_BYTES or len(lines) > MOST_LINES:
        raise UsageError(
            f"{requirements}: expected at most {MOST_LINES} lines and {MOST_BYTES >> 10} KiB, there"
            " are more: name what you import alone, what that needs follows by itself"
        )
    packages = set()
    for number, line in enumerate(lines, start=1):
        text = re.sub(r"(^|\s)#.*$", "", line).strip()
        if not text:
            continue
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            requirement = None
        if requirement is None or requirement.url is not None:
            raise UsageError(
                f"{requirements}, line {number}: expected a package and its versions such as"
                f" `pandas>=2`, got {text!r:.60}: options, files and addresses do not travel; leave"
                " the line out"
            )
        packages.add(str(requirement))
    return "".join(f"{line}\n" for line in sorted(packages))


def lock_packages(requirements: Path, base: Base, cache: Path = LOCKS) -> Lock:
    """Resolve a requirements file for the machines of `base`, once for each content.

    Every package of `base` keeps its version, and each other one has a wheel for the machine. Asks
    the index that uv is configured for. Raises UsageError, which names the package and the reason,
    where there are no such versions, and ClusterError where the index does not answer.
    """
    text = package_lines(requirements)
    target = base.target
    path = cache / f"{key_of([text, base.key, target.python, target.machine])}.txt"
    try:
        resolved = path.read_text(encoding="utf-8")
    except OSError:
        resolved = _resolved(requirements, text, base)
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, resolved.encode())
    try:
        resolved_pins = pins(resolved, target)
    except ValueError as problem:
        raise ClusterError(f"{path}: {problem}: remove the file and run it again") from None
    return Lock(base, tuple(pin for pin in resolved_pins if pin.name not in base.versions))


def _other_tensorflow(requirements: Path, text: str, base: Base) -> tuple[str, ...]:
    """The names under which TensorFlow is not to be installed.

    Raises UsageError for another version than ours.
    """
    own_versions = [version for name, version in base.versions.items() if name in TENSORFLOW]
    for requirement in map(Requirement, text.splitlines()):
        if (
            own_versions
            and canonicalize_name(requirement.name) in TENSORFLOW
            and own_versions[0] not in requirement.specifier
        ):
            raise UsageError(
                f"{requirements}: {requirement}: TensorFlow is the cluster's own {own_versions[0]},"
                " which stays"
            )
    if own_versions:
        return tuple(sorted(TENSORFLOW - base.versions.keys()))
    return ()


def _resolved(requirements: Path, text: str, base: Base) -> str:
    target = base.target
    never = "".join(
        f"{name} ; sys_platform == 'never'\n"
        for name in _other_tensorflow(requirements, text, base)
    )
    options = ["--python", sys.executable]
    if not base.is_running:
        options += ["--python-version", target.python]
        options += ["--python-platform", f"{target.machine}-manylinux_2_{NEWEST_GLIBC_MINOR}"]
    with tempfile.TemporaryDirectory(
        prefix="pscluster-lock-"
    ) as folder:  # where no pyproject.toml configures uv
        Path(folder, "in.txt").write_text(text, encoding="utf-8")
        Path(folder, "base.txt").write_text(base.constraints(), encoding="utf-8")
        Path(folder, "never.txt").write_text(never, encoding="utf-8")
        ended = _uv(
            [
                "pip",
                "compile",
                "in.txt",
                "--constraint",
                "base.txt",
                "--override",
                "never.txt",
                "--generate-hashes",
                "--only-binary",
                ":all:",
                "--no-header",
                "--no-annotate",
                *options,
            ],
            folder,
            _LOCK_SECONDS,
        )
    if ended.code == 0:
        return ended.output
    kind = f"CPython {target.short_python} on {target.machine}"
    if ended.code == 1:
        reason = unsatisfied_reason(ended.errors)
        common_packages = [
            f"{name} {version}"
            for name, version in base.versions.items()
            if f"{name}=={version}" in reason
        ]
        if common_packages:
            constraint_note = (
                f"; {', '.join(common_packages)}: the cluster's own version, which stays"
            )
        else:
            constraint_note = ""
        raise UsageError(
            f"{requirements}: no versions fit {kind} and the cluster's packages:"
            f" {reason}{constraint_note}"
        )
    raise ClusterError(
        f"{requirements}: cannot be locked for {kind}: is the network there?"
        f" {_one_line(ended.errors)}"
    )


def unsatisfied_reason(stderr: str) -> str:
    """The reason in uv's words, in one line."""
    explanation = stderr.partition("cause:")[2].partition("hint:")[0] or stderr
    return _one_line(_UNSATISFIABLE.sub("", " ".join(explanation.split())))


def _one_line(text: str) -> str:
    line = " ".join(text.split()).removeprefix("error: ")
    if len(line) <= _MOST_REASON_CHARACTERS:
        return line
    return f"{line[:_MOST_REASON_CHARACTERS]} ..."


def _uv(arguments: list[str], folder: str | Path, seconds: float) -> FinishedProcess:
    try:
        return finished(
            [uv_executable(), *arguments, "--no-progress", "--color", "never"],
            environment={**os.environ, "UV_PYTHON_DOWNLOADS": "never"},
            folder=folder,
            seconds=seconds,
        )
    except subprocess.TimeoutExpired:
        raise ClusterError(
            f"uv {' '.join(arguments[:2])}: not done within {seconds:.0f} s and ended: is the"
            " network there?"
        ) from None


def layer(site_packages: str) -> str:
    """Return the line of a `.pth` file that puts the common packages first (Python's `site`)."""
    before = 'next((n for n, p in enumerate(sys.path) if p.endswith("-packages")), len(sys.path))'
    path = json.dumps(site_packages)
    return f"import sys; {path} in sys.path or sys.path.insert({before}, {path})"


def environment_for(lock: Lock, say: Say, folder: Path | None = None) -> Path:
    """Return the Python here that imports what `lock` and our own have; install what is missing.

    The latest of the other environments in `folder` stay, and those that a process holds. Raises
    ClusterError.
    """
    if not lock.pins:
        return Path(sys.executable)
    if folder is None:
        folder = local_environments()
    home = folder / lock.key
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with one_at_a_time(folder / ".lock", say):
            if not (home / COMPLETE).exists():
                say(
                    f"installing {len(lock.pins)} package{'s' * (len(lock.pins) != 1)} of"
                    f" requirements.txt into {home}"
                )
                _install(lock, home)
            os.utime(home / COMPLETE)
            _prune(folder, lock.key)
    except OSError as problem:
        raise ClusterError(
            f"{home}: cannot be made ({problem.strerror}): free some room, or check its rights"
        ) from None
    return home / "bin" / "python"


def _install(lock: Lock, home: Path) -> None:
    with folder_beside(home) as work:
        environment = work / "environment"
        (work / "lock.txt").write_text(lock.text, encoding="utf-8")
        python = ["--python", str(environment / "bin" / "python")]
        for arguments in (
            ["venv", "--relocatable", "--python", sys.executable, str(environment)],
            [
                "pip",
                "install",
                *python,
                "--no-deps",
                "--require-hashes",
                "--only-binary",
                ":all:",
                "-r",
                "lock.txt",
            ],
        ):
            ended = _uv(arguments, work, _INSTALL_SECONDS)
            if ended.code:
                raise ClusterError(
                    f"{home}: the environment cannot be installed: {_one_line(ended.errors)}"
                )
        (site,) = environment.glob("lib/python*/site-packages")
        (site / "pscluster.pth").write_text(f"{layer(lock.base.site_packages)}\n", encoding="utf-8")
        (environment / COMPLETE).touch()
        shutil.rmtree(home, ignore_errors=True)
        take_name(environment, home)


def _prune(folder: Path, in_use: str) -> None:
    marks = [path for path in folder.glob(f"*/{COMPLETE}") if path.parent.name != in_use]
    marks.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    for mark in marks[KEPT:]:
        with contextlib.suppress(OSError), mark.open("rb") as stream:
            take(stream.fileno())  # a process that runs in it holds it
            shutil.rmtree(mark.parent, ignore_errors=True)
