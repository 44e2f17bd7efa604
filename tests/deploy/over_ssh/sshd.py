"""A real sshd on a loopback port, started by the tests, in which the account that runs them may log in with one key."""

import getpass
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from deploy.cluster.address import SshAddress
from tests.habits import needs
from tools import debian_tools

ACCOUNT = "pscluster-tester"
"""An account that may not use sudo, known to one sshd alone."""

_UP_SECONDS = 20.0
_ACCOUNTS = 'cp /etc/passwd "$0/passwd" && echo "$1" >>"$0/passwd" && mount --bind "$0/passwd" /etc/passwd && shift'
_OVERLAYS = """set -e
mount -t tmpfs none "$0"
for file in hosts hostname resolv.conf; do  # often mounts, which an overlay does not show
    [ ! -e "/etc/$file" ] || cp -L "/etc/$file" "$0/$file"
done
for folder in usr etc; do
    mkdir -p "$0/$folder/upper" "$0/$folder/work"
    layers="lowerdir=$1/$folder:/$folder,upperdir=$0/$folder/upper,workdir=$0/$folder/work"
    mount -t overlay -o "$layers" overlay "/$folder"
done
find "$0" -maxdepth 1 -type f -exec cp {} /etc ';'
grep -q ^sshd: /etc/passwd || echo sshd:x:64321:65534::/run/sshd:/usr/sbin/nologin >>/etc/passwd
for part in /usr/bin/sudo /usr/lib/sudo /usr/libexec/sudo /etc/sudoers /etc/sudoers.d; do
    [ ! -e "$part" ] || chown -R root:root "$part"
done
chmod 4755 /usr/bin/sudo
shift
exec "$@"
"""
"""Lays unpacked programs over this machine's own, in a mount namespace: `sudo` and an sshd of root's look for their
parts at fixed places, and sudo needs a right that no unpacked program has."""


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


def needs_sudo() -> None:
    """Skips where the account that runs the tests cannot become root on its own sshd."""
    needs.sudo()
    needs.possible(_no_sudo())


@cache
def _no_sudo() -> str:
    with tempfile.TemporaryDirectory() as scratch:
        words = [*_with_unpacked(Path(scratch)), "sudo", "-n", "true"]
        asked = subprocess.run(words, capture_output=True, stdin=subprocess.DEVNULL, check=False, text=True)
    assert asked.returncode == 0 or asked.stderr.startswith("sudo:"), asked.stderr
    return asked.stderr.strip()


def _with_unpacked(folder: Path) -> tuple[str, ...]:
    """What a command begins with that finds unpacked programs at their places; nothing where none is needed."""
    root = debian_tools.unpacked()
    if root is None or os.geteuid() != 0 or all(map(debian_tools.installed, ("sshd", "sudo"))):
        return ()
    needs.overlay()
    return ("unshare", "--mount", "sh", "-c", _OVERLAYS, str(folder), str(root))


def new_key(path: Path) -> None:
    subprocess.run([needs.tool("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)


@contextmanager
def running_sshd(
    folder: Path, *options: str, wrapper: Sequence[str] = (), hosts: Sequence[str] = ("127.0.0.1",)
) -> Iterator[Sshd]:
    """An sshd with a host key and an authorized key made in `folder`, started by the command line `wrapper`."""
    server = needs.tool("sshd")
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
    words = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
    words += [word for host in hosts for word in ("-o", f"ListenAddress={host}:{port}")]
    words += [word for option in options for word in ("-o", option)]
    with tempfile.TemporaryDirectory() as scratch, (folder / "sshd.log").open("ab") as log:
        outer = _with_unpacked(Path(scratch))
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        process = subprocess.Popen(
            [*outer, *wrapper, "/usr/sbin/sshd" if outer else server, "-D", "-e", "-f", "/dev/null", *words],
            stderr=log,
            stdin=subprocess.DEVNULL,
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
    needs.sudo()
    needs.mount_namespace()
    script = f'{_ACCOUNTS} && exec "$@"'
    account = f"{ACCOUNT}:*:54321:54321::/:/bin/sh"
    # A command reads the key, as root: the account may not look into the tests' folder.
    keys = f"AuthorizedKeysCommand=/bin/cat {folder}/user_key.pub"
    wrapper = ("unshare", "--mount", "sh", "-c", script, str(folder), account)
    with running_sshd(folder, keys, "AuthorizedKeysCommandUser=root", wrapper=wrapper) as server:
        yield server
