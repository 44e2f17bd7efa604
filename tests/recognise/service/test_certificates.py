"""The certificates that a service makes: an authority, its bounds, refusals and renewals."""

import datetime
import hashlib
import ipaddress
import os
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from core.ground.errors import ClusterError
from deploy.converge import serving
from recognise.service import certificates
from recognise.service.addresses import Address
from recognise.service.certificates import (
    AUTHORITY,
    PUBLIC,
    SERVER,
    SERVER_DAYS,
    SIGNED,
    server_certificate,
)
from tests.habits import needs
from tests.recognise.service.signing import Signer, named

NAMES = ("pi3", "pi3.local")
NOW = datetime.datetime(2026, 6, 1, tzinfo=datetime.UTC)
HOME = [ipaddress.ip_address("192.168.1.16"), ipaddress.ip_address("127.0.0.1")]


@pytest.fixture(autouse=True)
def addresses(monkeypatch: pytest.MonkeyPatch) -> list[Address]:
    given = list(HOME)
    monkeypatch.setattr(certificates, "private_addresses", lambda: given)
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
    fingerprint = certificates.fingerprint(tmp_path / PUBLIC).replace(":", "").lower()
    assert fingerprint == hashlib.sha256(der).hexdigest()


def test_a_good_certificate_stays_and_the_authority_is_made_once(tmp_path: Path) -> None:
    first = server_certificate(tmp_path, NAMES, NOW).read_bytes()
    made = (tmp_path / AUTHORITY).read_bytes()
    later = NOW + datetime.timedelta(days=SERVER_DAYS - certificates.RENEW_DAYS - 1)
    assert server_certificate(tmp_path, NAMES, later).read_bytes() == first
    renewed = server_certificate(tmp_path, NAMES, later + datetime.timedelta(days=2))
    assert renewed.read_bytes() != first
    assert read(renewed).not_valid_after_utc > later + datetime.timedelta(days=SERVER_DAYS)
    assert (tmp_path / AUTHORITY).read_bytes() == made


def test_a_damaged_certificate_is_made_again(tmp_path: Path) -> None:
    first = server_certificate(tmp_path, NAMES, NOW).read_bytes()
    (tmp_path / SERVER).write_bytes(first[:300])
    assert alternatives(server_certificate(tmp_path, NAMES, NOW))[-2:] == [
        *("192.168.1.16", "127.0.0.1")
    ]


def test_what_came_after_the_authority_is_not_signed_but_named_once_with_the_remedy(
    tmp_path: Path, addresses: list[Address], caplog: pytest.LogCaptureFixture
) -> None:
    server_certificate(tmp_path, NAMES, NOW)
    addresses[0] = ipaddress.ip_address("192.168.1.99")
    for _ in range(3):
        (tmp_path / SERVER).unlink()
        moved = server_certificate(tmp_path, ("pi3", "example.org"), NOW)
    assert alternatives(moved) == ["localhost", *NAMES, "192.168.1.16", "127.0.0.1"]
    warnings = [entry.message for entry in caplog.records if entry.levelname == "WARNING"]
    assert len(warnings) == 2
    for name, line in zip(("192.168.1.99", "example.org"), sorted(warnings), strict=True):
        assert f"{tmp_path / AUTHORITY}: this authority was made before" in line
        assert f"had {name}, and may not sign for it" in line
        assert "remove the file for a new authority" in line


def test_a_new_authority_signs_a_new_certificate(tmp_path: Path) -> None:
    first = read(server_certificate(tmp_path, NAMES, NOW))
    for name in (AUTHORITY, PUBLIC):
        (tmp_path / name).unlink()
    second = read(server_certificate(tmp_path, NAMES, NOW))
    assert second.public_key() != first.public_key()
    second.verify_directly_issued_by(read(tmp_path / PUBLIC))


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
    monkeypatch.setattr(certificates.Signed, "names", lambda authority: [alternative])
    good.unlink()
    signed = server_certificate(tmp_path, NAMES, now)
    assert verified(tmp_path, signed) == "permitted subtree violation"


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
    usage = x509.KeyUsage(True, False, False, False, False, False, False, False, False)
    signed = Signer(issuer, authority_key).certificate(named("boss"), key, usage)
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


def refused(folder: Path, words: str, now: datetime.datetime = NOW) -> None:
    with pytest.raises(ClusterError) as refusal:
        server_certificate(folder, NAMES, now)
    assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_an_unusable_authority_is_one_line(tmp_path: Path) -> None:
    server_certificate(tmp_path, NAMES, NOW)
    early = datetime.datetime(1970, 1, 2, tzinfo=datetime.UTC)
    refused(tmp_path, "set the clock, or remove the file for a new one", early)
    late = NOW + datetime.timedelta(days=certificates.AUTHORITY_DAYS - SERVER_DAYS + 1)
    refused(tmp_path, "set the clock, or remove the file for a new one", late)
    refused(tmp_path / "nowhere", "cannot keep certificates")


def plant_link(path: Path, other: Path) -> None:
    path.symlink_to(other)


def plant_pipe(path: Path, other: Path) -> None:
    os.mkfifo(path)


def plant_text(path: Path, other: Path) -> None:
    path.write_bytes(b"-----BEGIN" * 100_000)


def plant_unbounded(path: Path, other: Path) -> None:
    """A key with its certificate, which are no authority for some names alone."""
    path.write_bytes(other.with_name(SERVER).read_bytes())


def plant_from_another_account(path: Path, other: Path) -> None:
    needs.root("a file of another account")
    path.write_bytes(other.read_bytes())
    os.chown(path, 1234, 1234)


@pytest.mark.parametrize(
    "plant", [plant_link, plant_pipe, plant_text, plant_unbounded, plant_from_another_account]
)
def test_an_authority_that_this_account_did_not_make_is_refused_and_stays(
    tmp_path: Path, plant: Callable[[Path, Path], None]
) -> None:
    (tmp_path / "other").mkdir()
    server_certificate(tmp_path / "other", NAMES, NOW)
    folder = tmp_path / "own"
    folder.mkdir()
    plant(folder / AUTHORITY, tmp_path / "other" / AUTHORITY)
    refused(folder, "expected an authority that this account made, got another file: remove it")
    assert not {PUBLIC, SERVER} & set(os.listdir(folder))


def test_a_node_notes_until_when_and_for_which_words(tmp_path: Path) -> None:
    words = ("192.168.1.17", "har.example.org")
    assert certificates.main([str(tmp_path), *words]) == 0
    end, *noted = (tmp_path / SIGNED).read_text().split()
    assert int(end) == int(read(tmp_path / SERVER).not_valid_after_utc.timestamp())
    assert noted == [*words]
    assert "har.example.org" in alternatives(tmp_path / SERVER)
    assert serving.RENEW_DAYS == certificates.RENEW_DAYS
    assert serving.SIGNED.endswith(f"/{SIGNED}")


def test_a_node_that_cannot_be_certified_fails_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert certificates.main([str(tmp_path / "nowhere"), "192.168.1.17"]) == 1
    assert "cannot keep certificates" in capsys.readouterr().err
