"""Machines on a lab's switch that user pi's key opens."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar

from tests.lab.commands import LabError, run
from tests.lab.places import Places

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


class OnSwitch(Protocol):
    """One of the machines."""

    @property
    def address(self) -> str: ...

    @property
    def folder(self) -> Path: ...


Machine = TypeVar("Machine", bound=OnSwitch)


class OverSsh(Generic[Machine]):
    """A lab as a person with its key sees it: its machines by name."""

    def __init__(self, places: Places, nodes: Mapping[str, Machine]) -> None:
        self.places = places
        self.nodes = nodes

    def down(self) -> None:
        """Ends the lab."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def node(self, name: str) -> Machine:
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
