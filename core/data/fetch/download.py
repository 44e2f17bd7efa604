"""One file over HTTPS into a file, and the one file of an archive that is wanted.

It is resumed after any interruption, bounded and checked, then it gets its name.

What has come lies in `.NAME.part` beside the file, and `.NAME.part.json` says of which version it
is (RFC 9110, 13.1.5: `If-Range` continues that version alone). The name appears when size and
SHA-256 are right. A file of an archive is streamed beside it, bounded, and whole or absent.
"""

import http.client
import json
import os
import socket
import ssl
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any
from urllib.parse import urlsplit

from core.data.archive import CHUNK_BYTES, ZIP_DAMAGE, file_digest, one_line, open_zip
from core.data.recordings import Report
from core.ground.errors import ClusterError, DataError
from core.ground.files import atomic_write, read_json
from core.ground.locks import take
from core.ground.waiting import Backoff

SILENCE_SECONDS = 30.0
MOST_FAILURES = 4
PAUSES = Backoff(first_seconds=1.0)
"""Pauses before attempts that follow one without a byte; one that brought some starts from the
first."""
AGENT = "pscluster (recordings for training; one file)"
LONGEST_STATE = 4096

Sleep = Callable[[float], None]


class NotFetchedError(ClusterError):
    """The file could not be had, for now: the network or the server."""


@dataclass(frozen=True)
class RemoteFile:
    """A file: where from, what it must be, and how much is accepted at most.

    None stands for what is not known.
    """

    url: str
    sha256: str | None
    size: int | None
    most_bytes: int


def download(remote_file: RemoteFile, path: Path, report: Report, sleep: Sleep = time.sleep) -> str:
    """Write the file to `path`; return its SHA-256. An earlier call is continued.

    Raises NotFetchedError where the network or the server refuses, and DataError for another
    content than expected, which is removed.
    """
    partial = path.with_name(f".{path.name}.part")
    with opened_alone(partial) as stream:
        for pause in _attempts(partial):
            try:
                _continue(remote_file, partial, stream, report)
                break
            except (OSError, http.client.HTTPException) as problem:
                if pause is None or _for_good(problem):
                    raise _not_fetched(remote_file, path, problem) from None
                if getattr(problem, "code", None) == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
                    _state(partial).unlink(missing_ok=True)  # from the beginning, then
                sleep(pause)
        with _writing(partial):
            os.fsync(stream.fileno())
        digest = file_digest(partial, report)
        if remote_file.sha256 is not None and digest != remote_file.sha256:
            _drop(partial)
            raise DataError(
                f"{remote_file.url}: expected SHA-256 {remote_file.sha256}, got {digest}: the file"
                f" there is another one, or was changed on its way; nothing is kept."
                f" `--sha256 {digest}` accepts it, if you trust it"
            )
        partial.rename(path)
        _state(partial).unlink(missing_ok=True)
    return digest


@contextmanager
def opened_alone(partial: Path) -> Iterator[IO[bytes]]:
    """Open the part that has come, for one process at a time. Raises DataError."""
    try:
        partial.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        stream = os.fdopen(os.open(partial, flags, 0o644), "r+b", buffering=0)
    except OSError as problem:
        raise DataError(
            f"{partial}: cannot be written ({problem.strerror}); choose another folder with --out"
        ) from None
    with stream:
        try:
            take(stream.fileno())
            same = os.path.samestat(os.fstat(stream.fileno()), os.lstat(partial))
        except OSError:
            same = False
        if not same:  # or another fetch has just ended, and given the file its name
            raise DataError(f"{partial}: another fetch writes it now; wait for that one")
        try:
            yield stream
        except BaseException:
            if not os.fstat(stream.fileno()).st_size:
                _drop(partial)  # nothing has come that another call could continue
            raise


def _attempts(partial: Path) -> Iterator[float | None]:
    """Yield the pause after each attempt; None after the last one."""
    failures = 0
    before = partial.stat().st_size
    while True:
        yield PAUSES.seconds(failures + 1) if failures < MOST_FAILURES else None
        size = partial.stat().st_size
        failures = 0 if size > before else failures + 1
        before = size


