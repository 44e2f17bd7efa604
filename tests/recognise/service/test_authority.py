"""The service's own certificate authority: its files, its certificates, their renewal."""

import datetime
import hashlib
import ipaddress
import ssl
import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from core.errors import ClusterError
from recognise.service import authority
from recognise.service.addresses import Address
from recognise.service.authority import AUTHORITY, PUBLIC, SERVER, SERVER_DAYS, server_certificate

NAMES = ("pi3", "pi3.local")
NOW = datetime.datetime(2026, 6, 1, tzinfo=datetime.UTC)
HOME = [ipaddress.ip_address("192.168.1.16"), ipaddress.ip_address("127.0.0.1")]


@pytest.fixture(autouse=True)
def addresses(monkeypatch: pytest.MonkeyPatch) -> list[Address]:
    given = list(HOME)
    monkeypatch.setattr(authority, "private_addresses", lambda: given)
    return given


def read(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def alternatives(path: Path) -> list[str]:
    found = read(path).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(one.value) for one in found]


def test_keys_are_for_the_owner_alone_and_the_certificate_is_for_this_machine(
    tmp_path: Path,
) -> None:
    path = server_certificate(tmp_path, NAMES, NOW)
    modes = {name: (tmp_path / name).stat().st_mode & 0o777 for name in (AUTHORITY, PUBLIC, SERVER)}
    assert modes == {AUTHORITY: 0o600, PUBLIC: 0o644, SERVER: 0o600}
    assert b"PRIVATE" not in (tmp_path / PUBLIC).read_bytes()
    assert alternatives(path) == ["localhost", "pi3", "pi3.local", "192.168.1.16", "127.0.0.1"]
    assert {path.name for path in tmp_path.iterdir()} == {*modes, ".authority.lock"}
    der = ssl.PEM_cert_to_DER_cert((tmp_path / PUBLIC).read_text())
    fingerprint = authority.fingerprint(tmp_path / PUBLIC).replace(":", "").lower()
    assert fingerprint == hashlib.sha256(der).hexdigest()


def test_a_good_certificate_stays_and_the_authority_is_made_once(tmp_path: Path) -> None:
    first = server_certificate(tmp_path, NAMES, NOW).read_bytes()
    made = (tmp_path / AUTHORITY).read_bytes()
    later = NOW + datetime.timedelta(days=SERVER_DAYS - authority.RENEW_DAYS - 1)
    assert server_certificate(tmp_path, NAMES, later).read_bytes() == first
    renewed = server_certificate(tmp_path, NAMES, later + datetime.timedelta(days=2))
    assert renewed.read_bytes() != first
    assert read(renewed).not_valid_after_utc > later + datetime.timedelta(days=SERVER_DAYS)
    assert (tmp_path / AUTHORITY).read_bytes() == made


def test_another_address_or_a_damaged_file_makes_a_new_certificate(
    tmp_path: Path, addresses: list[Address]
) -> None:
    first = server_certificate(tmp_path, NAMES, NOW).read_bytes()
    addresses.pop(0)
    assert server_certificate(tmp_path, NAMES, NOW).read_bytes() == first  # one less is no reason
    (tmp_path / SERVER).write_bytes(first[:300])
    without = server_certificate(tmp_path, NAMES, NOW)
    assert alternatives(without)[-2:] == ["pi3.local", "127.0.0.1"]
    addresses.insert(0, HOME[0])
    again = server_certificate(tmp_path, NAMES, NOW)
    assert alternatives(again)[-2:] == ["192.168.1.16", "127.0.0.1"]


def test_an_address_that_came_later_is_named_once_with_the_remedy(
    tmp_path: Path, addresses: list[Address], caplog: pytest.LogCaptureFixture
) -> None:
    server_certificate(tmp_path, NAMES, NOW)
    addresses.insert(0, ipaddress.ip_address("192.168.1.99"))
    for _ in range(3):
        moved = server_certificate(tmp_path, NAMES, NOW)
    assert alternatives(moved)[-2:] == ["192.168.1.16", "127.0.0.1"]
    (warning,) = [one.message for one in caplog.records if one.levelname == "WARNING"]
    assert "192.168.1.99" in warning
    assert f"{tmp_path / AUTHORITY}" in warning
    assert "remove the file for a new authority" in warning


