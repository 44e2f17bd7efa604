"""Debian's packages, fetched with apt and unpacked into a folder, without root.

apt keeps its own lists below the cache, so that old or missing lists of this machine do not matter.
It checks every signature against this machine's keys.
"""

import fcntl
import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from core.ground.errors import ClusterError

FETCH_SECONDS = 1800
_MERGED = ("bin", "lib", "lib64", "sbin")
"""Folders that are links into `usr` on Debian, while its packages still name some of them."""


class NoPackageError(ClusterError):
    """A package is not available here."""


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Let one process at a time fetch under this lock."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


@dataclass(frozen=True)
class Apt:
    """apt with lists and a cache below `folder`."""

    folder: Path

    def update(self) -> None:
        """Fetch the lists of packages. Raises NoPackageError if that fails."""
        for path in ("lists/partial", "cache/archives/partial"):
            (self.folder / path).mkdir(parents=True, exist_ok=True)
        self._run("apt-get", "update")

    def missing(self, package: str) -> dict[str, int]:
        """Return the package and its missing dependencies, with the size of each download in bytes.

        Raises NoPackageError for a package that apt does not know.
        """
        said = self._run("apt-get", "--print-uris", "--no-install-recommends", "install", package)
        lines = re.findall(r"^'[^']+' ([^_ ]+)_\S+\.deb (\d+) ", said, re.MULTILINE)
        return {name: int(size) for name, size in lines}

    def unpack(self, packages: Iterable[str], into: Path) -> None:
        """Download the packages and unpack them into the new folder `into`, atomically.

        It removes set-user-id and set-group-id bits. Raises NoPackageError with the command that
        failed.
        """
        wanted = sorted(packages)
        with tempfile.TemporaryDirectory(dir=into.parent, prefix=f".{into.name}-") as scratch:
            folder = Path(scratch)
            root = Path(scratch, "unpacked")
            for name in _MERGED:
                (root / "usr" / name).mkdir(parents=True)
                (root / name).symlink_to(f"usr/{name}")
            self._run("apt-get", "download", *wanted, folder=folder)
            found = sorted(folder.glob("*.deb"))
            if len(found) != len(wanted):
                raise NoPackageError(
                    f"`apt-get download` left {len(found)} packages, expected {len(wanted)}"
                )
            for package in found:
                archive = package.with_suffix(".tar")
                self._run("dpkg-deb", "--fsys-tarfile", package.name, folder=folder, output=archive)
                # `dpkg-deb --extract` would put folders in the place of the links.
                self._run(
                    "tar",
                    "-x",
                    "--keep-directory-symlink",
                    "-f",
                    archive.name,
                    "-C",
                    root.name,
                    folder=folder,
                )
                archive.unlink()
            for path in root.rglob("*"):
                if path.is_symlink():
                    mode = 0
                else:
                    mode = path.stat().st_mode
                if mode & (stat.S_ISUID | stat.S_ISGID):
                    path.chmod(stat.S_IMODE(mode) & 0o777)
            root.chmod(0o755)
            root.replace(into)

    def _run(
        self, program: str, *words: str, folder: Path | None = None, output: Path | None = None
    ) -> str:
        """The program's output, unless the file `output` gets it."""
        said = " ".join((program, *words[:2], *(("...",) if len(words) > 2 else ())))
        path = shutil.which(program)
        if path is None:
            raise NoPackageError(f"{program} is not on PATH: this machine is no Debian")
        command = [path, *(self._options if program == "apt-get" else ()), *words]
        try:
            with nullcontext(subprocess.PIPE) if output is None else output.open("wb") as stdout:
                done = subprocess.run(
                    command,
                    cwd=folder,
                    check=True,
                    stdin=subprocess.DEVNULL,
                    stdout=stdout,
                    stderr=subprocess.PIPE,
                    text=True,
                    timeout=FETCH_SECONDS,
                    env={**os.environ, "LC_ALL": "C"},
                )
        except subprocess.TimeoutExpired:
            raise NoPackageError(f"`{said}` did not end within {FETCH_SECONDS} s") from None
        except subprocess.CalledProcessError as problem:
            reasons = [
                line
                for line in problem.stderr.splitlines()
                if line.startswith(("E:", "dpkg", "tar:"))
            ]
            raise NoPackageError(f"`{said}` failed ({(reasons or ['no reason'])[0]})") from None
        return done.stdout or ""

    @property
    def _options(self) -> Sequence[str]:
        # Without the locks of an installation, which need root: nothing is installed.
        settings = (
            f"Dir::State::lists={self.folder}/lists",
            f"Dir::Cache={self.folder}/cache",
            "Debug::NoLocking=1",
            "APT::Sandbox::User=",
            "Acquire::Languages=none",
            "Acquire::Retries=3",
            "quiet=2",
        )
        return [word for setting in settings for word in ("-o", setting)]
