"""The service's own certificate authority, which signs certificates for this machine.

The authority can sign certificates of servers alone, for this machine's names, `localhost` and the
private addresses that the machine had when it was made: see its name constraints. Even if its key
is stolen, it speaks for no site of the Internet, no router and no other machine of the network.
"""

import datetime
import functools
import ipaddress
import logging
import socket
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from core.atomic_write import whole_file
from core.errors import ClusterError, reason_of
from recognise.service.addresses import private_addresses
from recognise.service.state import locked

log = logging.getLogger(__name__)

AUTHORITY = "authority.pem"
PUBLIC = "authority.crt"
SERVER = "server.pem"
"""The authority with its key; the same without the key, for phones; the service's certificate with
its key."""
AUTHORITY_DAYS = 3650
SERVER_DAYS = 365
"""Apple's systems take at most 825: https://support.apple.com/en-us/103769."""
RENEW_DAYS = 30
EARLIER = datetime.timedelta(days=1)
"""Certificates begin a day ago: a phone's clock may be behind."""
LOCK = ".authority.lock"


@dataclass(frozen=True)
class Signed:
    """A certificate with its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def pem(self) -> bytes:
        """Return key and certificate in one file, so that a crash never leaves one alone."""
        key = self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        return key + self.certificate.public_bytes(serialization.Encoding.PEM)


def server_certificate(
    folder: Path, names: Collection[str], now: datetime.datetime | None = None
) -> Path:
    """Return the file with a certificate for `names` and this machine's addresses, and its key.

    Makes what is absent, damaged, about to run out or for other names. `folder` is its owner's
    alone. Raises ClusterError where it cannot be written, or where the authority there is no longer
    usable.
    """
    now = now or datetime.datetime.now(datetime.UTC)
    try:
        with locked(folder / LOCK):  # two services may start at one time
            authority = _authority(folder, names, now)
            wanted = _alternatives(authority.certificate, names)
            path = folder / SERVER
            _warn_of(_unsigned(wanted), folder)
            reason = _unfit(path, authority.certificate, wanted, now)
            if reason:
                _write(path, _signed_server(authority, wanted, now).pem(), 0o600)
                log.info(
                    "%s: made a certificate (%s) for %s",
                    path,
                    reason,
                    ", ".join(map(_shown, wanted)),
                )
            return path
    except OSError as problem:
        raise ClusterError(
            f"{folder}: cannot keep certificates ({reason_of(problem)}): use another folder"
        ) from None


def _warn_of(addresses: Sequence[str], folder: Path) -> None:
    """Say which addresses came after the authority, once a run."""
    for address in addresses:
        _log_once(
            f"{folder / AUTHORITY}: this authority was made before this machine had {address}, and"
            " may not sign for it: clients there see no trusted certificate; remove the file for a"
            " new authority, which phones have to trust again"
        )


@functools.cache
def _log_once(line: str) -> None:
    log.warning("%s", line)


def fingerprint(public: Path) -> str:
    """Return the SHA-256 of the authority's certificate, as phones show it.

    Raises OSError or ValueError.
    """
    certificate = x509.load_pem_x509_certificate(public.read_bytes())
    return certificate.fingerprint(hashes.SHA256()).hex(":").upper()


def _authority(folder: Path, names: Collection[str], now: datetime.datetime) -> Signed:
    path = folder / AUTHORITY
    if not path.exists():
        made = _signed_authority(names, now)
        _write(path, made.pem(), 0o600)
        log.info("%s: made this service's certificate authority", path)
    found = _read(path)
    if found is None:
        raise ClusterError(
            f"{path}: expected a key and a certificate, got another file: remove it for a new"
            " authority"
        )
    begin = found.certificate.not_valid_before_utc
    end = found.certificate.not_valid_after_utc
    if not begin <= now < end - datetime.timedelta(days=SERVER_DAYS):
        raise ClusterError(
            f"{path}: expected an authority of {begin:%Y-%m-%d} to a year before {end:%Y-%m-%d},"
            f" the clock says {now:%Y-%m-%d}: set the clock, or remove the file for a new authority"
        )
    public = found.certificate.public_bytes(serialization.Encoding.PEM)
    if not (folder / PUBLIC).exists() or (folder / PUBLIC).read_bytes() != public:
        _write(folder / PUBLIC, public, 0o644)
    return found


def _signed_authority(names: Collection[str], now: datetime.datetime) -> Signed:
    key = ec.generate_private_key(ec.SECP256R1())
    called = f"pscluster on {socket.gethostname()}"[:64]
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, called)])
    domains = ["localhost", *sorted({one.lower() for one in names})]
    addresses = map(ipaddress.ip_network, private_addresses())
    allowed: list[x509.GeneralName] = [
        *map(x509.DNSName, domains),
        *map(x509.IPAddress, addresses),
    ]
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    public = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    made = (
        _begun(name, name, key.public_key(), now, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.NameConstraints(allowed, None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(public, critical=False)
        .sign(key, hashes.SHA256())
    )
    return Signed(made, key)


def _signed_server(
    authority: Signed, wanted: list[x509.GeneralName], now: datetime.datetime
) -> Signed:
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
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(public), critical=False
        )
        .sign(authority.key, hashes.SHA256())
    )
    return Signed(made, key)


def _begun(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime.datetime,
    days: int,
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
    """Return `localhost`, and the names and private addresses that this authority may sign."""
    constraints = authority.extensions.get_extension_for_class(x509.NameConstraints).value
    allowed = constraints.permitted_subtrees or ()
    domains = [one.value for one in allowed if isinstance(one, x509.DNSName)]
    kinds = (ipaddress.IPv4Network, ipaddress.IPv6Network)
    networks = [one.value for one in allowed if isinstance(one.value, kinds)]
    given = sorted({name.lower() for name in names if _is_below(name.lower(), domains)})
    addresses = [one for one in private_addresses() if any(one in network for network in networks)]
    return [
        x509.DNSName("localhost"),
        *map(x509.DNSName, given),
        *map(x509.IPAddress, addresses),
    ]


def _is_below(name: str, domains: Collection[str]) -> bool:
    """Say whether a name is one of the domains or in one, as name constraints are read."""
    return any(name == domain or name.endswith(f".{domain}") for domain in domains)


def _unsigned(wanted: Collection[x509.GeneralName]) -> list[str]:
    """Return this machine's private addresses that a certificate is not for."""
    signed = {one.value for one in wanted}
    return [str(one) for one in private_addresses() if one not in signed]