def test_a_new_authority_signs_a_new_certificate(tmp_path: Path) -> None:
    first = read(server_certificate(tmp_path, NAMES, NOW))
    for name in (AUTHORITY, PUBLIC):
        (tmp_path / name).unlink()
    second = read(server_certificate(tmp_path, NAMES, NOW))
    assert second.public_key() != first.public_key()
    second.verify_directly_issued_by(read(tmp_path / PUBLIC))


def test_the_authority_signs_no_name_that_it_was_not_made_for(tmp_path: Path) -> None:
    server_certificate(tmp_path, NAMES, NOW)
    (tmp_path / SERVER).unlink()
    renamed = server_certificate(tmp_path, ("example.org", "other.local"), NOW)
    assert alternatives(renamed) == ["localhost", "192.168.1.16", "127.0.0.1"]


@pytest.mark.parametrize("name", ["example.org", "8.8.8.8", "192.168.1.1", "nas.local"])
def test_openssl_refuses_what_a_stolen_key_signs_for_a_site_or_another_machine(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = datetime.datetime.now(datetime.UTC)
    good = server_certificate(tmp_path, NAMES, now)
    assert verified(tmp_path, good) == "OK"
    alternative = (
        x509.IPAddress(ipaddress.ip_address(name)) if name[0].isdecimal() else x509.DNSName(name)
    )
    monkeypatch.setattr(authority, "_alternatives", lambda *_: [alternative])
    assert (
        verified(tmp_path, server_certificate(tmp_path, NAMES, now))
        == "permitted subtree violation"
    )


@pytest.mark.parametrize("purpose", ["sslclient", "smimesign"])
def test_openssl_refuses_what_a_stolen_key_signs_for_a_person_or_a_client(
    tmp_path: Path, purpose: str
) -> None:
    now = datetime.datetime.now(datetime.UTC)
    server_certificate(tmp_path, NAMES, now)
    content = (tmp_path / AUTHORITY).read_bytes()
    authority_key = serialization.load_pem_private_key(content, None)
    assert isinstance(authority_key, ec.EllipticCurvePrivateKey)
    issuer = x509.load_pem_x509_certificate(content).subject
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "boss")])
    usage = x509.KeyUsage(True, False, False, False, False, False, False, False, False)
    signed = (
        x509.CertificateBuilder(issuer, name, key.public_key(), 7)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(usage, critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    path = tmp_path / "theirs.pem"
    path.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    words = ("openssl", "verify", "-purpose", purpose, "-CAfile", tmp_path / PUBLIC, path)
    done = subprocess.run(words, capture_output=True, text=True, timeout=30)
    assert done.returncode != 0
    assert "certificate purpose" in done.stderr


def verified(folder: Path, certificate: Path) -> str:
    """What OpenSSL's strict verification says."""
    words = ("openssl", "verify", "-x509_strict", "-purpose", "sslserver", "-CAfile")
    done = subprocess.run(
        [*words, folder / PUBLIC, certificate], capture_output=True, text=True, timeout=30
    )
    if done.returncode == 0:
        return done.stdout.strip().rpartition(" ")[2]
    return done.stderr.split(": ")[1].split("\n")[0]


def test_an_unusable_authority_is_one_line(tmp_path: Path) -> None:
    def refused(said: str, folder: Path = tmp_path, now: datetime.datetime = NOW) -> None:
        with pytest.raises(ClusterError, match=said):
            server_certificate(folder, NAMES, now)

    server_certificate(tmp_path, NAMES, NOW)
    early = datetime.datetime(1970, 1, 2, tzinfo=datetime.UTC)
    refused("set the clock, or remove the file for a new authority", now=early)
    (tmp_path / AUTHORITY).write_text("nothing")
    refused("expected a key and a certificate, got another file")
    refused("cannot keep certificates", tmp_path / "nowhere")
