"""The requirements of a lab on this machine, and their installation."""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.lab.cgroups import CONTROLLERS
from tests.lab.commands import LabError, run
from tests.lab.places import CGROUPS

PACKAGE_OF = {
    "mmdebstrap": "mmdebstrap",
    "lxcfs": "lxcfs",
    "ip": "iproute2",
    "tc": "iproute2",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "mkfs.ext4": "e2fsprogs",
    "dpkg-deb": "dpkg",
}
"""Debian package by the command that is needed from it."""

OF_CONTAINERS = ("buildah", "podman", "crun")
"""Commands and packages alike, for the tests of containers alone: a lab does not need them."""

KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
"""The keyring of the image's packages."""


WATCHERS = Path("/proc/sys/fs/inotify/max_user_instances")
ENOUGH_WATCHERS = 1024
"""A node's systemd takes about seven, and root on all nodes together shares the kernel's 128 for
each user."""


def wanted() -> list[str]:
    """The missing Debian packages, those of containers too."""
    return [*_missing(), *(name for name in OF_CONTAINERS if shutil.which(name) is None)]


def missing(packages: Mapping[str, str]) -> list[str]:
    """The packages whose commands are missing, by command."""
    return sorted({name for command, name in packages.items() if shutil.which(command) is None})


def install(packages: Sequence[str]) -> None:
    """Installs them where apt-get works.

    Raises:
        LabError: apt-get failed.
    """
    if packages and os.geteuid() == 0 and shutil.which("apt-get"):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        options = ("apt-get", "-o", "DPkg::Lock::Timeout=300", "-y", "-qq")
        run(*options, "update", environment=environment)
        run(*options, "install", "--no-install-recommends", *packages, environment=environment)


def _missing() -> list[str]:
    packages = missing(PACKAGE_OF)
    return packages if KEYS.exists() else [*packages, "debian-archive-keyring"]


def why_not() -> str:
    """The reason why no lab can run here, in one line; empty where one can, given the packages."""
    if os.geteuid() != 0:
        return "the lab needs root: it makes network namespaces, mounts and control groups"
    if packages := _missing():
        return (
            f"the lab needs {', '.join(packages)}: `python -m tests.lab prepare` installs them"
            " (Debian)"
        )
    for controller in CONTROLLERS:
        if not os.access(CGROUPS / controller / "cgroup.procs", os.W_OK):
            return (
                f"the lab needs control groups of version 1, writable, and {CGROUPS / controller}"
                " is not"
            )
    known = Path("/proc/filesystems").read_text().split()
    if lacking := sorted({"overlay", "fuse", "autofs", "ext4"} - set(known)):
        return (
            f"the lab needs a kernel with {', '.join(lacking)}: /proc/filesystems does not list it"
        )
    trial = "unshare --net --mount --pid --fork ip link add trial type veth"
    tried = run("sh", "-c", trial, check=False)
    if tried.returncode != 0:
        return (
            f"the lab needs namespaces with virtual cables: {tried.stderr.strip().splitlines()[-1]}"
        )
    return ""


def allow_watchers() -> None:
    """Raise the kernel's limit where it is lower: with two labs up, some boots would hang."""
    if int(WATCHERS.read_text()) < ENOUGH_WATCHERS:
        WATCHERS.write_text(str(ENOUGH_WATCHERS))


def check() -> None:
    """Returns where a lab can run.

    Raises:
        LabError: It cannot run here.
    """
    if reason := why_not():
        raise LabError(reason)
