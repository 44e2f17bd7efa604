"""The files of recordings by their paths, through folders, zips and zips in zips; gzip is undone.

A path begins with the name of what a person gave. An archive is read where it lies; one inside
another is copied to a temporary file, which memory holds while it is small.
"""

import gzip
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, cast

from core.data.archive import (
    LARGEST_TEXT_BYTES,
    LARGEST_TOTAL_BYTES,
    ZIP_DAMAGE,
    FolderTree,
    one_line,
    open_zip,
    unreadable,
)
from core.data.described.description import WORD, RecordingFormat
from core.data.described.path_pattern import PathPattern, only
from core.data.source import RESOURCE_FORKS
from core.ground.errors import DataError

DEEPEST = 3
"""Archives in archives."""
MOST_MEMBERS = 100_000
LARGEST_DOCUMENT_BYTES = 128 * 2**20
"""Bytes that become objects of Python, which take ten times as much."""
IN_MEMORY_BYTES = 32 * 2**20
_ZIP = ".zip"
_GZIP = ".gz"


@dataclass(frozen=True)
class Member:
    """One file: the path on the disk, then a name in each archive, outermost first."""

    path: Path
    inner: tuple[str, ...]
    name: str
    """The path that patterns are matched with."""
    size: int
    """Bytes where it lies; of a file in an archive, unpacked."""

    @property
    def where(self) -> str:
        """The file's name in messages."""
        return ": ".join([str(self.path), *self.inner])

    @contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        """Open its bytes, without gzip's. Raises DataError for what is damaged or too large."""
        with ExitStack() as stack:
            try:
                raw: IO[bytes] = stack.enter_context(self.path.open("rb"))
                for name in self.inner:
                    raw = stack.enter_context(_entered(stack, raw, name, self.where))
                if self.where.lower().endswith(_GZIP):
                    raw = cast(IO[bytes], gzip.GzipFile(fileobj=raw))
            except DataError:
                raise
            except FileNotFoundError as problem:
                raise unreadable(self.path, problem) from None
            except (KeyError, *ZIP_DAMAGE) as problem:
                raise _damaged(self.where, problem) from None
            yield raw

    def read(self, most_bytes: int = LARGEST_TEXT_BYTES) -> bytes:
        """Return its content. Raises DataError for what is damaged or too large."""
        with self.opened() as raw:
            try:
                content = raw.read(most_bytes + 1)
            except ZIP_DAMAGE as problem:
                raise _damaged(self.where, problem) from None
        if len(content) > most_bytes:
            raise DataError(f"{self.where}: larger than {most_bytes} bytes; record shorter files")
        return content


def _entered(stack: ExitStack, raw: IO[bytes], name: str, where: str) -> IO[bytes]:
    archive = stack.enter_context(open_zip(raw, where))
    content = archive.open(name)
    if not name.lower().endswith(_ZIP):
        return content
    copy = tempfile.SpooledTemporaryFile(IN_MEMORY_BYTES)  # noqa: SIM115
    stack.callback(copy.close)
    with content:
        shutil.copyfileobj(content, copy)
    copy.seek(0)
    return copy


def _damaged(where: str, problem: Exception) -> DataError:
    return DataError(f"{where}: damaged ({one_line(problem)[:80]}); fetch it again")


def members_of(source: Path) -> Iterator[Member]:
    """Yield every file of a folder, of a zip, or the one file itself. Raises DataError."""
    if source.is_dir():
        named_paths = [
            (source / name, f"{source.name}/{name}") for name in FolderTree(source).names()
        ]
    else:
        named_paths = [(source, source.name)]
    for path, name in named_paths:
        yield from _inside(Member(path, (), name, _size(path)))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as problem:
        raise unreadable(path, problem) from None


