"""A login that fails names its own cause; what is not known is quoted, with no cause."""

import base64
import getpass
import os
import re
import signal
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from paramiko import AuthenticationException

from deploy.cluster.connection import NodeConnection
from deploy.cluster.connector import NodeUnreachableError
from deploy.cluster.keys import Offer
from deploy.cluster.login import PinnedKeys, SshAddress
from deploy.cluster.openssh import Route
from deploy.cluster.refusals import Login, LoginRefusedError, ServersWords, why
from tests.deploy.over_ssh.nodes import session_of, trusting
from tests.deploy.over_ssh.sshd import Sshd, new_key, running_sshd
from tests.deploy.playing import eventually
from tests.habits import needs

ME = getpass.getuser()
FALSE_CAUSES = ("is it switched on", "does the machine hang")


def public_half(folder: Path) -> Path:
    new_key(folder / "key")
    return folder / "key.pub"


def of_putty(folder: Path) -> Path:
    path = folder / "key.ppk"
    path.write_text("PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\n")
    return path


def of_a_security_key(folder: Path) -> Path:
    def text(*values: bytes) -> bytes:
        return b"".join(struct.pack(">I", len(value)) + value for value in values)

    public = text(b"sk-ssh-ed25519@openssh.com", b"\1" * 32, b"ssh:")
    private = struct.pack(">II", 7, 7) + public + b"\1" + text(b"handle", b"", b"comment")
    private += bytes(range(1, 1 + -len(private) % 8))
    header = b"openssh-key-v1\0" + text(b"none", b"none", b"") + struct.pack(">I", 1)
    lines = base64.encodebytes(header + text(public, private)).decode()
    return armoured(folder, lines)


def armoured(folder: Path, lines: str) -> Path:
    path = folder / "key"
    path.write_text(
        f"-----BEGIN OPENSSH PRIVATE KEY-----\n{lines}-----END OPENSSH PRIVATE KEY-----\n"
    )
    path.chmod(0o600)
    return path


def keygen(*words: str) -> None:
    subprocess.run([needs.tool("ssh-keygen"), "-q", *words], check=True, stdout=subprocess.DEVNULL)


def with_passphrase(folder: Path, *form: str) -> Path:
    keygen(*form, "-N", "secret", "-f", f"{folder}/key")
    return folder / "key"


def older_with_passphrase(folder: Path) -> Path:
    return with_passphrase(folder, "-t", "rsa", "-b", "2048", "-m", "PEM")


def newer_with_passphrase(folder: Path) -> Path:
    return with_passphrase(folder, "-t", "ed25519")


def a_folder(folder: Path) -> Path:
    (folder / "key").mkdir()
    return folder / "key"


def damaged(folder: Path) -> Path:
    return armoured(folder, "AAAA\n")


LOCKED = r"the private key has a passphrase: load it into the agent \(`ssh-add .*`\)"
KEYS = [
    (public_half, r"is the public half of a key: name the private one"),
    (of_putty, r"is a key of PuTTY: `puttygen .* -O private-openssh"),
    (of_a_security_key, r"belongs to a security key, with which `fab` cannot log in"),
    (older_with_passphrase, LOCKED),
    (newer_with_passphrase, LOCKED),
    (a_folder, r"is a folder: name the file of a private key in `ssh.key`"),
    (damaged, r"cannot be used as a private key: \S.*; name another one in `ssh.key`"),
]


@pytest.fixture(autouse=True)
def no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


@pytest.mark.parametrize(("made", "said"), KEYS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_file_that_is_no_private_key(
    made: Callable[[Path], Path], said: str, sshd: Sshd, pinned: PinnedKeys, tmp_path: Path
) -> None:
    (tmp_path / "keys").mkdir()
    node = NodeConnection(sshd.address(key=str(made(tmp_path / "keys"))), pinned)
    with pytest.raises(NodeUnreachableError, match=said) as caught:
        node.run(["true"])
    assert len(str(caught.value).splitlines()) == 1
    assert not any(cause in str(caught.value) for cause in FALSE_CAUSES)


def test_no_key_at_all(sshd: Sshd, pinned: PinnedKeys, tmp_path: Path) -> None:
    address = sshd.address(key=None)
    # The first-day case: none of OpenSSH's usual files exists.
    address.__dict__["route"] = Route(
        "127.0.0.1", sshd.port, ME, (tmp_path / "id_rsa",), None, False, ()
    )
    with pytest.raises(
        NodeUnreachableError, match=r"no key to log in with: .*ssh-add FILE.*ssh-keygen -t ed25519"
    ):
        NodeConnection(address, pinned).run(["true"])


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], None]]:
    """A real agent; what it is called with is loaded."""
    place = tmp_path / "agent.sock"
    with subprocess.Popen(
        [needs.tool("ssh-agent"), "-D", "-a", str(place)], stdout=subprocess.DEVNULL
    ) as process:

        def load(key: Path) -> None:
            words = [str(needs.tool("ssh-add")), "-q", str(key)]
            subprocess.run(words, check=True, stdin=subprocess.DEVNULL)

        try:
            eventually(place.exists, "the agent's socket")
            monkeypatch.setenv("SSH_AUTH_SOCK", str(place))
            yield load
        finally:
            process.terminate()


