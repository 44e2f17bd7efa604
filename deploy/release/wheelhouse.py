"""A folder with every wheel that one kind of node installs, downloaded once with pip.

pip, unlike uv, fetches for another Python and machine. It takes the user's own index, proxy and
certificates, and checks every file against the list's hashes. It can neither judge the list's
markers for another machine nor derive an older glibc's tag from a newer one's, so it gets lines
without markers and every tag by name.
"""

import contextlib
import os
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from core.ground.children import finished
from core.ground.errors import ClusterError
from core.ground.files import folder_beside
from core.ground.locks import FileLock, LockHeldError
from deploy.common.project import project_cache
from deploy.release import requirements as required
from deploy.release.requirements import (
    SUMS,
    Target,
    environment_key,
    file_sha256,
    sums_text,
)


def download(requirements_file: Path, folder: Path, target: Target) -> None:
    """Fetch a wheel for each line of `requirements_file` into `folder`; existing wheels stay.

    The list has no markers. Raises ClusterError when some wheels are missing; the fetched ones
    stay.
    """
    options = [f"--platform={platform}" for platform in target.platforms()]
    options += [
        f"--abi={abi}" for abi in (f"cp{target.short_python.replace('.', '')}", "abi3", "none")
    ]
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--require-hashes",
        "--only-binary=:all:",
    ]
    command += [
        "--quiet",
        "--no-input",
        "--disable-pip-version-check",
        "--no-cache-dir",
        "--retries=2",
        "--timeout=30",
    ]
    # The lock has chosen each version; uv ignores the upper bound of a Requires-Python, and pip
    # must not object to it.
    command += ["--ignore-requires-python"]
    command += ["--implementation=cp", f"--python-version={target.short_python}", *options]
    # pip unpacks its downloads beside their destination: /tmp may be in memory.
    with folder_beside(folder / "pip") as unpacked:
        ended = finished(
            [*command, f"--dest={folder}", f"--requirement={requirements_file}"],
            environment={**os.environ, "TMPDIR": str(unpacked)},
        )
    if ended.code:
        raise ClusterError(
            f"the wheels for CPython {target.short_python} on {target.machine} are incomplete: "
            f"{_reason(ended.errors)}; the fetched ones stay: run it again"
        )


