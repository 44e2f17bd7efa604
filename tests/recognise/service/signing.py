"""Certificates that no service made."""

import datetime
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


def named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


@dataclass(frozen=True)
class Signer:
    """Who signs, with which key."""

    name: x509.Name
    key: ec.EllipticCurvePrivateKey

    def certificate(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        extension: x509.ExtensionType,
        days: tuple[int, int] = (-1, 1),
    ) -> x509.Certificate:
        """Sign for the subject; the certificate holds between two days from now."""
        now = datetime.datetime.now(datetime.UTC)
        begin, end = (now + day * DAY for day in days)
        return (
            x509.CertificateBuilder(self.name, subject, key.public_key(), 7)
            .not_valid_before(begin)
            .not_valid_after(end)
            .add_extension(extension, critical=False)
            .sign(self.key, hashes.SHA256())
        )