def _continue(remote_file: RemoteFile, partial: Path, stream: IO[bytes], report: Report) -> None:
    have = os.fstat(stream.fileno()).st_size
    if have:
        version = _version(partial, remote_file.url)
    else:
        version = None
    if remote_file.size is not None and have == remote_file.size:
        return
    if have and version is None:
        have = 0
    request = urllib.request.Request(
        remote_file.url, headers={"User-Agent": AGENT, "Accept-Encoding": "identity"}
    )
    if have and version is not None:
        request.add_header("Range", f"bytes={have}-")
        request.add_header("If-Range", version)
    with _opener(remote_file.url).open(request, timeout=SILENCE_SECONDS) as answer:
        if answer.status != http.client.PARTIAL_CONTENT:
            have = 0
        total = _total(answer, have, remote_file)
        stream.seek(have)
        stream.truncate()
        if not have:
            _remember(partial, remote_file.url, answer.headers)
        done = have
        while chunk := answer.read(CHUNK_BYTES):
            done += len(chunk)
            if done > min(remote_file.most_bytes, total or remote_file.most_bytes):
                _drop(partial)
                raise DataError(
                    f"{remote_file.url}: expected at most"
                    f" {min(remote_file.most_bytes, total or remote_file.most_bytes)} bytes, got"
                    " more: this is not the published file; nothing is kept"
                )
            with _writing(partial):
                write_whole(stream, chunk)
            report("fetching", done, total or 0)
        if total is not None and done < total:
            raise http.client.IncompleteRead(b"", total - done)


def _total(answer: Any, have: int, remote_file: RemoteFile) -> int | None:
    """Return the bytes of the whole file as the server says, None if it does not.

    Raises DataError for another length than expected.
    """
    total = None
    if answer.status == http.client.PARTIAL_CONTENT:
        span = str(answer.headers.get("Content-Range", ""))
        first, _, whole = span.removeprefix("bytes ").partition("/")
        if first.partition("-")[0] != str(have) or not whole.isdecimal():
            raise http.client.HTTPException(f"asked for bytes from {have} on, got {span!r:.60}")
        total = int(whole)
    elif str(answer.headers.get("Content-Length", "")).isdecimal():
        total = int(answer.headers["Content-Length"])
    if total is not None and (
        total > remote_file.most_bytes or remote_file.size not in (None, total)
    ):
        raise DataError(
            f"{remote_file.url}: expected {remote_file.size or f'at most {remote_file.most_bytes}'}"
            f" bytes, the server has {total}: the file there is another one; fetch it by hand and"
            " compare it, `--sha256` accepts it then"
        )
    return total


def write_whole(stream: IO[bytes], chunk: bytes) -> None:
    """Write all of `chunk` to a file without a buffer.

    Such a file takes a part where the disk is nearly full.
    """
    remaining_bytes = memoryview(chunk)
    while remaining_bytes:
        remaining_bytes = remaining_bytes[stream.write(remaining_bytes) :]


@contextmanager
def _writing(partial: Path) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise DataError(
            f"{partial}: cannot be written ({problem.strerror}); free some space, the next call"
            " continues from here"
        ) from None


def _state(partial: Path) -> Path:
    return partial.with_name(f"{partial.name}.json")


def _remember(partial: Path, url: str, headers: Any) -> None:
    """Write down the file's version; a weak tag names none (RFC 9110, 8.8.3)."""
    tag = str(headers.get("ETag", ""))
    if tag.startswith('"'):
        version = tag
    else:
        version = str(headers.get("Last-Modified", ""))
    atomic_write(_state(partial), json.dumps({"url": url, "version": version}).encode())


def _version(partial: Path, url: str) -> str | None:
    """Return the version of what has come.

    None where it is not of this URL, or cannot be continued.
    """
    try:
        state = read_json(_state(partial), LONGEST_STATE)
        version = state["version"] if state["url"] == url else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if isinstance(version, str) and version.isprintable() and version:
        return version
    return None


