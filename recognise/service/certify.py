"""Root's work for the service of a node: its authority, which the service's account never holds.

`python -m recognise.service.certify FOLDER STATE ADDRESS [NAME...]` makes authority and certificate
in FOLDER, which is root's. STATE is the folder of the service's account: an authority that it made
in an earlier version becomes root's and is gone there.
"""

import os
import socket
import stat
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from cryptography import x509

from core.errors import ClusterError, ExitCode, reason_of
from core.json_file import FOLDER_NO_LINK, NO_LINK
from core.logs.terminal import say
from recognise.service.authority import AUTHORITY, LOCK, PUBLIC, SERVER, adopt, server_certificate

SIGNED = "signed"
"""In the folder: the end of the certificate in seconds of the epoch, and the words it was made for.
"""
_LARGEST_BYTES = 16 << 10


def certify(folder: Path, state: Path, address: str, names: Sequence[str]) -> None:
    """Make what is absent or about to run out, and note until when it is valid.

    Raises ClusterError.
    """
    try:
        take_over(folder, state)
        host = socket.gethostname()
        path = server_certificate(folder, (host, f"{host}.local", *names))
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        end = int(certificate.not_valid_after_utc.timestamp())
        (folder / SIGNED).write_text(f"{' '.join((str(end), address, *names))}\n")
    except OSError as problem:
        raise ClusterError(
            f"{folder}: cannot keep certificates ({reason_of(problem)}): free some space there"
        ) from None


def take_over(folder: Path, state: Path) -> None:
    """Take the authority out of the account's folder, through no link. Raises OSError."""
    try:
        there = os.open(state, FOLDER_NO_LINK)
    except FileNotFoundError:
        return
    try:
        content = _content(there)
        if content and not adopt(folder, content) and not (folder / AUTHORITY).exists():
            say(f"{state / AUTHORITY} is no authority of a service: phones have to trust a new one")
        for name in (AUTHORITY, PUBLIC, SERVER, LOCK):
            with suppress(FileNotFoundError, IsADirectoryError):
                os.unlink(name, dir_fd=there)
    finally:
        os.close(there)


def _content(there: int) -> bytes:
    """Return the authority of the account's folder, empty where that is no plain file."""
    try:
        descriptor = os.open(AUTHORITY, NO_LINK, dir_fd=there)
    except OSError:
        return b""
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return b""
        return file.read(_LARGEST_BYTES)


def main(arguments: Sequence[str]) -> int:
    """Certify, and return the exit code."""
    folder, state, address, *names = arguments
    try:
        certify(Path(folder), Path(state), address, names)
    except ClusterError as problem:
        say(str(problem), error=True)
        return ExitCode.FAILED
    return ExitCode.DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
