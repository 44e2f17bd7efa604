"""TLS of the service, from its own authority or from the operator's files, renewed while it runs.

A context that has loaded a newer certificate shows it to the next connection, so a renewal needs no
restart.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509

from core.control.door import RateLimitedLog
from core.ground.errors import ClusterError, UsageError, reason_of
from recognise.service import certificates

log = logging.getLogger(__name__)

LOOK_SECONDS = 600.0
"""How often the certificate is looked at: it may run out, the files or this machine's addresses may
change."""
_PROTOCOLS = ["http/1.1"]


@dataclass(frozen=True)
class Files:
    """A certificate with those above it, and its key; one file may hold both."""

    certificate: Path
    key: Path

    def marks(self) -> tuple[int, int]:
        """Return marks of the files, which are others after a change."""
        return self.certificate.stat().st_mtime_ns, self.key.stat().st_mtime_ns


class Tls:
    """A context for connections, and what keeps it up to date."""

    def __init__(self, source: Callable[[], Files]) -> None:
        """`source` returns the files that count now.

        Raises ClusterError in one line where they cannot be used.
        """
        self._source = source
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
        self.context.set_alpn_protocols(_PROTOCOLS)
        self._log = RateLimitedLog(log)
        self._marks: tuple[int, int] | None = None
        self.renew()

    def renew(self) -> bool:
        """Load the files if they have changed; return whether they had.

        Raises ClusterError, and what was loaded stays.
        """
        files = self._source()
        try:
            marks = files.marks()
        except OSError as problem:
            where = problem.filename or files.certificate
            raise UsageError(
                f"{where}: cannot be read ({reason_of(problem)}): give a file in PEM format"
            ) from None
        if marks == self._marks:
            return False
        _check(files)
        _load(self.context, files)
        self._marks = marks
        return True

    async def follow(self) -> None:
        """Renew until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                if await asyncio.to_thread(self.renew):
                    log.info("another certificate is shown to new connections")
            except ClusterError as problem:
                self._log.say(f"{problem}; the certificate before stays")


def own(folder: Path, names: Collection[str]) -> Tls:
    """Return TLS with a certificate of the service's authority in `folder`.

    Raises ClusterError.
    """

    def made() -> Files:
        path = certificates.server_certificate(folder, names)
        return Files(path, path)

    return Tls(made)


def given(certificate: str, key: str) -> Tls:
    """Return TLS with the operator's files. Raises UsageError."""
    return Tls(lambda: Files(Path(certificate), Path(key)))


def _check(files: Files) -> None:
    """Raise UsageError for a certificate that no client would take."""
    path = files.certificate
    try:
        first = x509.load_pem_x509_certificates(path.read_bytes())[0]
    except OSError as problem:
        raise UsageError(
            f"{path}: cannot be read ({reason_of(problem)}): give a certificate in PEM format"
        ) from None
    except (ValueError, IndexError):
        raise UsageError(
            f"{path}: expected a certificate in PEM format, got another file"
        ) from None
    now = datetime.now(UTC)
    if not first.not_valid_before_utc <= now < first.not_valid_after_utc:
        raise UsageError(
            f"{path}: expected a certificate that is valid now, {now:%Y-%m-%d}, got one of"
            f" {first.not_valid_before_utc:%Y-%m-%d} to {first.not_valid_after_utc:%Y-%m-%d}:"
            " renew it"
        )


def _load(context: ssl.SSLContext, files: Files) -> None:
    """Load a certificate and its key.

    Another context tries them first: half of a failed pair must not stay in the used one.
    """
    for candidate in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), context):
        try:
            candidate.load_cert_chain(files.certificate, files.key, _no_password)
        except ssl.SSLError as problem:
            reason = (problem.reason or str(problem)).replace("_", " ").lower()
            raise UsageError(
                f"{files.key}: expected the key of {files.certificate}, in PEM format and without a"
                f" password ({reason:.80}): give both files of one pair"
            ) from None
        except OSError as problem:
            raise UsageError(
                f"{files.key}: cannot be read ({reason_of(problem)}): give a key in PEM format"
            ) from None
        except _PasswordWantedError:
            raise UsageError(
                f"{files.key}: expected a key without a password: write it once without"
            ) from None


class _PasswordWantedError(Exception):
    """OpenSSL would ask on the terminal."""


def _no_password() -> str:
    raise _PasswordWantedError
