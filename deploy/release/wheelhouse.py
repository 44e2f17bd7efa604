"""A folder with every wheel that one kind of node installs, downloaded once with pip.

pip, unlike uv, fetches for another Python and machine. It takes the user's own index, proxy and
certificates, and checks every file against the list's hashes. It can neither judge the list's
markers for another machine nor derive an older glibc's tag from a newer one's, so it gets lines
without markers and every tag by name.
"""

import contextlib
import json
import os
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from packaging.utils import parse_wheel_filename

from core.ground.children import finished
from core.ground.errors import ClusterError
from core.ground.files import folder_beside, read_json, whole_file
from core.ground.locks import FileLock, LockHeldError
from deploy.common.project import project_cache
from deploy.release import requirements as required
from deploy.release.requirements import (
    SUMS,
    Target,
    environment_key,
    file_sha256,
    parse_sums,
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
COMPLETE = ".complete"
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
    sums_sha256: str
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


def open_wheelhouse(key: str, cache: Path = CACHE) -> Wheelhouse | None:
    """The complete wheelhouse of this key in `cache`, or None.

    Only the sizes of its files are checked.
    """
    folder = cache / key
    try:
        fields = read_json(folder / COMPLETE)
        wheelhouse = Wheelhouse(folder=folder, **fields)
        if any((folder / name).stat().st_size != size for name, size in wheelhouse.files.items()):
            return None
    except (OSError, ValueError, TypeError):
        return None
    return wheelhouse


def make_wheelhouse(
    requirements: str,
    python: str = "3.11",
    machine: str = "aarch64",
    *,
    cache: Path = CACHE,
    say: Say = print,
) -> Wheelhouse:
    """Return the wheelhouse of a list for this Python and machine, downloaded if missing.

    It reuses the wheels of an interrupted download and of other wheelhouses in `cache`. A second
    process that wants the same waits. Raises ClusterError when a wheel is missing.
    """
    target = Target(python, machine)
    key = environment_key(requirements, python, machine)
    wheelhouse = open_wheelhouse(key, cache)
    if wheelhouse is not None:
        return wheelhouse
    with one_at_a_time(cache / f"{key}.lock", say):
        wheelhouse = open_wheelhouse(key, cache)
        if wheelhouse is not None:
            return wheelhouse
        folder = cache / key
        pins = required.pins(requirements, target)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / COMPLETE).unlink(missing_ok=True)
            (folder / REQUIREMENTS).write_text(
                required.text_for(requirements, target, installer=False), "utf-8"
            )
            requirements_file = cache / f"{key}.wanted.txt"
            requirements_file.write_text(
                required.text_for(requirements, target, installer=True), encoding="utf-8"
            )
            hashes = frozenset(sha256 for pin in pins for sha256 in pin.hashes)
            _keep_wanted(folder, hashes)
            _reuse(cache, folder, target, hashes)
            present = {file_sha256(wheel) for wheel in folder.glob("*.whl")}
            if any(pin.hashes.isdisjoint(present) for pin in pins):
                say(f"wheels for CPython {python} on {machine}: {len(pins)} packages into {folder}")
                download(requirements_file, folder, target)
            requirements_file.unlink()
            return _finish(folder, key, target, pins)
        except OSError as problem:
            raise ClusterError(
                f"{folder}: the wheels cannot be written ({problem.strerror}): free about 1 GB"
                " there"
            ) from None


def _finish(folder: Path, key: str, target: Target, pins: tuple[required.Pin, ...]) -> Wheelhouse:
    wheels = sorted(folder.glob("*.whl"))
    accepted = target.tags()
    allowed = {(pin.name, pin.version): pin.hashes for pin in pins}
    sums = {}
    for wheel in wheels:
        name, version, _build, tags = parse_wheel_filename(wheel.name)
        sums[wheel.name] = file_sha256(wheel)
        if sums[wheel.name] not in allowed.pop((name, str(version)), ()) or not tags & accepted:
            raise ClusterError(f"{wheel}: not in the list of packages: remove it and run it again")
    if allowed:
        missing = ", ".join(f"{name} {version}" for name, version in sorted(allowed))
        raise ClusterError(f"{folder}: pip left out {missing}: run it again")
    sums[REQUIREMENTS] = file_sha256(folder / REQUIREMENTS)
    (folder / SUMS).write_text(sums_text(sums), encoding="utf-8")
    wheelhouse = Wheelhouse(
        folder=folder,
        key=key,
        python=target.short_python,
        machine=target.machine,
        sums_sha256=file_sha256(folder / SUMS),
        files={name: (folder / name).stat().st_size for name in (*sums, SUMS)},
        installed_bytes=sum(
            _installed_bytes(wheel)
            for wheel in wheels
            if not wheel.name.startswith(INSTALLER_WHEEL)
        ),
    )
    facts = {name: value for name, value in asdict(wheelhouse).items() if name != "folder"}
    with whole_file(folder / COMPLETE) as stream:
        stream.write(json.dumps(facts, indent=2).encode())
    return wheelhouse


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


def _keep_wanted(folder: Path, hashes: frozenset[str]) -> None:
    """Remove the partial files of an interrupted download."""
    for path in folder.glob("*.whl"):
        if file_sha256(path) not in hashes:
            path.unlink()


def _reuse(cache: Path, folder: Path, target: Target, hashes: frozenset[str]) -> None:
    """Link wheels of earlier lists for the same kind of node, such as TensorFlow's."""
    for marker in cache.glob(f"*/{COMPLETE}"):
        earlier = open_wheelhouse(marker.parent.name, cache)
        if earlier is None or (earlier.python, earlier.machine) != (
            target.short_python,
            target.machine,
        ):
            continue
        for name, sha256 in parse_sums(earlier.sums()).items():
            if sha256 in hashes and not (folder / name).exists():
                try:
                    (folder / name).hardlink_to(earlier.folder / name)
                except OSError:
                    shutil.copyfile(earlier.folder / name, folder / name)


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
