"""The files of an app, looked over before they are sent, copied or read, and their one digest.

It reads names, kinds, sizes and bytes, and runs nothing: only the coordinator imports an app.

A run's folder is a program, and another machine may have written it. So code of a run is imported
only where its digest is listed as one that this account trained or trusted, apart from runs. On a
node the list of the operator counts, which comes with the job: what lies on the node itself may be
anybody's.
"""

import ast
import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from shutil import copyfileobj
from typing import BinaryIO

from core.control.own_state import OTHERWISE, make_private, user_state
from core.ground.errors import UsageError, reason_of
from core.ground.files import atomic_write, write_refusal
from core.ground.parcel import BLOCK_BYTES, FileToPack

ENTRY = "app.py"
"""The file of an app's folder that says what it is."""
REQUIREMENTS = "requirements.txt"
MOST_BYTES = 64 << 20
MOST_FILES = 2000
MOST_DEPTH = 16
"""The greatest depth of folders in folders."""
MOST_NAME_BYTES = 255
LEFT_OUT = frozenset({".git", "__pycache__", ".venv", "node_modules", "runs"})
"""Folders that stay behind, wherever they lie: history, what is made again, results, and a
cluster's token."""
_LEFT_OUT_SUFFIX = ".pyc"
_SPECIAL = (
    "expected a plain file, found a special one (a pipe, a socket, a device): an app has files and"
    " folders alone"
)
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True)
class AppFile:
    """One file: its name in the app with `/` between folders, where it lies, its SHA-256 (hex)."""

    name: str
    path: Path
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class AppFiles:
    """An app as `files_of_app` found it; `files` are in the order of their names."""

    source: Path
    files: tuple[AppFile, ...]

    @property
    def size_bytes(self) -> int:
        """The bytes of all files."""
        return sum(file.size_bytes for file in self.files)

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of the names and contents: equal for a folder and each copy of it."""
        lines = (f"{file.sha256} {file.size_bytes} {file.name}\n" for file in self.files)
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    @property
    def requirements(self) -> Path | None:
        """The app's `requirements.txt`; None without one."""
        return next((file.path for file in self.files if file.name == REQUIREMENTS), None)

    def defines(self, name: str) -> bool:
        """Whether `app.py` itself defines or imports the name, outside of functions and classes.

        Runs nothing.

        False for a file that is no Python: the coordinator, which imports it, says what is wrong.
        """
        entry = next(file for file in self.files if file.name == ENTRY)
        try:
            with closing(_CheckedStream(entry)) as stream:
                return name in _names(ast.parse(stream.read()).body)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False

    def write(self, folder: Path) -> None:
        """Write the files below the folder. Raises UsageError as `streams` does, OSError."""
        for name, _, stream in self.streams(str(folder)):
            path = Path(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as copy:
                copyfileobj(stream, copy, BLOCK_BYTES)

    def streams(self, folder: str) -> Iterator[FileToPack]:
        """Yield each file: its name below the folder, its bytes, and what reads them.

        Reading raises UsageError for bytes that are no longer those that were looked over.
        """
        for file in self.files:
            with closing(_CheckedStream(file)) as stream:
                yield f"{folder}/{file.name}", file.size_bytes, stream


def _names(statements: Sequence[ast.stmt]) -> Iterator[str]:
    for statement in statements:
        match statement:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from (alias.asname or alias.name for alias in names)
            case ast.Assign(targets=targets):
                yield from _stored(targets)
            case ast.AnnAssign(target=target):
                yield from _stored([target])
            case ast.If() | ast.Try() | ast.With():
                handlers = [
                    inner
                    for handler in getattr(statement, "handlers", ())
                    for inner in handler.body
                ]
                more = (getattr(statement, "orelse", []), getattr(statement, "finalbody", []))
                yield from _names([*statement.body, *handlers, *more[0], *more[1]])


def _stored(targets: Sequence[ast.expr]) -> Iterator[str]:
    for target in targets:
        yield from (node.id for node in ast.walk(target) if isinstance(node, ast.Name))


def files_of_app(path: Path) -> AppFiles:
    """The files of the app at `path`, a Python file or a folder with `app.py`.

    A file alone is an app whose only file is `app.py`: what lies beside it does not belong to it. A
    link to a file of the same folder counts as that file. Raises UsageError, which names what
    cannot travel and why.
    """
    try:
        status = path.stat()
        if stat.S_ISREG(status.st_mode):
            if path.suffix != ".py":
                raise UsageError(
                    f"{path}: expected a Python file (.py) or a folder with {ENTRY}, got another"
                    " file"
                )
            return AppFiles(path, (_looked_over(path, ENTRY, MOST_BYTES),))
        if not stat.S_ISDIR(status.st_mode):
            raise UsageError(
                f"{path}: expected a Python file or a folder with {ENTRY}, found a special file"
            )
        return AppFiles(path, tuple(_all(path)))
    except FileNotFoundError:
        raise UsageError(
            f"{path}: expected a Python file or a folder with {ENTRY}, found nothing there"
        ) from None
    except (OSError, ValueError) as problem:  # ValueError: a NUL byte
        raise _unreadable(path, problem) from None


def _unreadable(path: Path, problem: OSError | ValueError) -> UsageError:
    where = getattr(problem, "filename", None) or path
    return UsageError(
        f"{where}: an app's file cannot be read ({reason_of(problem)}): check the path and its"
        " rights"
    )


def _all(folder: Path) -> list[AppFile]:
    root = folder.resolve(strict=True)
    files: list[AppFile] = []
    size_bytes = 0
    for path, name in _walk(root, root, "", 0):
        if len(files) >= MOST_FILES:
            raise UsageError(
                f"{folder}: expected at most {MOST_FILES:,} files in an app, there are more: keep"
                " data elsewhere and name it with --data"
            )
        files.append(_looked_over(path, name, MOST_BYTES - size_bytes))
        size_bytes += files[-1].size_bytes
    files.sort(key=lambda file: file.name)
    if not any(file.name == ENTRY for file in files):
        raise UsageError(
            f"{folder}: expected {ENTRY} in the folder of an app, found none: `fab app new`"
            " writes one"
        )
    return files


def _stays_behind(name: str) -> bool:
    """Return whether an entry is no file of the app; a state that was set aside has tokens too."""
    return name in LEFT_OUT or name.endswith(_LEFT_OUT_SUFFIX)


def _walk(root: Path, folder: Path, above: str, depth: int) -> Iterator[tuple[Path, str]]:
    """Yield every file below `folder`, and its name in the app."""
    if depth > MOST_DEPTH:
        raise UsageError(
            f"{folder}: expected folders at most {MOST_DEPTH} deep in an app: keep data elsewhere"
        )
    with os.scandir(folder) as entries:
        ordered_entries = sorted(entries, key=lambda entry: entry.name)
    for entry in ordered_entries:
        if _stays_behind(entry.name):
            continue
        _refuse_name(folder, entry.name)
        path = Path(entry.path)
        name = f"{above}{entry.name}"
        if entry.is_symlink():
            yield _target(root, path), name
        elif entry.is_dir(follow_symlinks=False):
            yield from _walk(root, path, f"{name}/", depth + 1)
        elif entry.is_file(follow_symlinks=False):
            yield path, name
        else:
            raise UsageError(f"{path}: {_SPECIAL}")


def _target(root: Path, link: Path) -> Path:
    """The file of the same app that a link means."""
    try:
        target = link.resolve(strict=True)
    except (OSError, RuntimeError):
        raise UsageError(f"{link}: expected a file, found a link to nothing: remove it") from None
    if not target.is_relative_to(root):
        raise UsageError(
            f"{link}: links to {target}, outside of the app, which does not travel: put a copy"
            " there"
        )
    if target.is_dir():
        raise UsageError(
            f"{link}: links to a folder: links of an app may mean files alone, put the folder there"
        )
    return target


class _CheckedStream:
    """One file of an app as it was looked over. Raises UsageError where it is another by now."""

    def __init__(self, file: AppFile) -> None:
        self._file = file
        self._sha256 = hashlib.sha256()
        self._missing_bytes = file.size_bytes
        self._stream = _open(file.path)

    def read(self, count: int = -1) -> bytes:
        """Return at most `count` of the next bytes; all without it."""
        if not 0 <= count <= self._missing_bytes:
            count = self._missing_bytes
        try:
            block = self._stream.read(count)
            self._sha256.update(block)
            self._missing_bytes -= len(block)
            changed = not self._missing_bytes and (
                self._sha256.hexdigest() != self._file.sha256 or self._stream.read(1) != b""
            )
        except OSError as problem:
            raise _unreadable(self._file.path, problem) from None
        if changed or len(block) < count:
            raise UsageError(
                f"{self._file.path}: has changed while the app was read: run it again once it is"
                " written"
            )
        return block

    def close(self) -> None:
        """Close the file."""
        self._stream.close()


def _looked_over(path: Path, name: str, most_bytes: int) -> AppFile:
    sha256 = hashlib.sha256()
    size_bytes = 0
    with _open(path) as stream:
        while block := stream.read(BLOCK_BYTES):
            sha256.update(block)
            size_bytes += len(block)
            if size_bytes > most_bytes:
                raise UsageError(
                    f"{path}: with {name} the app has more than {MOST_BYTES >> 20} MiB: keep data"
                    " elsewhere and name it with --data"
                )
    return AppFile(name, path, size_bytes, sha256.hexdigest())


def _open(path: Path) -> BinaryIO:
    try:
        descriptor = os.open(path, _READ)  # a pipe or a device does not make it wait
    except OSError as problem:
        raise _unreadable(path, problem) from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UsageError(f"{path}: {_SPECIAL}")
    return os.fdopen(descriptor, "rb")


def _refuse_name(folder: Path, name: str) -> None:
    try:
        plain = name.isprintable() and "\\" not in name and len(name.encode()) <= MOST_NAME_BYTES
    except UnicodeEncodeError:
        plain = False
    if not plain:
        raise UsageError(
            f"{folder}: {name!r:.80}: expected a name of printable characters, at most"
            f" {MOST_NAME_BYTES} bytes long and without a backslash: rename it"
        )


DIGEST = re.compile(r"[0-9a-f]{64}")
TRUST_FLAG = "--trust-app"
DIGESTS_VARIABLE = "PSCLUSTER_OWN_APPS"
"""Environment variable: the operator's list, which takes the place of this account's own."""
MOST = 1000
"""Digests that travel with a job, the latest ones."""


def operators_digests() -> frozenset[str] | None:
    """The operator's list on a node; None where this account's own counts."""
    listed = os.environ.get(DIGESTS_VARIABLE)
    if listed is None:
        return None
    return frozenset(listed.split())


def digests_variable(digests: Iterable[str]) -> dict[str, str]:
    """The list for the environment of a process on a node."""
    return {DIGESTS_VARIABLE: " ".join(digest for digest in digests if DIGEST.fullmatch(digest))}


def remember_digest(digest: str, source: str) -> None:
    """Add the digest to this account's list; `source` is for people who read it.

    Raises ClusterError if the list cannot be written.
    """
    path = _folder() / digest
    try:
        make_private(path.parent)
    except OSError as problem:
        raise write_refusal(
            path.parent, "the list of your apps cannot be written", problem, OTHERWISE
        ) from None
    atomic_write(path, f"{source}\n".encode(errors="replace"), OTHERWISE)


def trust(digest: str) -> None:
    """Do what `--trust-app DIGEST` says. Raises UsageError for another text, ClusterError."""
    if not DIGEST.fullmatch(digest):
        raise UsageError(
            f"{TRUST_FLAG}: expected the digest of an app, 64 hexadecimal digits, got"
            f" {digest!r:.80}"
        )
    remember_digest(digest, f"trusted with {TRUST_FLAG}")


def own_digests() -> tuple[str, ...]:
    """Return this account's list, the latest first, at most MOST."""
    dated_digests = []
    with suppress(OSError), os.scandir(_folder()) as entries:
        for entry in entries:
            if is_own(entry.name):
                with suppress(OSError):
                    dated_digests.append((-entry.stat().st_mtime_ns, entry.name))
    return tuple(name for _, name in sorted(dated_digests)[:MOST])


def is_own(digest: str) -> bool:
    """Whether the digest is listed."""
    listed = operators_digests()
    if listed is not None:
        return digest in listed
    try:
        return (
            DIGEST.fullmatch(digest) is not None
            and (_folder() / digest).stat().st_uid == os.geteuid()
        )
    except OSError:
        return False


def refuse_foreign(digest: str, run: Path) -> None:
    """Raise UsageError unless the digest is listed. `run` has the code."""
    if not is_own(digest):
        raise UsageError(
            f"{run}: has code that was not trained from here, or only by an earlier version, and it"
            f" would run as you: read {run / 'app'} first, and if you trust it add"
            f" {TRUST_FLAG} {digest}"
        )


def _folder() -> Path:
    return user_state() / "apps"
