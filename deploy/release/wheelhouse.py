"""A folder with every wheel that one kind of node installs, downloaded once on the operator's machine."""

import contextlib
import json
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from packaging.utils import parse_wheel_filename

from cluster.errors import ClusterError
from deploy.common.file_lock import FileLock, LockHeldError
from deploy.common.project import ROOT
from deploy.release import checksums
from deploy.release import requirements as required
from deploy.release.download import TEMPORARY, download
from deploy.release.keys import environment_key
from deploy.release.target import Target

CACHE = ROOT / ".cache" / "wheels"
COMPLETE = ".complete"
REQUIREMENTS = "requirements.txt"
INSTALLER_WHEEL = f"{required.INSTALLER}-"
"""How the name of the installer's wheel begins."""
_BLOCK_BYTES = 4096
"""A small file takes one of these on a node's disk."""
_BYTECODE_SHARE = 1.3
"""Size of the modules' bytecode to that of their sources: 114 MB to 89 MB in an environment with TensorFlow 2.21."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Wheelhouse:
    """A complete one. `files` has sizes by name, `SHA256SUMS` included; an environment takes `installed_bytes`."""

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
        """Disk that an installation takes on a node at its worst: wheels, environment, installer, some room."""
        return int(self.installed_bytes * 1.05) + self.bytes + (128 << 20)

    def sums(self) -> str:
        """The text of its `SHA256SUMS`."""
        return (self.folder / checksums.NAME).read_text(encoding="utf-8")


def open_wheelhouse(key: str, cache: Path = CACHE) -> Wheelhouse | None:
    """The complete wheelhouse of this key in `cache`, None without one. Files are held against their sizes only."""
    folder = cache / key
    try:
        fields = json.loads((folder / COMPLETE).read_text(encoding="utf-8"))
        found = Wheelhouse(folder=folder, **fields)
        if any((folder / name).stat().st_size != size for name, size in found.files.items()):
            return None
    except (OSError, ValueError, TypeError):
        return None
    return found


def make_wheelhouse(
    requirements: str, python: str = "3.11", machine: str = "aarch64", *, cache: Path = CACHE, say: Say = print
) -> Wheelhouse:
    """The wheelhouse of the list `requirements` for nodes with this Python and machine, downloaded if need be.

    What an interrupted download left is used again, and so are the wheels of other wheelhouses in `cache`. A second
    process that wants the same waits. Raises ClusterError when a wheel cannot be had.
    """
    target = Target(python, machine)
    key = environment_key(requirements, python, machine)
    found = open_wheelhouse(key, cache)
    if found is not None:
        return found
    with _lock(cache / f"{key}.lock", say):
        found = open_wheelhouse(key, cache)
        if found is not None:
            return found
        folder = cache / key
        pins = required.pins(requirements, target)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / COMPLETE).unlink(missing_ok=True)
            (folder / REQUIREMENTS).write_text(required.text_for(requirements, target, installer=False), "utf-8")
            wanted = cache / f"{key}.wanted.txt"
            wanted.write_text(required.text_for(requirements, target, installer=True), encoding="utf-8")
            hashes = frozenset(sha256 for pin in pins for sha256 in pin.hashes)
            _keep_wanted(folder, hashes)
            _reuse(cache, folder, target, hashes)
            present = {checksums.file_sha256(wheel) for wheel in folder.glob("*.whl")}
            if any(pin.hashes.isdisjoint(present) for pin in pins):
                say(f"wheels for CPython {python} on {machine}: {len(pins)} packages into {folder}")
                download(wanted, folder, target)
            wanted.unlink()
            return _finish(folder, key, target, pins)
        except OSError as problem:
            raise ClusterError(
                f"{folder}: the wheels cannot be written ({problem.strerror}); about 1 GB is needed there"
            ) from None


def _finish(folder: Path, key: str, target: Target, pins: tuple[required.Pin, ...]) -> Wheelhouse:
    wheels = sorted(folder.glob("*.whl"))
    accepted = target.tags()
    allowed = {(pin.name, pin.version): pin.hashes for pin in pins}
    sums = {}
    for wheel in wheels:
        name, version, _build, tags = parse_wheel_filename(wheel.name)
        sums[wheel.name] = checksums.file_sha256(wheel)
        if sums[wheel.name] not in allowed.pop((name, str(version)), ()) or not tags & accepted:
            raise ClusterError(f"{wheel}: not what the list asks for; remove it and run it again")
    if allowed:
        missing = ", ".join(f"{name} {version}" for name, version in sorted(allowed))
        raise ClusterError(f"{folder}: pip left out {missing}; run it again")
    sums[REQUIREMENTS] = checksums.file_sha256(folder / REQUIREMENTS)
    (folder / checksums.NAME).write_text(checksums.render(sums), encoding="utf-8")
    made = Wheelhouse(
        folder=folder,
        key=key,
        python=target.short_python,
        machine=target.machine,
        sums_sha256=checksums.file_sha256(folder / checksums.NAME),
        files={name: (folder / name).stat().st_size for name in (*sums, checksums.NAME)},
        installed_bytes=sum(_installed_bytes(wheel) for wheel in wheels if not wheel.name.startswith(INSTALLER_WHEEL)),
    )
    facts = {name: value for name, value in asdict(made).items() if name != "folder"}
    partial = folder / f"{COMPLETE}.partial"
    partial.write_text(json.dumps(facts, indent=2), encoding="utf-8")
    os.replace(partial, folder / COMPLETE)
    return made


def _installed_bytes(wheel: Path) -> int:
    """What a wheel takes on disk: files in whole blocks, bytecode beside each module."""
    total = 0
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            sizes = [entry.file_size]
            if entry.filename.endswith(".py"):
                sizes.append(int(entry.file_size * _BYTECODE_SHARE))
            total += sum(-(-size // _BLOCK_BYTES) * _BLOCK_BYTES for size in sizes)
    return total


def _keep_wanted(folder: Path, hashes: frozenset[str]) -> None:
    """Removes what a download that was cut off left half done."""
    for path in folder.glob("*.whl"):
        if checksums.file_sha256(path) not in hashes:
            path.unlink()
    for left in folder.glob(f"{TEMPORARY}*"):
        shutil.rmtree(left, ignore_errors=True)


def _reuse(cache: Path, folder: Path, target: Target, hashes: frozenset[str]) -> None:
    """Links wheels of earlier lists for the same kind of node: another list mostly wants the same TensorFlow."""
    for marker in cache.glob(f"*/{COMPLETE}"):
        earlier = open_wheelhouse(marker.parent.name, cache)
        if earlier is None or (earlier.python, earlier.machine) != (target.short_python, target.machine):
            continue
        for name, sha256 in checksums.parse(earlier.sums()).items():
            if sha256 in hashes and not (folder / name).exists():
                try:
                    (folder / name).hardlink_to(earlier.folder / name)
                except OSError:
                    shutil.copyfile(earlier.folder / name, folder / name)


@contextlib.contextmanager
def _lock(path: Path, say: Say) -> Iterator[None]:
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
