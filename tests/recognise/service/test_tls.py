"""The service over TLS: handshakes, refusals, and a certificate that changes."""

import socket
import ssl
import subprocess
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from core.ground.errors import UsageError
from recognise.service import tls
from recognise.service.certificates import AUTHORITY, PUBLIC
from recognise.service.limits import Limits
from tests.recognise.service.exports import export, windows
from tests.recognise.service.running import PATH, Service, as_json, served
from tests.recognise.service.signing import Signer, named

EXPORT = export
WORDS = ("--tls",)


def trusting(running: Service) -> ssl.SSLContext:
    """As a phone that has the service's authority."""
    return ssl.create_default_context(cafile=str(running.folder / PUBLIC))


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_client_that_trusts_the_authority_gets_answers(running: Service, host: str) -> None:
    client = httpx.Client(verify=trusting(running), headers=running.headers, timeout=30)
    with client:
        found = client.post(f"https://{host}:{running.port}{PATH}/infer", json=as_json(windows(1)))
    assert found.status_code == 200


def test_no_older_version_of_the_protocol(running: Service) -> None:
    words = ("openssl", "s_client", "-tls1_1", "-connect", f"127.0.0.1:{running.port}")
    old = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=30)
    assert old.returncode != 0


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x00\x05hello",
        b"\x00" * 4096,
    ],
    ids=["http", "damaged", "zeros"],
)
def test_what_is_no_tls_is_closed(running: Service, sent: bytes) -> None:
    with running.connected() as connection:
        connection.sendall(sent)
        assert b"HTTP" not in until_closed(connection)
    assert answers(running)


def test_handshakes_that_never_end_keep_nobody_out(running: Service) -> None:
    with ExitStack() as stack:
        silent = [
            stack.enter_context(running.connected()) for _ in range(Limits().connections + 20)
        ]
        assert answers(running)
        assert until_closed(silent[0]) == b""  # the oldest made room
        assert until_closed(silent[-1]) == b""  # its time was over


def until_closed(connection: socket.socket) -> bytes:
    received = b""
    try:
        while more := connection.recv(4096):
            received += more
    except ConnectionResetError:
        pass
    return received


def answers(running: Service) -> bool:
    address = f"https://127.0.0.1:{running.port}/v2/health/live"
    return httpx.get(address, verify=trusting(running), timeout=30).status_code == 200


def pair(folder: Path, name: str = "own", begin: int = -1, end: int = 1) -> tuple[Path, Path]:
    """A self-signed certificate of `begin` to `end` days from now, and its key."""
    folder.mkdir(exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = named(name)
    localhost = x509.SubjectAlternativeName([x509.DNSName("localhost")])
    made = Signer(subject, key).certificate(subject, key, localhost, (begin, end))
    certificate = folder / f"{name}.crt"
    secret = folder / f"{name}.key"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    secret.write_bytes(as_pem(key, serialization.NoEncryption()))
    return certificate, secret


def as_pem(key: ec.EllipticCurvePrivateKey, how: serialization.KeySerializationEncryption) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how)


def test_a_certificate_of_one_s_own(tmp_path: Path) -> None:
    certificate, key = pair(tmp_path / "own")
    words = ("--certificate", str(certificate), "--key", str(key))
    with served(tmp_path, *words) as running:
        context = ssl.create_default_context(cafile=str(certificate))
        address = f"https://localhost:{running.port}/v2/health/live"
        assert httpx.get(address, verify=context).status_code == 200
        assert not (running.folder / AUTHORITY).exists()


def test_a_renewed_certificate_is_shown_without_a_restart(tmp_path: Path) -> None:
    first = pair(tmp_path, "first")
    second = pair(tmp_path, "second")
    now = [tls.Files(*first)]
    made = tls.Tls(lambda: now[0])
    assert shown(made.context) == first[0].read_text()
    assert made.renew() is False
    now[0] = tls.Files(*second)
    assert made.renew() is True
    assert shown(made.context) == second[0].read_text()
    now[0] = tls.Files(first[0], second[1])
    with pytest.raises(UsageError, match="expected the key of"):
        made.renew()
    assert shown(made.context) == second[0].read_text()


def shown(context: ssl.SSLContext) -> str:
    """The certificate that a handshake in memory shows."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    there = ssl.MemoryBIO()
    back = ssl.MemoryBIO()
    one = client.wrap_bio(back, there)
    other = context.wrap_bio(there, back, server_side=True)
    done: set[ssl.SSLObject] = set()
    while len(done) < 2:
        for side in {one, other} - done:
            try:
                side.do_handshake()
                done.add(side)
            except ssl.SSLWantReadError:
                continue
    certificate = one.getpeercert(binary_form=True)
    assert certificate is not None
    return ssl.DER_cert_to_PEM_cert(certificate)


def test_files_that_cannot_be_used_are_one_line_each(tmp_path: Path) -> None:
    certificate, key = pair(tmp_path)
    _, other = pair(tmp_path, "other")
    over, of_over = pair(tmp_path, "over", -3, -1)
    early, of_early = pair(tmp_path, "early", 1, 3)
    secret = tmp_path / "secret.key"
    nothing = tmp_path / "nothing"
    loaded = ec.generate_private_key(ec.SECP256R1())
    secret.write_bytes(as_pem(loaded, serialization.BestAvailableEncryption(b"word")))
    nothing.write_bytes(b"nothing")
    for given, words in {
        (tmp_path / "nowhere", key): "nowhere: cannot be read (No such file or directory)",
        (certificate, tmp_path / "nowhere"): "nowhere: cannot be read (No such file or directory)",
        (tmp_path, key): "cannot be read (Is a directory)",
        (nothing, key): "nothing: expected a certificate in PEM format, got another file",
        (key, key): "own.key: expected a certificate in PEM format, got another file",
        (certificate, nothing): "nothing: expected the key of",
        (certificate, other): "other.key: expected the key of",
        (certificate, secret): "secret.key: expected a key without a password",
        (over, of_over): "over.crt: expected a certificate that is valid now",
        (early, of_early): "early.crt: expected a certificate that is valid now",
    }.items():
        with pytest.raises(UsageError) as refused:
            tls.given(*map(str, given))
        assert words in str(refused.value)
        assert "\n" not in str(refused.value)