def test_too_many_keys_of_an_agent_and_the_remedy(
    agent: Callable[[Path], None], sshd: Sshd, pinned: PinnedKeys, tmp_path: Path
) -> None:
    for number in range(7):
        new_key(tmp_path / f"key{number}")
        agent(tmp_path / f"key{number}")
    agent(sshd.user_key)
    with pytest.raises(
        NodeUnreachableError,
        match=r"ended it after \d keys \(.*[Tt]oo many.*\): name the right key",
    ):
        NodeConnection(sshd.address(key=None), pinned).run(["true"])
    named = NodeConnection(sshd.address(), pinned)
    assert named.run(["true"]).ok
    named.close()


def locked(sshd: Sshd, folder: Path) -> Path:
    """The user's key, with a passphrase."""
    path = folder / "locked"
    path.write_bytes(sshd.user_key.read_bytes())
    path.chmod(0o600)
    keygen("-p", "-P", "", "-N", "secret", "-f", str(path))
    return path


def public_alone(sshd: Sshd, folder: Path) -> Path:
    """Its public half, whose other half is not there."""
    (folder / "key.pub").write_bytes(sshd.user_key.with_suffix(".pub").read_bytes())
    return folder / "key"


@pytest.mark.parametrize("named", [locked, public_alone])
def test_an_agent_opens_what_the_named_file_alone_does_not(
    agent: Callable[[Path], None],
    named: Callable[[Sshd, Path], Path],
    sshd: Sshd,
    pinned: PinnedKeys,
    tmp_path: Path,
) -> None:
    agent(sshd.user_key)
    node = NodeConnection(sshd.address(key=str(named(sshd, tmp_path))), pinned)
    assert node.run(["true"]).ok
    node.close()


@pytest.mark.parametrize("named", [False, True], ids=["beside the key", "of the configuration"])
@pytest.mark.parametrize(
    ("person", "known"),
    [(None, "key.pub"), (ME, "authority.pub")],
    ids=["the key is known", "the authority is known"],
)
def test_a_certificate_is_offered_and_then_the_key_alone(
    tmp_path: Path, person: str | None, known: str, named: bool
) -> None:
    for name in ("authority", "key"):
        new_key(tmp_path / name)
    key = tmp_path / "key"
    keygen("-s", f"{tmp_path}/authority", "-I", "me", "-n", person or "nobody-else", f"{key}.pub")
    certificates: tuple[Path, ...] = ()
    if named:
        certificates = ((tmp_path / "key-cert.pub").rename(tmp_path / "elsewhere.pub"),)
    with running_sshd(tmp_path) as server:
        taken = (tmp_path / known).read_text()
        if person is not None:
            taken = f"cert-authority {taken}"
        server.user_key.with_suffix(".pub").write_text(taken)
        address = server.address(key=str(key))
        address.__dict__["route"] = Route(
            "127.0.0.1", server.port, ME, (key,), None, True, (), certificates=certificates
        )
        node = NodeConnection(address, trusting(tmp_path, server))
        assert node.run(["true"]).ok
        node.close()


def test_the_node_s_own_words_stand_in_the_refusal(tmp_path: Path) -> None:
    (tmp_path / "banner").write_text("System is booting up.\nPlease come back later.\n")
    new_key(tmp_path / "stranger")
    with running_sshd(tmp_path, f"Banner={tmp_path}/banner") as server:
        address = server.address(key=f"{tmp_path}/stranger")
        said = (
            "it says: System is booting up. Please come back later.; if it does not know the key"
            f".*`ssh-copy-id -p {server.port} {ME}@127.0.0.1`$"
        )
        with pytest.raises(NodeUnreachableError, match=said):
            NodeConnection(address, trusting(tmp_path, server)).run(["true"])


def test_a_session_that_is_slow_to_open(tmp_path: Path) -> None:
    with running_sshd(tmp_path) as server:
        node = NodeConnection(server.address(connect_seconds=1.0), trusting(tmp_path, server))
        session = session_of(node)
        os.kill(session, signal.SIGSTOP)
        try:
            with pytest.raises(
                NodeUnreachableError, match=r"no session within 1 s .* raise `ssh.connect_seconds`"
            ):
                node.run(["true"])
        finally:
            os.kill(session, signal.SIGCONT)
            node.close()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            ConnectionRefusedError(111, "Connection refused"),
            r"nothing listens at port \d+; is SSH on",
        ),
        (TimeoutError("timed out"), r"timed out; is it switched on, and is the address right\?"),
        (OSError(113, "No route to host"), r"No route to host; is it switched on"),
        (
            socket.gaierror(-2, "Name or service not known"),
            r"the name '127.0.0.1' has no address; is it right\?",
        ),
        (
            OSError("the moon is in the wrong house"),
            "^no connection: the moon is in the wrong house$",
        ),
    ],
)
def test_what_is_known_of_a_connection_is_its_cause(error: OSError, said: str, sshd: Sshd) -> None:
    assert re.search(said, why(error, sshd.address(), None))


def login_that_fails(words: str, active: bool) -> None:
    """Offer a key to a server that fails it with these words."""

    def refuse(*_: object) -> None:
        raise AuthenticationException(words)

    transport: Any = SimpleNamespace(auth_publickey=refuse, is_active=lambda: active)
    address = SshAddress("pi", "192.168.1.16", "pi", 22, None, 1.0)
    Login(address, ServersWords("played"))._accepted(transport, Offer("key", None))


def test_a_login_without_an_answer_keeps_its_cause() -> None:
    with pytest.raises(AuthenticationException, match="timeout"):
        login_that_fails("Authentication timeout.", active=True)


def test_no_further_key_goes_to_a_server_that_hung_up() -> None:
    with pytest.raises(LoginRefusedError, match=r"offered: key\)"):
        login_that_fails("Authentication failed.", active=False)
