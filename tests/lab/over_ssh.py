"""Machines on a lab's switch that user pi's key opens."""

import socket
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from tests.lab.commands import LabError, run
from tests.lab.places import Places

BOOT_SECONDS = 300.0
GREETING_SECONDS = 20.0
USER = "pi"
USER_ID = 1000
HOST_KEY = "ssh_host_ed25519_key"
CONFIGURATION = """\
Host *
    User {user}
    IdentityFile {key}
    IdentitiesOnly yes
    UserKnownHostsFile {known_hosts}
    GlobalKnownHostsFile none
    StrictHostKeyChecking yes
    BatchMode yes
    ConnectTimeout 20
    ServerAliveInterval 20
    LogLevel ERROR
"""


@dataclass(frozen=True)
class Machine:
    """A machine of a running lab. `name` is its host name, too."""

    places: Places
    name: str
    address: str

    @property
    def folder(self) -> Path:
        """Its card or disk, its host key and its console."""
        return self.places.folder(self.name)

    @property
    def console(self) -> str:
        """The output of its kernel or pid 1 since the first boot."""
        return (self.folder / "console.log").read_text(errors="replace")

    @property
    def running(self) -> bool:
        """Whether the power is on."""
        raise NotImplementedError

    def must_be_off(self) -> None:
        """Raises LabError where the power is on."""
        if self.running:
            raise LabError(f"{self.name} is on already: `crash {self.name}` switches it off")

    def reachable(self) -> bool:
        """Whether its sshd greets."""
        try:
            with socket.create_connection((self.address, 22), timeout=1) as connection:
                # Patiently: reconnecting makes sixteen busy nodes busier.
                connection.settimeout(GREETING_SECONDS)
                return connection.recv(4) == b"SSH-"
        except OSError:
            return False

    def wait_until_reachable(self, deadline_seconds: float = BOOT_SECONDS) -> None:
        """Returns when user pi can log in.

        Raises:
            LabError: Not within the deadline; has the last lines of its console.
        """
        deadline = time.monotonic() + deadline_seconds
        ran = False
        while not self.reachable():
            ended = ran and not self.running
            if ended or time.monotonic() > deadline:
                last = " / ".join(self.console.splitlines()[-3:]) or "nothing"
                if ended:
                    when = "its boot ended"
                else:
                    when = f"no login within {deadline_seconds:.0f} s of its boot"
                raise LabError(f"{self.name}: {when}; its console says: {last}")
            ran = ran or self.running
            time.sleep(0.05)


OnSwitch = TypeVar("OnSwitch", bound=Machine)


class OverSsh(Generic[OnSwitch]):
    """A lab as a person with its key sees it: its machines by name."""

    def __init__(self, places: Places, nodes: Mapping[str, OnSwitch]) -> None:
        self.places = places
        self.nodes = nodes

    def down(self) -> None:
        """Ends the lab."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def node(self, name: str) -> OnSwitch:
        """One of its nodes.

        Raises:
            LabError: There is none of this name.
        """
        try:
            return self.nodes[name]
        except KeyError:
            raise LabError(f"no node {name!r}: expected one of {', '.join(self.nodes)}") from None

    @property
    def ssh_config(self) -> Path:
        """For `ssh -F`: names, addresses, user, key and host keys."""
        return self.places.run / "ssh_config"

    def ssh_command(self, *words: str) -> list[str]:
        """The command line of `ssh` with these words."""
        return ["ssh", "-F", str(self.ssh_config), *words]

    def ssh(self, node: str, command: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Runs a command on a node as user pi, over the network; `options`: see `run`."""
        return run(*self.ssh_command(node, command), **{"timeout_seconds": 120.0, **options})

    def describe(self) -> None:
        """Writes known hosts and a configuration for ssh."""
        known_hosts = self.places.run / "known_hosts"
        known = ""
        hosts = ""
        for name, node in self.nodes.items():
            kind, key, _ = (node.folder / f"{HOST_KEY}.pub").read_text().split()
            known += f"{node.address} {kind} {key}\n"
            hosts += f"Host {name}\n    HostName {node.address}\n"
        known_hosts.write_text(known)
        common = CONFIGURATION.format(user=USER, key=self.places.key, known_hosts=known_hosts)
        self.ssh_config.write_text(hosts + common)


def identity(folder: Path, name: str, authorized: str) -> dict[str, tuple[str, int, int]]:
    """A machine's name and keys: content, mode and owner by path; the host key is new.

    `authorized`: the public key that opens user pi's account.
    """
    host_key = folder / HOST_KEY
    public = make_key(host_key, f"root@{name}")
    return {
        "etc/hostname": (f"{name}\n", 0o644, 0),
        "etc/hosts": (
            f"127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost\n127.0.1.1\t{name}\n",
            0o644,
            0,
        ),
        "home/pi/.ssh/authorized_keys": (authorized, 0o600, USER_ID),
        f"etc/ssh/{HOST_KEY}": (host_key.read_text(), 0o600, 0),
        f"etc/ssh/{HOST_KEY}.pub": (public, 0o644, 0),
    }


def make_key(path: Path, comment: str) -> str:
    """A new key without a passphrase; returns its public half."""
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", path)
    return path.with_suffix(".pub").read_text()
