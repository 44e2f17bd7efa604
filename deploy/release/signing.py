"""The operator's signature over what a node installs, and the key that makes it.

A statement is one text of all that counts: a key, and the name, SHA-256 and size of each file. The
node builds the same text from what its script is about to install, and asks `ssh-keygen -Y verify`
whether the signer that root pinned there has signed it.
"""

import os
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from core.errors import ClusterError, UsageError
from core.user_cache import user_state

if TYPE_CHECKING:
    from core.inventory.sections import Deployment

NAMESPACE = "pscluster-release"
SIGNER = "operator"
KEY_NAME = "release_key"
"""In the account's state folder: the key of an inventory without `deployment.signing_key`."""
_SECONDS = 60.0
"""Longest for one signature: an agent may ask a person first."""


def environment_statement(key: str, files: str) -> str:
    """Return what is signed for an environment; `files` as `deploy.rooted.commands.listed`."""
    return f"pscluster environment {key}\n{files}"


def release_statement(key: str, sha256: str, environment: str) -> str:
    """Return what is signed for a release: its code wheel's hash, and its environment."""
    return f"pscluster release {key} {sha256} {environment}"


def signer_statement(allowed: str) -> str:
    """Return what a former signer signs to hand over to the one of the line `allowed`."""
    return f"pscluster signer {allowed}"


@dataclass(frozen=True)
class Signatures:
    """What one deployment brings of its signer; by default nothing, which a node refuses."""

    allowed: str = ""
    """The signer as a line of an allowed-signers file (ssh-keygen(1))."""
    handover: str = ""
    """The former signer's signature over `allowed`."""
    by_statement: Mapping[str, str] = field(default_factory=dict)

    def of(self, statement: str) -> str:
        """Return the signature over a statement; empty without one."""
        return self.by_statement.get(statement, "")


@dataclass(frozen=True)
class Signer:
    """A key that signs: a private key's file, or the public half of one that the agent holds."""

    path: Path

    @classmethod
    def of(cls, deployment: "Deployment") -> "Signer":
        """Return the inventory's signer, else this account's own, made once. Raises UsageError."""
        if deployment.signing_key is None:
            return cls(_own_key())
        return cls.named("deployment.signing_key", deployment.signing_key)

    @classmethod
    def named(cls, setting: str, path: str) -> "Signer":
        """Return the signer of a file that the inventory names. Raises UsageError."""
        file = Path(path).expanduser()
        if not file.is_file():
            raise UsageError(f"{setting}: {file}: no such file: name a private key, or its .pub")
        return cls(file)

    def allowed(self) -> str:
        """Return the line of an allowed-signers file that accepts this key. Raises UsageError."""
        half = self.path
        if half.suffix != ".pub":
            half = half.with_name(f"{half.name}.pub")
        try:
            text = half.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            text = self._asked(["-y", "-P", "", "-f", str(self.path)])
        words = text.split()
        if len(words) < 2:
            raise UsageError(f"{half}: expected an OpenSSH public key: `ssh-keygen -y` writes one")
        return f'{SIGNER} namespaces="{NAMESPACE}" {words[0]} {words[1]}'

    def sign(self, statement: str) -> str:
        """Return the armoured signature over a statement. Raises UsageError."""
        return self._asked(["-Y", "sign", "-n", NAMESPACE, "-f", str(self.path)], statement)

    def signatures(self, statements: Iterable[str], former: "Signer | None" = None) -> Signatures:
        """Sign all that one deployment brings; with `former` hand over from that signer."""
        allowed = self.allowed()
        handover = ""
        if former is not None:
            handover = former.sign(signer_statement(allowed))
        return Signatures(allowed, handover, {each: self.sign(each) for each in statements})

    def _asked(self, words: list[str], stdin: str = "") -> str:
        done = _ssh_keygen(words, stdin)
        if done.returncode == 0:
            return done.stdout.strip()
        said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise UsageError(
            f"{self.path} cannot sign: {said}; a key with a passphrase has to be in the agent"
            f" (`ssh-add {self.path}`)"
        )


def signatures_for(deployment: "Deployment", statements: Iterable[str]) -> Signatures:
    """Sign what a deployment brings with the signer of its inventory. Raises UsageError."""
    former = None
    if deployment.former_signing_key is not None:
        former = Signer.named("deployment.former_signing_key", deployment.former_signing_key)
    return Signer.of(deployment).signatures(statements, former)


def _own_key() -> Path:
    path = user_state() / KEY_NAME
    if path.is_file():
        return path
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    made = _ssh_keygen(["-q", "-t", "ed25519", "-N", "", "-C", NAMESPACE, "-f", str(path)])
    if made.returncode != 0 and not path.is_file():  # another `fab` may have made it by now
        said = " ".join(made.stderr.split())
        raise ClusterError(f"{path}: the key that signs releases cannot be made: {said}")
    return path


def _ssh_keygen(words: list[str], stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run ssh-keygen without a terminal: it would wait there for a passphrase."""
    try:
        return subprocess.run(
            ["ssh-keygen", *words],
            input=stdin,
            env={**os.environ, "LC_ALL": "C", "SSH_ASKPASS_REQUIRE": "never"},
            start_new_session=True,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
            text=True,
        )
    except FileNotFoundError:
        raise ClusterError(
            "no program `ssh-keygen` here: expected OpenSSH's client, `sudo apt install"
            " openssh-client`"
        ) from None
    except subprocess.TimeoutExpired:
        raise ClusterError(f"ssh-keygen did not answer within {_SECONDS:.0f} s") from None
