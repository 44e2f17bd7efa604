"""Root's authority of a node's service: made, renewed, and taken over from the account's folder."""

import os
from pathlib import Path

import pytest
from cryptography import x509

from deploy.converge import serving
from recognise.service import authority, certify
from recognise.service.authority import AUTHORITY, PUBLIC, SERVER, server_certificate
from recognise.service.state import made

ADDRESS = "192.168.1.17"


def run(tmp_path: Path, *names: str) -> Path:
    """The folder of root's after one run; the account's is `state`."""
    folder = tmp_path / "root"
    folder.mkdir(exist_ok=True)
    assert certify.main([str(folder), str(tmp_path / "state"), ADDRESS, *names]) == 0
    return folder


def signed(folder: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate((folder / SERVER).read_bytes())


def test_it_signs_and_notes_until_when_and_for_what(tmp_path: Path) -> None:
    folder = run(tmp_path, "har.example.org")
    end, *words = (folder / certify.SIGNED).read_text().split()
    assert int(end) == int(signed(folder).not_valid_after_utc.timestamp())
    assert words == [ADDRESS, "har.example.org"]
    assert {(folder / name).stat().st_mode & 0o777 for name in (AUTHORITY, SERVER)} == {0o600}
    before = (folder / SERVER).read_bytes()
    assert run(tmp_path, "har.example.org") == folder
    assert (folder / SERVER).read_bytes() == before


def test_the_deployment_renews_when_the_authority_does() -> None:
    assert serving.RENEW_DAYS == authority.RENEW_DAYS
    assert serving.SIGNED.endswith(f"/{certify.SIGNED}")


def test_an_authority_of_the_account_becomes_root_s_and_phones_trust_it_still(
    tmp_path: Path,
) -> None:
    state = made(tmp_path / "state")
    server_certificate(state, ("node",))
    (state / "token").write_text("x")
    trusted = (state / PUBLIC).read_bytes()
    folder = run(tmp_path)
    assert (folder / PUBLIC).read_bytes() == trusted
    signed(folder).verify_directly_issued_by(x509.load_pem_x509_certificate(trusted))
    assert os.listdir(state) == ["token"]


@pytest.mark.parametrize("planted", ["a link", "a pipe", "no authority", "a certificate"])
def test_what_the_account_planted_in_its_place_is_gone_and_not_read(
    tmp_path: Path, planted: str
) -> None:
    state = made(tmp_path / "state")
    secret = server_certificate(made(tmp_path / "secret"), ("node",)).with_name(AUTHORITY)
    server_certificate(state, ("node",))
    (state / AUTHORITY).unlink()
    if planted == "a link":
        (state / AUTHORITY).symlink_to(secret)
    elif planted == "a pipe":
        os.mkfifo(state / AUTHORITY)
    elif planted == "a certificate":
        (state / SERVER).rename(state / AUTHORITY)  # with its key, and without constraints
    else:
        (state / AUTHORITY).write_bytes(b"-----BEGIN" * 100_000)
    folder = run(tmp_path)
    assert os.listdir(state) == []
    assert (folder / PUBLIC).read_bytes() != secret.with_name(PUBLIC).read_bytes()
    signed(folder).verify_directly_issued_by(
        x509.load_pem_x509_certificate((folder / PUBLIC).read_bytes())
    )
