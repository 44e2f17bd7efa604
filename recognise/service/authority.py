"""The service's own certificate authority: made once in the service's folder, it signs certificates for this machine.

The authority can sign for this machine's name, `localhost`, names that end in `.local` and private addresses alone:
see its name constraints. A phone that trusts it trusts it for no site of the Internet, even if the key is stolen.
"""

import datetime
import fcntl
import logging
import os
import socket
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from cluster.errors import ClusterError, reason_of
from recognise.service.addresses import PRIVATE, private_addresses

log = logging.getLogger(__name__)

AUTHORITY, PUBLIC, SERVER = "authority.pem", "authority.crt", "server.pem"
"""The authority with its key; the same without the key, for phones; the service's certificate with its key."""
AUTHORITY_DAYS = 3650
SERVER_DAYS = 365
"""Apple's systems take at most 825: https://support.apple.com/en-us/103769."""
RENEW_DAYS = 30
EARLIER = datetime.timedelta(days=1)
"""Certificates begin a day ago: a phone's clock may be behind."""
_LOCK = ".authority.lock"


@dataclass(frozen=True)
class Signed:
    """A certificate with its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def pem(self) -> bytes:
        """Key and certificate in one file, so that a crash never leaves one without the other."""
        key = self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return key + self.certificate.public_bytes(serialization.Encoding.PEM)


def server_certificate(folder: Path, names: Collection[str], now: datetime.datetime | None = None) -> Path:
    """The file with a certificate for `names` and this machine's addresses, and its key.

    Makes what is absent, damaged, about to run out or for other names. `folder` is its owner's alone. Raises
    ClusterError where it cannot be written, or where the authority there is no longer usable.
    """
    now = now or datetime.datetime.now(datetime.UTC)
    try:
        with _alone(folder):
            authority = _authority(folder, names, now)
            wanted = _alternatives(authority.certificate, names)
            path = folder / SERVER
            reason = _unfit(path, authority.certificate, wanted, now)
            if reason:
                _write(path, _signed_server(authority, wanted, now).pem(), 0o600)
                log.info("%s: made a certificate (%s) for %s", path, reason, ", ".join(map(_shown, wanted)))
            return path
    except OSError as problem:
        raise ClusterError(f"{folder}: cannot keep certificates ({reason_of(problem)}): use another folder") from None


def fingerprint(folder: Path) -> str:
    """SHA-256 of the authority's certificate, as phones show it. Raises OSError or ValueError."""
    certificate = x509.load_pem_x509_certificate((folder / PUBLIC).read_bytes())
    return certificate.fingerprint(hashes.SHA256()).hex(":").upper()


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Two services may start at one time."""
    descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _authority(folder: Path, names: Collection[str], now: datetime.datetime) -> Signed:
    path = folder / AUTHORITY
    if not path.exists():
        made = _signed_authority(names, now)
        _write(path, made.pem(), 0o600)
        log.info("%s: made this service's certificate authority", path)
    found = _read(path)
    if found is None:
        raise ClusterError(f"{path}: expected a key and a certificate, got another file: remove it for a new authority")
    begin, end = found.certificate.not_valid_before_utc, found.certificate.not_valid_after_utc
    if not begin <= now < end - datetime.timedelta(days=SERVER_DAYS):
        raise ClusterError(
            f"{path}: expected an authority of {begin:%Y-%m-%d} to a year before {end:%Y-%m-%d}, the clock says "
            f"{now:%Y-%m-%d}: set the clock, or remove the file for a new authority"
        )
    public = found.certificate.public_bytes(serialization.Encoding.PEM)
    if not (folder / PUBLIC).exists() or (folder / PUBLIC).read_bytes() != public:
        _write(folder / PUBLIC, public, 0o644)
    return found


def _signed_authority(names: Collection[str], now: datetime.datetime) -> Signed:
    key = ec.generate_private_key(ec.SECP256R1())
    called = f"pscluster on {socket.gethostname()}"[:64]
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, called)])
    domains = ["localhost", "local", *sorted({one.lower() for one in names if not one.lower().endswith(".local")})]
    allowed: list[x509.GeneralName] = [*map(x509.DNSName, domains), *map(x509.IPAddress, PRIVATE)]
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    public = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    made = (
        _begun(name, name, key.public_key(), now, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.NameConstraints(allowed, None), critical=True)
        .add_extension(public, critical=False)
        .sign(key, hashes.SHA256())
    )
    return Signed(made, key)


def _signed_server(authority: Signed, wanted: list[x509.GeneralName], now: datetime.datetime) -> Signed:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "pscluster service")])
    issuer = authority.certificate
    usage = x509.KeyUsage(True, False, False, False, False, False, False, False, False)
    public = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    made = (
        _begun(name, issuer.subject, key.public_key(), now, SERVER_DAYS)
        .add_extension(x509.SubjectAlternativeName(wanted), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(public), critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    return Signed(made, key)


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime.datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - EARLIER)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _alternatives(authority: x509.Certificate, names: Collection[str]) -> list[x509.GeneralName]:
    """What the certificate is for: `localhost`, those names that the authority may sign, private addresses."""
    constraints = authority.extensions.get_extension_for_class(x509.NameConstraints).value
    allowed = {one.value for one in constraints.permitted_subtrees or () if isinstance(one, x509.DNSName)}
    given = sorted({name.lower() for name in names if name.lower() in allowed or name.lower().endswith(".local")})
    return [x509.DNSName("localhost"), *map(x509.DNSName, given), *map(x509.IPAddress, private_addresses())]


def _unfit(
    path: Path, authority: x509.Certificate, wanted: list[x509.GeneralName], now: datetime.datetime
) -> str | None:
    """Why a new certificate is needed; None for one that is still good."""
    found = _read(path)
    if found is None:
        return "there was none"
    certificate = found.certificate
    if certificate.issuer != authority.subject or not _is_signed_by(certificate, authority):
        return "the authority is another one"
    if not certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc - datetime.timedelta(RENEW_DAYS):
        return "the one before runs out"
    has = set(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    return None if set(wanted) <= has else "names or addresses have changed"


def _is_signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, TypeError, ValueError):
        return False
    return True


def _read(path: Path) -> Signed | None:
    """What the file holds; None where that is no key with its certificate."""
    try:
        content = path.read_bytes()
        key = serialization.load_pem_private_key(content, None)
        certificate = x509.load_pem_x509_certificate(content)
    except (FileNotFoundError, ValueError, TypeError):
        return None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or certificate.public_key() != key.public_key():
        return None
    return Signed(certificate, key)


def _write(path: Path, content: bytes, mode: int) -> None:
    """Like `atomic_write`, but no moment goes by in which others may read a key."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.unlink(missing_ok=True)
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def _shown(name: x509.GeneralName) -> str:
    return str(name.value)
