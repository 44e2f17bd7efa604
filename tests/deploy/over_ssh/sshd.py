"""A real sshd on a loopback port, into which the account of the tests may log in with one key."""

import getpass
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from deploy.cluster.login import SshAddress
from tests.habits import needs
from tests.hang import HANG_SECONDS
from tests.ports import free_port
from tools import debian_tools

ACCOUNT = "pscluster-tester"
"""An account that may not use sudo, known to one sshd alone."""

_UP_SECONDS = 20.0
_ACCOUNTS = (
    'cp /etc/passwd "$0/passwd" && echo "$1" >>"$0/passwd" && mount --bind "$0/passwd" /etc/passwd'
    " && shift"
)
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
"""Lays unpacked programs over this machine's own, in a mount namespace: `sudo` and an sshd of
root's look for their parts at fixed places, and sudo needs a right that no unpacked program has."""


@dataclass(frozen=True)
class Sshd:
    """One server; `folder` holds its keys."""

    port: int
    folder: Path
    host: str = "127.0.0.1"

    @property
    def user_key(self) -> Path:
        return self.folder / "user_key"

    def address(self, name: str = "node", **changes: object) -> SshAddress:
        given = {
            "name": name,
            "host": self.host,
            "given_user": getpass.getuser(),
            "given_port": self.port,
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
        asked = subprocess.run(
            words, capture_output=True, stdin=subprocess.DEVNULL, check=False, text=True
        )
    assert asked.returncode == 0 or asked.stderr.startswith("sudo:"), asked.stderr
    return asked.stderr.strip()


def _with_unpacked(folder: Path) -> tuple[str, ...]:
    """What a command begins with that finds unpacked programs at their places."""
    root = debian_tools.unpacked()
    if root is None or os.geteuid() != 0 or all(map(debian_tools.installed, ("sshd", "sudo"))):
        return ()
    needs.overlay()
    return ("unshare", "--mount", "sh", "-c", _OVERLAYS, str(folder), str(root))


def new_key(path: Path) -> None:
    subprocess.run(
        [needs.tool("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True
    )


@contextmanager
def running_sshd(
    folder: Path, *options: str, wrapper: Sequence[str] = (), hosts: Sequence[str] = ("127.0.0.1",)
) -> Iterator[Sshd]:
    """An sshd with a host key and an authorized key in `folder`; `wrapper` starts it."""
    server = str(needs.tool("sshd"))
    for name in ("host_key", "user_key"):
        if not (folder / name).exists():
            new_key(folder / name)
    port = free_port()
    settings = [
        f"HostKey={folder}/host_key",
        f"AuthorizedKeysFile={folder}/user_key.pub",
        "PidFile=none",
        "StrictModes=no",
        "UsePAM=no",
        "PasswordAuthentication=no",
        "PermitRootLogin=prohibit-password",
        *(f"ListenAddress={host}:{port}" for host in hosts),
        *options,
    ]
    with tempfile.TemporaryDirectory() as scratch:
        outer = _with_unpacked(Path(scratch))
        if outer:
            server = "/usr/sbin/sshd"
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        words = [*outer, *wrapper, server, "-D", "-e", "-f", "/dev/null"]
        words += [word for setting in settings for word in ("-o", setting)]
        with listening(words, (hosts[-1], port), folder / "sshd.log"):
            yield Sshd(port, folder, hosts[0])


@contextmanager
def listening(
    words: Sequence[str],
    address: tuple[str, int],
    log: Path,
    environment: Mapping[str, str] | None = None,
) -> Iterator[None]:
    """A server of SSH in a process of its own, from when it takes connections."""
    with log.open("ab") as errors:
        process = subprocess.Popen(words, stderr=errors, stdin=subprocess.DEVNULL, env=environment)
    try:
        deadline = time.monotonic() + _UP_SECONDS
        while True:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline
            with socket.socket() as trial:
                if trial.connect_ex(address) == 0:
                    break
            time.sleep(0.02)
        yield
    finally:
        process.terminate()
        process.wait(HANG_SECONDS)


GREETING = 'ForceCommand=echo welcome to this Pi; eval "$SSH_ORIGINAL_COMMAND"'
"""An option: every command prints a line more, as with an `echo` in ~/.bashrc."""


@contextmanager
def sshd_with_an_account(folder: Path) -> Iterator[Sshd]:
    """An sshd that knows one more account, without sudo, in a mount namespace of its own."""
    needs.sudo()
    needs.mount_namespace()
    script = f'{_ACCOUNTS} && exec "$@"'
    account = f"{ACCOUNT}:*:54321:54321::/:/bin/sh"
    # A command reads the key, as root: the account may not look into the tests' folder.
    keys = f"AuthorizedKeysCommand=/bin/cat {folder}/user_key.pub"
    wrapper = ("unshare", "--mount", "sh", "-c", script, str(folder), account)
    with running_sshd(folder, keys, "AuthorizedKeysCommandUser=root", wrapper=wrapper) as server:
        yield server
