"""What a node installs: the committed list, its lines for one Python and machine, and the hashes.

They name a release or an environment, and stand in `SHA256SUMS` (sha256sum(1)).
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import canonicalize_name

KEY_DIGITS = 16
"""Hexadecimal digits of a key, the name of a release or an environment: 64 bits of a hash of its
content."""
SUMS = "SHA256SUMS"


def key_of(content: object) -> str:
    """The key of a content; of plain values it is that of their JSON."""
    if not isinstance(content, bytes):
        content = json.dumps(content).encode()
    return hashlib.sha256(content).hexdigest()[:KEY_DIGITS]


def file_sha256(path: Path) -> str:
    """SHA-256 (hex) of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sums_text(sums: Mapping[str, str]) -> str:
    """The text of SUMS for hashes by file name, sorted."""
    return "".join(f"{sums[name]}  {name}\n" for name in sorted(sums))


def parse_sums(text: str) -> dict[str, str]:
    """Hashes by file name."""
    pairs = (line.split("  ", 1) for line in text.splitlines())
    return {name: sha256 for sha256, name in pairs}


PYTHONS = ("3.11", "3.12", "3.13")
MACHINES = ("aarch64", "x86_64")
OLDEST_GLIBC_MINOR = 17
NEWEST_GLIBC_MINOR = 36
"""The glibc of Debian 12, and so of the oldest Raspberry Pi OS with a supported Python, 3.11."""


@dataclass(frozen=True)
class Target:
    """A kind of node, by Python version `3.11` (or `3.11.2`) and machine `aarch64`."""

    python: str
    machine: str

    @property
    def short_python(self) -> str:
        """Return the version without its last figure: 3.11.2 and 3.11.9 take the same wheels."""
        return ".".join(self.python.split(".")[:2])

    def environment(self) -> dict[str, str]:
        """Values of the marker variables on this target."""
        if self.python.count(".") > 1:
            full = self.python
        else:
            full = f"{self.python}.0"
        return {
            "implementation_name": "cpython",
            "implementation_version": full,
            "os_name": "posix",
            "platform_machine": self.machine,
            "platform_python_implementation": "CPython",
            "platform_release": "6.1",
            "platform_system": "Linux",
            "platform_version": "",
            "python_full_version": full,
            "python_version": self.short_python,
            "sys_platform": "linux",
        }

    def platforms(self) -> tuple[str, ...]:
        """Platform tags, the newest glibc first.

        An installer takes each by name and derives no older ones.
        """
        minors = range(NEWEST_GLIBC_MINOR, OLDEST_GLIBC_MINOR - 1, -1)
        manylinux = tuple(f"manylinux_2_{minor}_{self.machine}" for minor in minors)
        older = ("2014", "2010", "1") if self.machine == "x86_64" else ("2014",)
        return (
            *manylinux,
            *(f"manylinux{year}_{self.machine}" for year in older),
            f"linux_{self.machine}",
        )

    def tags(self) -> frozenset[Tag]:
        """Wheel tags that an installer accepts on this target."""
        major, minor = (int(part) for part in self.short_python.split("."))
        platforms = self.platforms()
        return frozenset(
            [
                *cpython_tags((major, minor), platforms=platforms),
                *compatible_tags(
                    (major, minor), interpreter=f"cp{major}{minor}", platforms=platforms
                ),
            ]
        )


FILE = Path(__file__).with_name("requirements.txt")
"""The list that `make requirements` writes from uv.lock; `make check` compares the two."""
FILES = {
    (False, False): FILE,
    (True, False): FILE.with_name("requirements-gpu.txt"),
    (False, True): FILE.with_name("requirements-service.txt"),
    (True, True): FILE.with_name("requirements-gpu-service.txt"),
}
"""The lists by whether a node has a GPU that is used, and the recognition service."""
INSTALLER = "uv"
"""A line of the list, but not part of an environment: it installs the other packages on the node.
"""


@dataclass(frozen=True)
class Pin:
    """One package at one version; a file of it must have one of `hashes` (SHA-256, hex)."""

    name: str
    version: str
    hashes: frozenset[str]

    def line(self) -> str:
        """Return the line of a requirements file."""
        return " ".join(
            [
                f"{self.name}=={self.version}",
                *(f"--hash=sha256:{digest}" for digest in sorted(self.hashes)),
            ]
        )


def committed(*, cuda: bool = False, service: bool = False) -> str:
    """The text of the committed list.

    With `cuda` that of nodes with a GPU, which differs on x86_64 alone; with `service` that of
    nodes with the recognition service.
    """
    return FILES[cuda, service].read_text(encoding="utf-8")


def pins(requirements: str, target: Target) -> tuple[Pin, ...]:
    """Return the packages that a list of `uv export` has for `target`, sorted by name.

    Raises ValueError for a line without an exact version and a SHA-256.
    """
    environment = target.environment()
    parsed_pins = []
    for line in _lines(requirements):
        requirement_text, *options = line.split(" --hash=")
        requirement = Requirement(requirement_text.strip())
        if requirement.marker is not None and not requirement.marker.evaluate(environment):
            continue
        clauses = list(requirement.specifier)
        hashes = frozenset(option.strip().removeprefix("sha256:") for option in options)
        if len(clauses) != 1 or clauses[0].operator != "==" or not hashes:
            raise ValueError(
                f"expected NAME==VERSION with --hash=sha256:..., got {requirement_text!r}"
            )
        parsed_pins.append(Pin(canonicalize_name(requirement.name), clauses[0].version, hashes))
    return tuple(sorted(parsed_pins, key=lambda pin: pin.name))


def text_for(requirements: str, target: Target, *, installer: bool) -> str:
    """Return the list for `target` alone, without markers; `installer` adds the line of uv."""
    target_pins = (pin for pin in pins(requirements, target) if installer or pin.name != INSTALLER)
    return "".join(f"{pin.line()}\n" for pin in target_pins)


def _lines(text: str) -> Iterator[str]:
    for line in text.replace("\\\n", " ").splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            yield line


def environment_key(requirements: str, python: str = "3.11", machine: str = "aarch64") -> str:
    """Return the key of the environment that the list makes for this Python and machine.

    Only the lines for this kind of node count: another NumPy for Python 3.13 does not change the
    nodes with 3.11.
    """
    target = Target(python, machine)
    described = [target.short_python, machine, text_for(requirements, target, installer=True)]
    return key_of(described)
