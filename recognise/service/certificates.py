"""The certificates that a service makes: an authority that phones trust, and its own of a year.

    FOLDER/authority.pem   the authority's key and certificate, made once
    FOLDER/authority.crt   its certificate alone, for phones
    FOLDER/server.pem      the service's key and certificate, made again 30 days before its end

The authority can sign certificates of servers alone, for this machine's names, `localhost` and the
private addresses that the machine had when it was made: see its name constraints. Even if its key
is stolen, it speaks for no site of the Internet, no router and no other machine of the network.

`python -m recognise.service.certificates FOLDER ADDRESS [NAME...]` makes them on a node in FOLDER,
which is root's, and notes in FOLDER/signed until when they are valid and for which words.
"""

import datetime
import functools
import hashlib
import ipaddress
import logging
import os
import socket
import ssl
import stat
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from core.ground.errors import ClusterError, ExitCode, reason_of
from core.ground.files import NO_LINK, whole_file
from core.ground.locks import locked
from core.logs import say
from recognise.service.addresses import private_addresses

log = logging.getLogger(__name__)

AUTHORITY = "authority.pem"
PUBLIC = "authority.crt"
SERVER = "server.pem"
SIGNED = "signed"
LOCK = ".authority.lock"
AUTHORITY_DAYS = 3650
SERVER_DAYS = 365
"""Apple's systems take at most 825: https://support.apple.com/en-us/103769."""
RENEW_DAYS = 30
EARLIER = datetime.timedelta(days=1)
"""Certificates begin a day ago: a phone's clock may be behind."""
_LARGEST_BYTES = 64 << 10


@dataclass(frozen=True)
class Signed:
    """A certificate with its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def is_valid(self, now: datetime.datetime, days_left: int) -> bool:
        """Return whether it has begun, and ends so many days after `now` or later."""
        end = self.certificate.not_valid_after_utc - datetime.timedelta(days=days_left)
        return self.certificate.not_valid_before_utc <= now < end

    def pem(self) -> bytes:
        """Return key and certificate in one file, so that a crash never leaves one alone."""
        encoding = serialization.Encoding.PEM
        form = serialization.PrivateFormat.PKCS8
        key = self.key.private_bytes(encoding, form, serialization.NoEncryption())
        return key + self.certificate.public_bytes(encoding)

    def names(self) -> list[x509.GeneralName]:
        """Return what an authority may sign for; nothing of one without such a bound."""
        names: list[x509.GeneralName] = []
        try:
            extensions = self.certificate.extensions
            constraints = extensions.get_extension_for_class(x509.NameConstraints).value
        except (x509.ExtensionNotFound, ValueError):
            return names
        for name in constraints.permitted_subtrees or ():
            if isinstance(name, x509.IPAddress):
                name = x509.IPAddress(ipaddress.ip_network(name.value).network_address)
            names.append(name)
        return names


def server_certificate(
    folder: Path, names: Collection[str], now: datetime.datetime | None = None
) -> Path:
    """Return the file with the service's key and certificate.

    It is for the names and addresses of the authority, which is made for `names` and this machine's
    addresses where there is none. `folder` is its owner's alone.

    Raises ClusterError where it cannot be written, or where the authority there cannot be used.
    """
    now = now or datetime.datetime.now(datetime.UTC)
    path = folder / SERVER
    try:
        with locked(folder / LOCK):  # two services may start at one time
            authority = _authority(folder, names, now)
            server = _read(path)
            if server is None or not _is_good(server, authority, now):
                _write(path, _server(authority, now).pem(), 0o600)
                log.info("%s: made a certificate for a year", path)
    except OSError as problem:
        raise ClusterError(
            f"{folder}: cannot keep certificates ({reason_of(problem)}): use another folder"
        ) from None
    for name in {*_names(names)} - {*authority.names()}:
        _warn_once(
            f"{folder / AUTHORITY}: this authority was made before this machine had {name.value},"
            " and may not sign for it: clients there see no trusted certificate; remove the file"
            " for a new authority, which phones have to trust again"
        )
    return path


@functools.cache
def _warn_once(line: str) -> None:
    log.warning("%s", line)


def fingerprint(public: Path) -> str:
    """Return the SHA-256 of the authority's certificate, as phones show it.

    Raises OSError or ValueError.
    """
    der = ssl.PEM_cert_to_DER_cert(public.read_text())
    return hashlib.sha256(der).digest().hex(":").upper()


def _authority(folder: Path, names: Collection[str], now: datetime.datetime) -> Signed:
    """Return the authority of `folder`, which is made once. Raises ClusterError and OSError."""
    path = folder / AUTHORITY
    if not os.path.lexists(path):
        _write(path, _new_authority(_names(names), now).pem(), 0o600)
        log.info("%s: made this service's certificate authority", path)
    authority = _read(path)
    if authority is None or not authority.names():
        raise ClusterError(
            f"{path}: expected an authority that this account made, got another file: remove it for"
            " a new one, which phones have to trust again"
        )
    if not authority.is_valid(now, SERVER_DAYS):
        end = authority.certificate.not_valid_after_utc
        raise ClusterError(
            f"{path}: expected an authority that is valid now and for a year, the clock says"
            f" {now:%Y-%m-%d} and it ends {end:%Y-%m-%d}: set the clock, or remove the file for a"
            " new one, which phones have to trust again"
        )
    public = authority.certificate.public_bytes(serialization.Encoding.PEM)
    if not (folder / PUBLIC).exists() or (folder / PUBLIC).read_bytes() != public:
        _write(folder / PUBLIC, public, 0o644)
    return authority


def _names(names: Collection[str]) -> list[x509.GeneralName]:
    """Return `localhost`, these names and this machine's private addresses."""
    domains = ["localhost", *sorted({name.lower() for name in names})]
    return [*map(x509.DNSName, domains), *map(x509.IPAddress, private_addresses())]


