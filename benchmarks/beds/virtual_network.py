"""Machines on one switch, made of the kernel's network: namespaces, virtual cables, a bridge.

All of it, the switch too, is in namespaces of its own, whose removal removes cables, addresses and
shapers.
"""

import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

SUBNET = "198.18.79"
"""Of the range for benchmarks (RFC 2544), which is not routed."""
BURST = "8kb"
"""Bytes that a shaper passes at full speed after a pause: some five Ethernet frames."""
COMMAND_SECONDS = 30.0


@dataclass(frozen=True)
class Machine:
    """Where a process runs: `prefix` starts its command, the others reach it at `address`."""

    prefix: tuple[str, ...]
    address: str


def why_not() -> str:
    """The reason why this machine cannot make them; empty if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [command for command in ("ip", "tc") if shutil.which(command) is None]
    if missing:
        return f"network namespaces need {' and '.join(missing)} (iproute2)"
    try:
        with machines(1, megabits=100.0):
            return ""
    except subprocess.CalledProcessError as problem:
        return f"{' '.join(problem.cmd)}: {problem.stderr.strip()}"


@contextmanager
def machines(count: int, megabits: float) -> Iterator[list[Machine]]:
    """`count` machines on a switch, each with a cable of `megabits` per second both ways.

    Removed afterwards.

    Processes on them must have ended by then. Raises CalledProcessError where the kernel refuses.
    """
    tag = uuid.uuid4().hex[:6]
    switch = f"pscluster-{tag}-switch"
    with ExitStack() as stack:
        stack.enter_context(_namespace(switch))
        _run("ip", "-n", switch, "link", "add", "bridge", "type", "bridge")
        _run("ip", "-n", switch, "link", "set", "bridge", "up")
        made = []
        for number in range(1, count + 1):
            name = f"pscluster-{tag}-{number}"
            port = f"port{number}"
            address = f"{SUBNET}.{number}"
            stack.enter_context(_namespace(name))
            cable = ("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
            _run("ip", "-n", switch, *cable)
            _run("ip", "-n", switch, "link", "set", port, "master", "bridge", "up")
            _run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
            _run("ip", "-n", name, "link", "set", "eth0", "up")
            for namespace, device in ((switch, port), (name, "eth0")):
                _shape(namespace, device, megabits)
            made.append(Machine(("ip", "netns", "exec", name), address))
        yield made


@contextmanager
def _namespace(name: str) -> Iterator[None]:
    _run("ip", "netns", "add", name)
    try:
        _run("ip", "-n", name, "link", "set", "lo", "up")
        yield
    finally:
        _run("ip", "netns", "del", name)


def _shape(namespace: str, device: str, megabits: float) -> None:
    rate = ("rate", f"{round(1000 * megabits)}kbit", "burst", BURST, "latency", "50ms")
    _run("tc", "-n", namespace, "qdisc", "add", "dev", device, "root", "tbf", *rate)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=COMMAND_SECONDS)


def on_this_machine(count: int) -> Sequence[Machine]:
    """`count` machines that are all this one, over its loopback interface."""
    return [Machine((), "127.0.0.1")] * count