def _unfit(
    path: Path, authority: x509.Certificate, wanted: list[x509.GeneralName], now: datetime.datetime
) -> str | None:
    """Return why a new certificate is needed, or None for one that is still good."""
    found = _read(path)
    if found is None:
        return "there was none"
    certificate = found.certificate
    if certificate.issuer != authority.subject or not _is_signed_by(certificate, authority):
        return "the authority is another one"
    if (
        not certificate.not_valid_before_utc
        <= now
        < certificate.not_valid_after_utc - datetime.timedelta(RENEW_DAYS)
    ):
        return "the one before runs out"
    has = set(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    if set(wanted) <= has:
        return None
    return "names or addresses have changed"


def _is_signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, TypeError, ValueError):
        return False
    return True


def _read(path: Path) -> Signed | None:
    """Return what the file holds, or None where that is no key with its certificate."""
    try:
        return parsed(path.read_bytes())
    except FileNotFoundError:
        return None


def parsed(content: bytes) -> Signed | None:
    """Return key and certificate of a text, or None where it is no key with its certificate."""
    try:
        key = serialization.load_pem_private_key(content, None)
        certificate = x509.load_pem_x509_certificate(content)
    except (ValueError, TypeError):
        return None
    if (
        not isinstance(key, ec.EllipticCurvePrivateKey)
        or certificate.public_key() != key.public_key()
    ):
        return None
    return Signed(certificate, key)


def adopt(folder: Path, content: bytes) -> bool:
    """Make an authority from elsewhere the one of `folder`, unless it has one.

    Return whether it is one that can sign for some names alone. Raises OSError.
    """
    found = parsed(content)
    if found is None or (folder / AUTHORITY).exists():
        return False
    try:
        found.certificate.extensions.get_extension_for_class(x509.NameConstraints)
    except (x509.ExtensionNotFound, ValueError):
        return False
    _write(folder / AUTHORITY, found.pem(), 0o600)
    return True


def _write(path: Path, content: bytes, mode: int) -> None:
    with whole_file(path, mode) as file:
        file.write(content)


def _shown(name: x509.GeneralName) -> str:
    return str(name.value)