def _is_good(server: Signed, authority: Signed, now: datetime.datetime) -> bool:
    """Return whether the authority signed this certificate, and it does not end soon."""
    try:
        server.certificate.verify_directly_issued_by(authority.certificate)
    except (InvalidSignature, TypeError, ValueError):
        return False
    return server.is_valid(now, RENEW_DAYS)


def _new_authority(names: Sequence[x509.GeneralName], now: datetime.datetime) -> Signed:
    called = f"pscluster on {socket.gethostname()}"[:64]
    subtrees = [
        x509.IPAddress(ipaddress.ip_network(name.value))
        if isinstance(name, x509.IPAddress)
        else name
        for name in names
    ]
    return _signed(
        called,
        None,
        now,
        AUTHORITY_DAYS,
        (x509.BasicConstraints(ca=True, path_length=0), True),
        (_usage(signs_certificates=True), True),
        (x509.NameConstraints(subtrees, None), True),
    )


def _server(authority: Signed, now: datetime.datetime) -> Signed:
    return _signed(
        "pscluster service",
        authority,
        now,
        SERVER_DAYS,
        (x509.SubjectAlternativeName(authority.names()), False),
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_usage(signs_certificates=False), True),
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    signs = signs_certificates
    return x509.KeyUsage(not signs, False, False, False, False, signs, signs, False, False)


def _signed(
    called: str,
    authority: Signed | None,
    now: datetime.datetime,
    days: int,
    *extensions: tuple[x509.ExtensionType, bool],
) -> Signed:
    """Return a new key, certified by the authority, or by itself for None.

    `extensions` are those of its kind, and whether they are critical.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, called)])
    issuer = authority.certificate.subject if authority else subject
    signer = authority.key if authority else key
    builder = (
        x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - EARLIER)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
    )
    for extension, is_critical in extensions:
        builder = builder.add_extension(extension, is_critical)
    return Signed(builder.sign(signer, hashes.SHA256()), key)


def _read(path: Path) -> Signed | None:
    """Return the key and certificate that this account wrote, or None for anything else."""
    try:
        with os.fdopen(os.open(path, NO_LINK), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
                return None
            content = file.read(_LARGEST_BYTES)
        key = serialization.load_pem_private_key(content, None)
        certificate = x509.load_pem_x509_certificate(content)
    except (OSError, ValueError, TypeError):
        return None
    if (
        not isinstance(key, ec.EllipticCurvePrivateKey)
        or certificate.public_key() != key.public_key()
    ):
        return None
    return Signed(certificate, key)


def _write(path: Path, content: bytes, mode: int) -> None:
    with whole_file(path, mode) as file:
        file.write(content)


def main(arguments: Sequence[str]) -> int:
    """Make the certificates of a node, and return the exit code."""
    folder, address, *names = arguments
    host = socket.gethostname()
    try:
        path = server_certificate(Path(folder), (host, f"{host}.local", *names))
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        end = int(certificate.not_valid_after_utc.timestamp())
        _write(Path(folder, SIGNED), f"{' '.join((str(end), address, *names))}\n".encode(), 0o644)
    except (ClusterError, OSError) as problem:
        say(str(problem), error=True)
        return ExitCode.FAILED
    return ExitCode.DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