def _reason(stderr: str) -> str:
    """Pip's error in one line."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    refused = [
        line
        for line in lines
        if "Failed to establish" in line or "Connection" in line or "resol" in line
    ]
    if refused:
        return f"is the network there? {refused[0].removeprefix('WARNING: ')}"
    if errors:
        return errors[-1]
    if lines:
        return lines[-1]
    return "pip said nothing"


CACHE = project_cache() / "wheels"
REQUIREMENTS = "requirements.txt"
INSTALLER_WHEEL = f"{required.INSTALLER}-"
"""Prefix of the file name of the installer's wheel."""
_BLOCK_BYTES = 4096
"""The least that a file takes on a node's disk."""
_BYTECODE_SHARE = 1.3
"""Size of the modules' bytecode to that of their sources: 114 MB to 89 MB in an environment with
TensorFlow 2.21."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Wheelhouse:
    """A complete one.

    `files` has sizes by name, `SHA256SUMS` included; an environment takes `installed_bytes`.
    """

    folder: Path
    key: str
    python: str
    machine: str
    files: Mapping[str, int]
    installed_bytes: int

    @property
    def bytes(self) -> int:
        """Size of all its files."""
        return sum(self.files.values())

    @property
    def needed_bytes(self) -> int:
        """Return the peak disk use of an installation: wheels, environment, installer, margin."""
        return int(self.installed_bytes * 1.05) + self.bytes + (128 << 20)

    def sums(self) -> str:
        """The text of its `SHA256SUMS`."""
        return (self.folder / SUMS).read_text(encoding="utf-8")


def make_wheelhouse(
    requirements: str,
    python: str = "3.11",
    machine: str = "aarch64",
    *,
    cache: Path = CACHE,
    say: Say = print,
) -> Wheelhouse:
    """Return the wheelhouse of a list for this Python and machine, downloaded if missing.

    It takes what an interrupted download and other wheelhouses in `cache` have, compared with the
    list's hashes. A second process that wants the same waits. Raises ClusterError when a wheel is
    missing.
    """
    target = Target(python, machine)
    key = environment_key(requirements, python, machine)
    folder = cache / key
    pins = required.pins(requirements, target)
    with one_at_a_time(cache / f"{key}.lock", say):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            sums = _collected(cache, folder, pins, target)
            if len(sums) < len(pins):
                say(f"wheels for CPython {python} on {machine}: {len(pins)} packages into {folder}")
                requirements_file = cache / f"{key}.wanted.txt"
                requirements_file.write_text(
                    required.text_for(requirements, target, installer=True), "utf-8"
                )
                download(requirements_file, folder, target)
                requirements_file.unlink()
                sums = _collected(cache, folder, pins, target)
            if len(sums) < len(pins):
                raise ClusterError(f"{folder}: pip left out some of {len(pins)}: run it again")
            text = required.text_for(requirements, target, installer=False)
            (folder / REQUIREMENTS).write_text(text, "utf-8")
            sums[REQUIREMENTS] = file_sha256(folder / REQUIREMENTS)
            (folder / SUMS).write_text(sums_text(sums), encoding="utf-8")
            return Wheelhouse(
                folder=folder,
                key=key,
                python=target.short_python,
                machine=target.machine,
                files={name: (folder / name).stat().st_size for name in (*sums, SUMS)},
                installed_bytes=sum(
                    _installed_bytes(folder / name)
                    for name in sums
                    if name.endswith(".whl") and not name.startswith(INSTALLER_WHEEL)
                ),
            )
        except OSError as problem:
            raise ClusterError(
                f"{folder}: the wheels cannot be written ({problem.strerror}): free about 1 GB"
                " there"
            ) from None


def _collected(
    cache: Path, folder: Path, pins: Sequence[required.Pin], target: Target
) -> dict[str, str]:
    """Link a wheel for each pin from the cache into `folder`; return their hashes by name.

    What is in `folder` and belongs to no pin goes.
    """
    lacking = {(pin.name, pin.version): pin.hashes for pin in pins}
    accepted = target.tags()
    sums: dict[str, str] = {}
    for wheel in sorted(cache.glob("*/*.whl"), key=lambda path: path.parent != folder):
        with contextlib.suppress(InvalidWheelFilename):
            name, version, _build, tags = parse_wheel_filename(wheel.name)
            hashes = lacking.get((name, str(version)), frozenset())
            if hashes and tags & accepted and (sha256 := file_sha256(wheel)) in hashes:
                del lacking[name, str(version)]
                sums[wheel.name] = sha256
                if wheel.parent != folder:
                    _link(wheel, folder / wheel.name)
                continue
        if wheel.parent == folder:
            wheel.unlink()
    return sums


def _link(wheel: Path, path: Path) -> None:
    try:
        path.hardlink_to(wheel)
    except OSError:
        shutil.copyfile(wheel, path)


def _installed_bytes(wheel: Path) -> int:
    """Disk use of an installed wheel: files in whole blocks, bytecode beside each module."""
    total = 0
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            sizes = [entry.file_size]
            if entry.filename.endswith(".py"):
                sizes.append(int(entry.file_size * _BYTECODE_SHARE))
            total += sum(-(-size // _BLOCK_BYTES) * _BLOCK_BYTES for size in sizes)
    return total


@contextlib.contextmanager
def one_at_a_time(path: Path, say: Say) -> Iterator[None]:
    """Hold the lock; wait for a process that has it, after a line to `say`."""
    waiting = False
    while True:
        try:
            lock = FileLock(path)
            break
        except LockHeldError as held:
            if not waiting:
                say(f"waiting for process {held.pid}, which fetches the same wheels")
                waiting = True
    with lock:
        yield
