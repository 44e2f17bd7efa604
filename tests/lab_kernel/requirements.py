"""The requirements of machines with kernels of their own, and their installation."""

import os
from pathlib import Path

from tests.lab.commands import run
from tests.lab.requirements import missing

PACKAGE_OF = {
    "mmdebstrap": "mmdebstrap",
    "ip": "iproute2",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "mkfs.ext4": "e2fsprogs",
    "linux.uml": "user-mode-linux",
    "qemu-aarch64-static": "qemu-user-static",
}
"""Debian package by the command that is needed from it."""


def why_not() -> str:
    """The reason why no machine can run here, in one line; empty where they can."""
    if os.geteuid() != 0:
        return "the kernel lab needs root: it makes network namespaces, mounts and disk images"
    if os.uname().machine != "x86_64":
        return (
            f"the kernel lab needs an x86_64 machine, this is {os.uname().machine}: User-Mode-Linux"
            " runs on no other"
        )
    if packages := missing(PACKAGE_OF):
        return (
            f"the kernel lab needs {', '.join(packages)}: `python -m tests.lab_kernel prepare`"
            " installs them (Debian)"
        )
    if not Path("/dev/net/tun").exists():
        return "the kernel lab needs /dev/net/tun for the machines' network, and it is missing"
    known = Path("/proc/filesystems").read_text().split()
    if "binfmt_misc" not in known:
        return (
            "the kernel lab needs binfmt_misc for emulated programs: /proc/filesystems does not"
            " list it"
        )
    tried = run(
        "unshare", "--net", "ip", "tuntap", "add", "dev", "trial", "mode", "tap", check=False
    )
    if tried.returncode != 0:
        return (
            f"the kernel lab needs virtual network cards: {tried.stderr.strip().splitlines()[-1]}"
        )
    return ""


EMULATED = ("mmdebstrap", "ip", "unshare", "qemu-aarch64-static")
"""The commands that aarch64 programs need."""


def why_not_emulated() -> str:
    """The reason why no aarch64 program can run here, or empty.

    A user namespace has its own binfmt_misc or none.
    """
    if os.geteuid() != 0 or os.uname().machine != "x86_64":
        return "emulation needs root on an x86_64 machine"
    if packages := missing({name: PACKAGE_OF[name] for name in EMULATED}):
        return f"emulation needs {', '.join(packages)}: install them (Debian)"
    if not Path("/sys/fs/cgroup/memory/memory.limit_in_bytes").exists():
        return "emulation needs memory control groups of version 1, at /sys/fs/cgroup/memory"
    register = (
        "mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc && test -w"
        " /proc/sys/fs/binfmt_misc/register"
    )
    tried = run(
        "unshare", "--user", "--map-root-user", "--mount", "sh", "-c", register, check=False
    )
    if tried.returncode == 0:
        return ""
    return (
        "emulation needs a kernel from 6.7 on, with binfmt_misc in user namespaces:"
        f" {tried.stderr.strip()}"
    )


WHOLE_MACHINE = {
    "mmdebstrap": "mmdebstrap",
    "cpio": "cpio",
    "git": "git",
    "qemu-system-aarch64": "qemu-system-arm",
}


def why_no_whole_machine() -> str:
    """The reason why no aarch64 machine can be emulated here, or empty."""
    if os.geteuid() != 0:
        return "it needs root, which unpacks a system"
    if packages := missing(WHOLE_MACHINE):
        return f"it needs {', '.join(packages)}: install them (Debian)"
    return ""
