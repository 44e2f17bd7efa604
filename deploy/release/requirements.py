"""What a node installs: the committed list, and the lines of it that count on one kind of node."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deploy.release.target import Target

FILE = Path(__file__).with_name("requirements.txt")
"""Written from uv.lock by `make requirements`; `make check` holds it against the lock."""
INSTALLER = "uv"
"""In the list like any other, yet not part of an environment: it installs the others on the node."""


@dataclass(frozen=True)
class Pin:
    """One package at one version; a file of it must have one of `hashes` (SHA-256, hex)."""

    name: str
    version: str
    hashes: frozenset[str]

    def line(self) -> str:
        """As a line of a requirements file."""
        return " ".join([f"{self.name}=={self.version}", *(f"--hash=sha256:{each}" for each in sorted(self.hashes))])


def committed() -> str:
    """The text of the committed list."""
    return FILE.read_text(encoding="utf-8")


def pins(requirements: str, target: Target) -> tuple[Pin, ...]:
    """What `requirements`, a list as `uv export` writes it, asks for on `target`, by name.

    Raises ValueError for a line that names no exact version with a SHA-256.
    """
    environment = target.environment()
    found = []
    for line in _lines(requirements):
        words, *options = line.split(" --hash=")
        requirement = Requirement(words.strip())
        if requirement.marker is not None and not requirement.marker.evaluate(environment):
            continue
        clauses = list(requirement.specifier)
        hashes = frozenset(option.strip().removeprefix("sha256:") for option in options)
        if len(clauses) != 1 or clauses[0].operator != "==" or not hashes:
            raise ValueError(f"expected NAME==VERSION with --hash=sha256:..., got {words!r}")
        found.append(Pin(canonicalize_name(requirement.name), clauses[0].version, hashes))
    return tuple(sorted(found, key=lambda pin: pin.name))


def text_for(requirements: str, target: Target, *, installer: bool) -> str:
    """The list for `target` alone: no markers, one line a package, the installer only if asked for."""
    wanted = (pin for pin in pins(requirements, target) if installer or pin.name != INSTALLER)
    return "".join(f"{pin.line()}\n" for pin in wanted)


def _lines(text: str) -> Iterator[str]:
    for line in text.replace("\\\n", " ").splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            yield line
