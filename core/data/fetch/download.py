"""One file over HTTPS.

It is resumed after any interruption, bounded and checked, then it gets its name.

What has come lies in `.NAME.part` beside the file. Its hash alone says whether it is the right one:
a part that does not continue to it is of another version, and is fetched again from the beginning.
"""

import http.client
import os
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from core.data.archive import CHUNK_BYTES, DIGEST_SUFFIX, file_digest, one_line
from core.data.recordings import Report
from core.ground.errors import ClusterError, DataError
from core.ground.files import atomic_write
from core.ground.locks import take
from core.ground.waiting import Backoff

SILENCE_SECONDS = 30.0
MOST_FAILURES = 4
PAUSES = Backoff(first_seconds=1.0)
"""Pauses before attempts that follow one without a byte; one that brought some starts from the
first."""
AGENT = "pscluster (recordings for training; one file)"

Sleep = Callable[[float], None]


class NotFetchedError(ClusterError):
    """The file could not be had, for now: the network or the server."""


@dataclass(frozen=True)
class PublishedSet:
    """One file at one URL, with the hash that it must have.

    `file` is the name that the search for recordings knows; `most_bytes` bounds what is accepted;
    `size` is exact, None where it is not known.
    """

    name: str
    url: str
    file: str
    sha256: str
    most_bytes: int
    size: int | None = None


def bring(published: PublishedSet, path: Path, report: Report, sleep: Sleep = time.sleep) -> None:
    """Write the set's file to `path`, and its hash beside it. An earlier call is continued.

    Raises NotFetchedError where the network or the server refuses, and DataError for another
    content than expected, which is removed.
    """
    partial = part_of(path)
    with opened_alone(partial) as stream:
        _download(published, stream, path, report, sleep)
        # The hash first: the file never stands there without one.
        beside = path.with_name(path.name + DIGEST_SUFFIX)
        atomic_write(beside, f"{published.sha256}  {path.name}\n".encode(), "give another --out")
        partial.rename(path)


def part_of(path: Path) -> Path:
    """Return where what has come of a file lies."""
    return path.with_name(f".{path.name}.part")


@contextmanager
def opened_alone(partial: Path) -> Iterator[FileIO]:
    """Open the part that has come, for one process at a time. Raises DataError."""
    try:
        partial.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        stream = FileIO(partial, "r+", opener=lambda name, _: os.open(name, flags, 0o644))
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
            if not _size(stream):
                partial.unlink(missing_ok=True)  # nothing that another call could continue
            raise


def _size(stream: FileIO) -> int:
    return os.fstat(stream.fileno()).st_size


def _download(
    published: PublishedSet, stream: FileIO, path: Path, report: Report, sleep: Sleep
) -> None:
    """Bring what has come to the hash of the set. Raises ClusterError."""
    partial = part_of(path)
    digest = file_digest(partial, report)
    while digest != published.sha256:
        was_continued = _size(stream) > 0
        for pause in _attempts(stream):
            try:
                was_continued = _receive(published, stream, report) and was_continued
                break
            except (OSError, http.client.HTTPException) as problem:
                if getattr(problem, "code", None) == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
                    break
                if pause is None or _for_good(problem):
                    raise _not_fetched(published, path, problem) from None
                sleep(pause)
        with _writing(partial):
            os.fsync(stream.fileno())
        digest = file_digest(partial, report)
        if digest != published.sha256:
            stream.truncate(0)
            if not was_continued:
                raise DataError(
                    f"{published.url}: expected SHA-256 {published.sha256}, got {digest}: the file"
                    " there is another one, or was changed on its way; nothing is kept."
                    f" `--sha256 {digest}` accepts it, if you trust it"
                )


def _attempts(stream: FileIO) -> Iterator[float | None]:
    """Yield the pause after each attempt; None after the last one."""
    failures = 0
    before = _size(stream)
    while True:
        yield PAUSES.seconds(failures + 1) if failures < MOST_FAILURES else None
        if _size(stream) > before:
            failures = 0
        else:
            failures = failures + 1
        before = _size(stream)


def _receive(published: PublishedSet, stream: FileIO, report: Report) -> bool:
    """Append what is missing, and return whether the server continued what had come."""
    done = _size(stream)
    request = urllib.request.Request(
        published.url, headers={"User-Agent": AGENT, "Accept-Encoding": "identity"}
    )
    if done:
        request.add_header("Range", f"bytes={done}-")
    with _opener(published.url).open(request, timeout=SILENCE_SECONDS) as answer:
        is_continued: bool = answer.status == http.client.PARTIAL_CONTENT
        if not is_continued:
            done = 0
        total = _total(answer, done, published)
        stream.truncate(done)
        stream.seek(done)
        while chunk := answer.read(CHUNK_BYTES):
            done += len(chunk)
            if done > published.most_bytes:
                stream.truncate(0)
                raise DataError(
                    f"{published.url}: expected at most {published.most_bytes} bytes, got more:"
                    " this is not the published file; nothing is kept"
                )
            write_whole(stream, chunk)
            report("fetching", done, total or 0)
        if total is not None and done < total:
            raise http.client.IncompleteRead(b"", total - done)
    return is_continued


def _total(answer: Any, have: int, published: PublishedSet) -> int | None:
    """Return the bytes of the whole file as the server says, None if it does not.

    Raises DataError for another length than expected.
    """
    total = str(answer.headers.get("Content-Length", ""))
    if answer.status == http.client.PARTIAL_CONTENT:
        span = str(answer.headers.get("Content-Range", ""))
        first, _, total = span.removeprefix("bytes ").partition("/")
        if first.partition("-")[0] != str(have) or not total.isdecimal():
            raise http.client.HTTPException(f"asked for bytes from {have} on, got {span!r:.60}")
    if not total.isdecimal():
        return None
    if int(total) > published.most_bytes or published.size not in (None, int(total)):
        raise DataError(
            f"{published.url}: expected {published.size or f'at most {published.most_bytes}'}"
            f" bytes, the server has {total}: the file there is another one; fetch it by hand and"
            " compare it, `--sha256` accepts it then"
        )
    return int(total)


def write_whole(stream: FileIO, chunk: bytes) -> None:
    """Write all of `chunk` to a file without a buffer. Raises DataError.

    Such a file takes a part where the disk is nearly full.
    """
    remaining_bytes = memoryview(chunk)
    with _writing(stream.name):
        while remaining_bytes:
            remaining_bytes = remaining_bytes[stream.write(remaining_bytes) :]


@contextmanager
def _writing(path: object) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise DataError(
            f"{path}: cannot be written ({problem.strerror}); free some space, the next call"
            " continues from here"
        ) from None


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


def _not_fetched(published: PublishedSet, path: Path, problem: Exception) -> NotFetchedError:
    reason = getattr(problem, "reason", None) or problem
    cause = one_line(getattr(reason, "strerror", None) or reason)[:120] or type(problem).__name__
    if isinstance(problem, urllib.error.HTTPError):
        cause = f"the server answers {problem.code} {cause}"
    return NotFetchedError(
        f"{published.url}: cannot be fetched ({cause}); try again, it continues from here; or"
        f" fetch it on a machine that has a network and put it at {path}"
    )