def _drop(partial: Path) -> None:
    partial.unlink(missing_ok=True)
    _state(partial).unlink(missing_ok=True)


class _SamePlace(urllib.request.HTTPRedirectHandler):
    """Follows a redirect to the same scheme, host and port alone."""

    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Any:
        """Follow a redirect to the same place. Raises DataError for another one."""
        fp.close()
        before = urlsplit(req.full_url)
        after = urlsplit(newurl)
        if (before.scheme, before.netloc) != (after.scheme, after.netloc):
            raise DataError(
                f"{req.full_url}: the server sends us to {after.scheme}://{after.netloc}, which is"
                " another place than the documented one; not followed"
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opener(url: str) -> urllib.request.OpenerDirector:
    """Raises DataError for what is not https; plain http is for this machine alone."""
    address = urlsplit(url)
    if address.scheme != "https" and not (
        address.scheme == "http" and address.hostname == "127.0.0.1"
    ):
        raise DataError(f"{url}: expected an https URL; take one")
    secure = urllib.request.HTTPSHandler(context=ssl.create_default_context())
    return urllib.request.build_opener(secure, _SamePlace())


def _for_good(problem: Exception) -> bool:
    """Whether another attempt would end the same way."""
    if isinstance(problem, urllib.error.HTTPError):
        problem.close()
        return problem.code < 500 and problem.code not in (408, 416, 425, 429)
    return isinstance(
        getattr(problem, "reason", None), ssl.SSLCertVerificationError | socket.gaierror
    )


def _not_fetched(remote_file: RemoteFile, path: Path, problem: Exception) -> NotFetchedError:
    reason = getattr(problem, "reason", None) or problem
    cause = (
        " ".join(str(getattr(reason, "strerror", None) or reason).split())[:120]
        or type(problem).__name__
    )
    if isinstance(problem, urllib.error.HTTPError):
        cause = f"the server answers {problem.code} {cause}"
    return NotFetchedError(
        f"{remote_file.url}: cannot be fetched ({cause}); try again, it continues from here; or"
        f" fetch it on a machine that has a network and put it at {path}"
    )


WHOLE_ARCHIVE = 4
"""Factor of the bound of one file for all of the archive: HHAR has four tables in one."""


def unpack(archive: Path, member: str, path: Path, most_bytes: int, report: Report) -> None:
    """Write the archive's file of this name, in whatever folder it lies there, to `path`.

    Raises DataError.
    """
    with (
        archive.open("rb") as stream,
        open_zip(stream, str(archive), WHOLE_ARCHIVE * most_bytes) as opened,
    ):
        entries = [
            info for info in opened.infolist() if PurePosixPath(info.filename).name == member
        ]
        entries = [info for info in entries if not info.filename.startswith("__MACOSX/")]
        if len(entries) != 1:
            raise DataError(
                f"{archive}: expected one {member}, got {len(entries)}; fetch the archive again"
            )
        if entries[0].file_size > most_bytes:
            raise DataError(
                f"{archive}: {entries[0].filename} unpacks to {entries[0].file_size} bytes, more"
                f" than {most_bytes}; do not trust this archive"
            )
        _write(opened, entries[0], path, report)


def _write(opened: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path, report: Report) -> None:
    done = 0
    partial = path.with_name(f".{path.name}.part")
    with opened_alone(partial) as target:
        try:
            target.truncate(0)  # what a killed process left
            with opened.open(info) as source:
                while chunk := source.read(CHUNK_BYTES):
                    done += len(chunk)
                    if done > info.file_size:
                        raise DataError(
                            f"{opened.filename}: {info.filename}: longer than it says; do not"
                            " trust it"
                        )
                    write_whole(target, chunk)
                    report("unpacking", done, info.file_size)
            os.fsync(target.fileno())
            partial.rename(path)
        except ZIP_DAMAGE as problem:
            raise DataError(
                f"{path}: cannot be unpacked ({one_line(problem)}); free some space, or fetch the"
                " archive again"
            ) from None
        finally:
            partial.unlink(missing_ok=True)