def _inside(member: Member) -> Iterator[Member]:
    if not member.name.lower().endswith(_ZIP):
        name = member.name
        if name.lower().endswith(_GZIP):
            name = name[: -len(_GZIP)]
        yield replace(member, name=name)
        return
    if len(member.inner) >= DEEPEST:
        raise DataError(f"{member.where}: archives in more than {DEEPEST} others; unpack them")
    with member.opened() as raw, open_zip(raw, member.where, LARGEST_TOTAL_BYTES) as archive:
        sizes = {info.filename: info.file_size for info in archive.infolist() if not info.is_dir()}
    for name in sorted(sizes):
        if not name.startswith(RESOURCE_FORKS):
            inner = (*member.inner, name)
            yield from _inside(Member(member.path, inner, f"{member.name}/{name}", sizes[name]))


@dataclass(frozen=True)
class Sheaf:
    """The files of one recording: one, or one a sensor; and what their path says."""

    name: str
    files: dict[str | None, Member]
    path_fields: Mapping[str, str]

    @property
    def size(self) -> int:
        """Bytes of its files, where they lie."""
        return sum(member.size for member in set(self.files.values()))


def sheaves(
    source: Path,
    form: RecordingFormat,
    *,
    unlabelled: bool = False,
    members: Iterable[Member] | None = None,
) -> Sequence[Sheaf]:
    """Return the recordings of a source, in the order of their paths.

    With `unlabelled` the folders that a pattern begins with, and that say one thing each, need not
    be there. `members` are the files, where they are listed already. Raises DataError where none
    fits, or a sensor's file is missing.
    """
    patterns = [PathPattern(_inner(pattern) if unlabelled else pattern) for pattern in form.files]
    begins = set[str]()
    recordings: dict[str, Sheaf] = {}
    for number, member in enumerate(members_of(source) if members is None else members):
        if number >= MOST_MEMBERS:
            raise DataError(f"{source}: more than {MOST_MEMBERS} files; name a smaller folder")
        readings = [reading for pattern in patterns for reading in pattern.readings(member.name)]
        fits = only(f"{source}: {member.name}", readings, form.label.words)
        is_meant = member.path == source and not any(map(WORD.search, form.files))
        if fits is None and not (is_meant and not member.inner):
            continue
        name, path_fields, begin = fits or (member.name, {}, "")
        sensors = {path_fields.pop("sensor", None)}.intersection(form.files_of)
        path_fields.pop("any", None)
        if form.has_all_sensors:
            name = member.name
            sensors = set(form.files_of)
        for sensor in sensors:
            begins.add(begin)
            other = recordings.setdefault(name, Sheaf(name, {}, path_fields)).files.setdefault(
                sensor, member
            )
            if other is not member:
                raise DataError(
                    f"{source}: {other.where} and {member.where} would be one recording; move one"
                    " away, or write {session} where their paths differ"
                )
    _refuse_incomplete(source, form, recordings)
    if form.anchored and not unlabelled and len(begins) > 1:
        folders = sorted(begins)
        raise DataError(
            f"{source}: {form.title}: {form.files[0]} begins in {folders[0]!r:.60} and in"
            f" {folders[1]!r:.60}; name one folder, or describe the paths in a format of your own"
            " with `like`, `files` and `anchored: false`"
        )
    return [recordings[name] for name in sorted(recordings)]


def _inner(pattern: str) -> str:
    """Return a pattern without the folders at its beginning that say one thing each."""
    first, slash, rest = pattern.partition("/")
    if slash and WORD.fullmatch(first):
        return _inner(rest)
    return pattern


def _refuse_incomplete(
    source: Path, form: RecordingFormat, recordings: Mapping[str, Sheaf]
) -> None:
    if not recordings:
        raise DataError(
            f"{source}: {form.title}: expected files {' or '.join(form.files)}, found none; name"
            " the folder that holds them, also for one file, or describe its paths in a format of"
            " your own"
        )
    for name, sheaf in sorted(recordings.items()):
        for sensor in form.sensors:
            if sensor not in sheaf.files:
                other_sensors = ", ".join(sorted(map(str, sheaf.files)))
                raise DataError(
                    f"{source}: {name}: no file of the sensor {sensor!r:.60}, got {other_sensors};"
                    " record with it, or describe other channels"
                )
