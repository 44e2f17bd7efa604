"""A second machine as far as the kernel's network is concerned.

A network namespace behind a virtual cable.
"""

import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.core.server.processes import HANG_SECONDS, PROJECT
from tests.habits import needs

ADDRESSES = {4: ("198.18.77.1", "198.18.77.2", 24), 6: ("fd5a:77::1", "fd5a:77::2", 64)}
"""Ours and theirs: from the range for benchmarks (RFC 2544) and a unique local one."""


@dataclass(frozen=True)
class Neighbour:
    """The other end. `here` maps the IP version to the address of this machine that it sees."""

    name: str
    here: dict[int, str]

    def python(self, code: str, *arguments: str) -> subprocess.Popen[str]:
        """Python code that runs over there, with pipes to its stdin and stdout."""
        return subprocess.Popen(
            ["ip", "netns", "exec", self.name, sys.executable, "-c", code, *arguments],
            cwd=PROJECT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def answers(self, host: str, port: int, seconds: float) -> bool:
        """`core.server.sockets.answers`, asked from over there."""
        code = "import sys; from core.server.sockets import answers; "
        code += "print(answers(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))"
        output, _ = self.python(code, host, str(port), str(seconds)).communicate(
            timeout=HANG_SECONDS
        )
        return {"True\n": True, "False\n": False}[output]


def why_not() -> str:
    """Why no neighbour can be made here; empty where one can.

    Skips without the tools and the rights for it.
    """
    needs.tool("ip")
    needs.root("network namespaces")
    name = f"trial{uuid.uuid4().hex[:8]}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        return f"no network namespace: {made.stderr.strip()}"
    # Entering it is what fails in a chroot without /sys, and bare containers may forbid cables
    # between namespaces.
    wired = subprocess.run(
        ["ip", "-n", name, "link", "add", "trial", "type", "veth"],
        capture_output=True,
        text=True,
        check=False,
    )
    ip("netns", "del", name)
    if wired.returncode == 0:
        return ""
    return f"no cable in a network namespace: {wired.stderr.strip()}"


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=HANG_SECONDS)


@contextmanager
def neighbour() -> Iterator[Neighbour]:
    """A neighbour that is gone afterwards, its cable with it."""
    tag = uuid.uuid4().hex[:8]
    name = f"psc{tag}"
    ours = f"psa{tag}"
    theirs = f"psb{tag}"
    ip("netns", "add", name)
    try:
        ip("link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", name)
        for version, (here, there, prefix) in ADDRESSES.items():
            # Without duplicate address detection, which would keep an IPv6 address from use for a
            # second or two.
            if version == 6:
                undetected = ["nodad"]
            else:
                undetected = []
            ip("addr", "add", f"{here}/{prefix}", "dev", ours, *undetected)
            ip("-n", name, "addr", "add", f"{there}/{prefix}", "dev", theirs, *undetected)
        ip("link", "set", ours, "up")
        ip("-n", name, "link", "set", theirs, "up")
        yield Neighbour(name, {version: addresses[0] for version, addresses in ADDRESSES.items()})
    finally:
        ip("netns", "del", name)
