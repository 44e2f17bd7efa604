"""The keys that a login offers, in OpenSSH's order, and why one of them cannot be used."""

import socket
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.ground.children import finished
from core.ground.errors import reason_of
from deploy.cluster.openssh import Route

if TYPE_CHECKING:
    from paramiko import PKey

FINGERPRINT_SECONDS = 10.0
_PUBLIC = (b"ssh-", b"ecdsa-", b"sk-")
_PUTTY = b"PuTTY-User-Key-File"


@dataclass(frozen=True)
class Offer:
    """One key, and how a message names it."""

    label: str
    key: Any


class UnusableKeyError(Exception):
    """A file that no login can use; the text names the file, the reason and the remedy."""


def offers(route: Route, agent: "Agent") -> Iterator[Offer | UnusableKeyError]:
    """Yield the keys in the order in which `ssh` tries them.

    A file that cannot be used is an error in its place.

    The agent's keys that a file of the route belongs to come first, then its other keys, then the
    files. A file that does not exist is left out: OpenSSH's usual names are among them. Its public
    half says which key of the agent it is.
    """
    files = [path for path in route.keys if path.exists()]
    agent_keys = {key.fingerprint: key for key in agent.keys}
    halves = {
        path: path if path.exists() else path.with_name(f"{path.name}.pub") for path in route.keys
    }
    if agent_keys:
        of_file = {
            path: fingerprint_of_file(half) for path, half in halves.items() if half.exists()
        }
    else:
        of_file = {}
    named = [agent_keys[print_] for print_ in of_file.values() if print_ in agent_keys]
    for key in named:
        yield key.offer
    if not route.only_these:
        for key in agent.keys:
            if key not in named:
                yield key.offer
    for path in files:
        if of_file.get(path) in agent_keys:
            continue
        try:
            for certificate in _certificates_of(path, route):
                yield Offer(str(certificate), load_key(path, certificate))
            yield Offer(str(path), load_key(path))
        except UnusableKeyError as problem:
            yield problem


def _certificates_of(path: Path, route: Route) -> list[Path]:
    """Return the key's certificates: that beside it, and those of the configuration, as `ssh` does.

    A certificate of another key is left out.
    """
    certificates = [
        certificate
        for certificate in (path.with_name(f"{path.name}-cert.pub"), *route.certificates)
        if certificate.exists()
    ]
    if certificates:
        print_ = fingerprint_of_file(path)
    else:
        print_ = None
    return [
        certificate
        for certificate in dict.fromkeys(certificates)
        if print_ is not None and fingerprint_of_file(certificate) == print_
    ]


def load_key(path: Path, certificate: Path | None = None) -> "PKey":
    """Return the private key in a file, with the certificate if one is given.

    Raises UnusableKeyError.
    """
    from paramiko import PasswordRequiredException, PKey

    try:
        content = path.read_bytes()
    except IsADirectoryError:
        raise UnusableKeyError(
            f"{path} is a folder: name the file of a private key in `ssh.key`"
        ) from None
    except OSError as error:
        raise UnusableKeyError(
            f"{path} cannot be read: {reason_of(error)}; correct `ssh.key`"
        ) from None
    if content.startswith(_PUBLIC):
        raise UnusableKeyError(
            f"{path} is the public half of a key: name the private one in `ssh.key`"
        )
    if content.startswith(_PUTTY):
        raise UnusableKeyError(
            f"{path} is a key of PuTTY: `puttygen {path} -O private-openssh -o NEW` converts it;"
            " name NEW in `ssh.key`"
        )
    described = _described(path)
    if described.endswith("-SK)"):
        raise UnusableKeyError(
            f"{path} belongs to a security key, with which `fab` cannot log in: name another key in"
            " `ssh.key`"
        )
    try:
        key = PKey.from_path(str(path))
        key.public_blob = (
            None  # of a file beside it: a server that does not know its authority may know the key
        )
        if certificate is not None:
            key.load_certificate(str(certificate))
        return key
    except PasswordRequiredException:
        problem = "needs its passphrase"
    except Exception as error:  # of `cryptography`, which has kinds of its own
        problem = reason_of(error)
    if _is_encrypted(content, problem):
        raise UnusableKeyError(
            f"{path}: the private key has a passphrase: load it into the agent (`ssh-add {path}`)"
        )
    raise UnusableKeyError(
        f"{path} cannot be used as a private key: {problem}; name another one in `ssh.key`"
    )


def _is_encrypted(content: bytes, problem: str) -> bool:
    if b"ENCRYPTED" in content:  # the two older formats have this word in clear
        return True
    message = problem.lower()
    return "password" in message or "passphrase" in message


def fingerprint_of_file(path: Path) -> str | None:
    """Return a key's `SHA256:...`, without need of a passphrase; None where `ssh-keygen` fails."""
    columns = _described(path).split()
    if len(columns) > 1:
        return columns[1]
    return None


def _described(path: Path) -> str:
    """Return `256 SHA256:... comment (ED25519)` of a file; empty where `ssh-keygen` cannot say."""
    try:
        command_line = ["ssh-keygen", "-l", "-E", "sha256", "-f", str(path)]
        keygen = finished(command_line, seconds=FINGERPRINT_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    if keygen.code == 0:
        return keygen.output.strip()
    return ""


@dataclass(frozen=True, eq=False)
class AgentKey:
    """A key that an agent holds."""

    fingerprint: str
    offer: Offer


class Agent:
    """The agent of one route, asked when it is opened. It holds nothing where there is none."""

    def __init__(self, keys: Sequence[AgentKey], connected: Any = None) -> None:
        self.keys = tuple(keys)
        self._connected = connected

    @classmethod
    def at(cls, path: Path | None, connect_seconds: float) -> "Agent":
        """Connect to an agent's socket; one that does not answer holds nothing, as for `ssh`."""
        from paramiko import SSHException
        from paramiko.agent import AgentSSH

        from deploy.cluster.login import fingerprint

        if path is None:
            return cls(())
        connected = socket.socket(socket.AF_UNIX)
        connected.settimeout(connect_seconds)
        client = AgentSSH()
        try:
            connected.connect(str(path))
            client._connect(connected)
        except (OSError, SSHException):
            connected.close()
            return cls(())
        keys = [
            AgentKey(fingerprint(key), Offer(f"{key.comment or key.get_name()} of the agent", key))
            for key in client.get_keys()
        ]
        return cls(keys, connected)

    def close(self) -> None:
        """Disconnect from the agent."""
        if self._connected is not None:
            self._connected.close()
