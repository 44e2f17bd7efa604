"""A real sshd on a loopback port, started by the tests, in which the account that runs them may log in with one key."""

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from deploy.remote.address import SshAddress

ACCOUNT = "pscluster-tester"
"""An account that may not use sudo, known to one sshd alone."""

_UP_SECONDS = 20.0


@dataclass(frozen=True)
class Sshd:
    """One server; `folder` holds its keys."""

    port: int
    folder: Path

    @property
    def user_key(self) -> Path:
        return self.folder / "user_key"

    def address(self, name: str = "node", **changes: object) -> SshAddress:
        given = {
            "name": name,
            "host": "127.0.0.1",
            "user": getpass.getuser(),
            "port": self.port,
            "key": str(self.user_key),
            "connect_seconds": 10.0,
        }
        return SshAddress(**(given | changes))  # type: ignore[arg-type]


def why_not() -> str:
    """Why no sshd can be started here, empty when one can."""
    if shutil.which("sshd", path="/usr/sbin:/sbin:/usr/bin") is None:
        return "no sshd here: apt-get install openssh-server"
    return ""


def no_sudo() -> str:
    """Why the account that runs the tests cannot become root on its own sshd, empty when it can."""
    if shutil.which("sudo") is None:
        return "no sudo here: apt-get install sudo"
    asked = subprocess.run(["sudo", "-n", "true"], capture_output=True, stdin=subprocess.DEVNULL, check=False)
    return "" if asked.returncode == 0 else "sudo asks for a password here"


def new_key(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)


@contextmanager
def running_sshd(
    folder: Path, *options: str, wrapper: Sequence[str] = (), hosts: Sequence[str] = ("127.0.0.1",)
) -> Iterator[Sshd]:
    """An sshd with a host key and an authorized key made in `folder`, started by the command line `wrapper`."""
    for name in ("host_key", "user_key"):
        if not (folder / name).exists():
            new_key(folder / name)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {
        "HostKey": str(folder / "host_key"),
        "AuthorizedKeysFile": str(folder / "user_key.pub"),
        "PidFile": "none",
        "StrictModes": "no",
        "UsePAM": "no",
        "PasswordAuthentication": "no",
        "PermitRootLogin": "prohibit-password",
    }
    Path("/run/sshd").mkdir(exist_ok=True)
    words = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
    words += [word for host in hosts for word in ("-o", f"ListenAddress={host}:{port}")]
    words += [word for option in options for word in ("-o", option)]
    server = shutil.which("sshd", path="/usr/sbin:/sbin:/usr/bin")
    assert server is not None
    with (folder / "sshd.log").open("ab") as log:
        process = subprocess.Popen(
            [*wrapper, server, "-D", "-e", "-f", "/dev/null", *words], stderr=log, stdin=subprocess.DEVNULL
        )
    try:
        deadline = time.monotonic() + _UP_SECONDS
        while True:
            assert process.poll() is None, (folder / "sshd.log").read_text()
            assert time.monotonic() < deadline
            with socket.socket() as trial:
                if trial.connect_ex((hosts[-1], port)) == 0:
                    break
            time.sleep(0.02)
        yield Sshd(port, folder)
    finally:
        process.terminate()
        process.wait(10)


GREETING = 'ForceCommand=echo welcome to this Pi; eval "$SSH_ORIGINAL_COMMAND"'
"""An option: every command prints a line more, as with an `echo` in ~/.bashrc."""


@contextmanager
def sshd_with_an_account(folder: Path) -> Iterator[Sshd]:
    """An sshd that knows one account more, without sudo: in a mount namespace of its own, so the machine does not."""
    if os.geteuid() != 0:
        pytest.skip("needs root, for an account that may not use sudo")
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no mount namespace may be made here")
    (folder / "passwd").write_text(f"{Path('/etc/passwd').read_text()}{ACCOUNT}:*:54321:54321::/:/bin/sh\n")
    script = f'mount --bind "{folder}/passwd" /etc/passwd && exec "$@"'
    # A command reads the key, as root: the account may not look into the tests' folder.
    keys = f"AuthorizedKeysCommand=/bin/cat {folder}/user_key.pub"
    wrapper = ("unshare", "-m", "sh", "-c", script, "sh")
    with running_sshd(folder, keys, "AuthorizedKeysCommandUser=root", wrapper=wrapper) as server:
        yield server
